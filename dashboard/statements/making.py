"""Statements of issued reports, in their transaction, and one a day of each workspace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import Exists, OuterRef, Q, Subquery

from effects.models import Report
from runs import keyring
from runs.evidence import digest
from runs.models import Run, Seal, Workspace
from runs.store import database_time, verb

from .models import Statement, StatementKind
from .signing import Signed, sign

STREAMS = 2_000  # named in one statement
MARGIN = timedelta(seconds=60)  # a seal may commit after a later clock was read


def of_report(report: Report) -> Statement:
    """The statement of a version that was just inserted; the caller's transaction holds its run's lock.

    Names the run's newest seal. Where nobody can sign, it says so: a report is issued all the same.
    """
    run: Run = report.run
    sealed = Seal.objects.filter(stream=run.pk, upto_seq__lte=report.upto_seq).order_by("-upto_seq")
    about = {"id": report.pk, "run": run.pk, "version": report.version, "digest": report.digest}
    told: dict[str, Any] = {
        "at": report.issued_at.isoformat(),
        "workspace": run.workspace_id,
        "streams": [named(seal.stream, seal.upto_seq, seal.head) for seal in sealed[:1]],
        "report": about,
    }
    row = row_of(sign(StatementKind.REPORT, told), StatementKind.REPORT, run.workspace_id, report.issued_at)
    row.report = report
    row.save(force_insert=True)
    return row


def row_of(signed: Signed, kind: StatementKind, workspace_id: str, at: datetime) -> Statement:
    return Statement(
        kind=kind,
        workspace_id=workspace_id,
        at=at,
        key=signed.key,
        body=signed.text,
        signature=signed.signature,
        unsigned=signed.unsigned,
    )


def named(stream: str, upto_seq: int, head: str) -> dict[str, Any]:
    return {"stream": stream, "upto_seq": upto_seq, "head": head}


# one a day ---------------------------------------------------------------------------------------------


def due_days() -> list[str]:
    """Workspaces without a statement of today (UTC): ids, none where nobody could sign one."""
    try:
        keyring.read(keyring.SEAL)
    except keyring.KeyUnreadable:
        return []
    mine = Statement.objects.filter(workspace=OuterRef("pk"), day=database_time().date())
    return list(Workspace.objects.filter(~Exists(mine)).order_by("pk").values_list("pk", flat=True))


def make_day(workspace_id: str) -> list[Statement]:
    """Today's statement of a workspace, in as many parts as it takes; [] where one is there already.

    It names each stream with a head that the statement of the day before does not know, and the digest of
    that statement: so the newest one vouches for all before it.
    """
    at = database_time()
    last = Statement.objects.filter(workspace=workspace_id, kind=StatementKind.DAILY).order_by("-id").first()
    if last is not None and last.day is not None and last.day >= at.date():
        return []
    heads = list(new_heads(workspace_id, last.at - MARGIN if last else None))
    if not heads and last is None:
        return []
    parts = [heads[start : start + STREAMS] for start in range(0, len(heads), STREAMS)] or [[]]
    rows = list(signed_parts(workspace_id, at, parts, digest(last.body) if last else ""))
    if any(row.unsigned for row in rows):
        return []
    try:
        return _keep(rows)
    except IntegrityError:  # another process made it meanwhile
        return []


def signed_parts(
    workspace_id: str, at: datetime, parts: list[list[dict[str, Any]]], before: str
) -> Iterator[Statement]:
    for number, streams in enumerate(parts, 1):
        told: dict[str, Any] = {
            "at": at.isoformat(),
            "workspace": workspace_id,
            "streams": streams,
            "day": at.date().isoformat(),
            "part": number,
            "parts": len(parts),
            "before": before,
        }
        row = row_of(sign(StatementKind.DAILY, told), StatementKind.DAILY, workspace_id, at)
        row.day, row.part = at.date(), number
        before = digest(row.body)
        yield row


@verb
def _keep(rows: list[Statement]) -> list[Statement]:
    return Statement.objects.bulk_create(rows)


def new_heads(workspace_id: str, since: datetime | None) -> Iterator[dict[str, Any]]:
    """The newest seals of a workspace's streams that were made after `since`, some runs at a time."""
    yield from _heads(Workspace.objects.filter(pk=workspace_id), since)
    after = ""
    while True:
        runs = Run.objects.filter(workspace=workspace_id, pk__gt=after).order_by("pk")
        ids = list(runs.values_list("pk", flat=True)[:STREAMS])
        if not ids:
            return
        after = ids[-1]
        yield from _heads(Run.objects.filter(workspace=workspace_id, pk__range=(ids[0], after)), since)


def _heads(holders: Any, since: datetime | None) -> Iterator[dict[str, Any]]:
    newest = Seal.objects.filter(stream=OuterRef("pk")).order_by("-upto_seq")
    rows = holders.annotate(
        upto=Subquery(newest.values("upto_seq")[:1]),
        head=Subquery(newest.values("head")[:1]),
        sealed_at=Subquery(newest.values("at")[:1]),
    ).filter(Q(sealed_at__gt=since) if since else Q(sealed_at__isnull=False))
    for stream, upto, head in rows.order_by("pk").values_list("pk", "upto", "head"):
        yield named(stream, upto, head)
