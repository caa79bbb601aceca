"""issue(): freeze a report version. read() and load(): a version, or the draft. due(): who waits for one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Subquery

from dashboard.event_words import event
from dashboard.restored import missing_for
from dashboard.statements import of_report
from effects.models import Report as ReportRow
from runs.access import SYSTEM, NotFound
from runs.evidence import Line, canonical, digest, last_line, record, seal, seal_stream
from runs.models import Evidence, Run, RunStatus, Seal
from runs.store import database_time, verb

from .building import build, is_final, stamp
from .changes import changes_since
from .frozen import document, plain, revive
from .model import Report, SealFacts, VersionRow
from .queries import name_actors
from .rows import DOUBTFUL
from .signed import StatementFacts, signed_rows
from .window import Wanted, shorten

RESTING = (
    RunStatus.CANCELLED,
    RunStatus.UNKNOWN,
    RunStatus.CANCELLING_TIMEOUT,
    RunStatus.ABANDONED,
    RunStatus.COMPLETED,
    RunStatus.FAILED,
)
# Lines that change nothing a report is issued for. A kind that is not named here is looked into.
IMMATERIAL = (
    *("report.issued", "report.signed_off", "effect.looked_up", "compensation.looked_up", "stop.joined"),
    *("permit.opened", "permit.reported", "permit.not_sent", "permit.lost"),
)
OWN = ("report.issued", "report.signed_off")  # they tell of the report itself
RECENT = timedelta(seconds=30)
SLICE, MANY = 200, 5_000
TRIES = 3
EVERYTHING = Wanted()


class Moved(Exception):
    """The run changed while its report was written; write it again."""


def issue(run_id: str) -> ReportRow | None:
    """Issue the next version of a resting run's report, if what matters changed; else None.

    Written outside the run's lock and inserted under it, unless a line came in between. Two that
    issue at once make one version. Raises NotFound.
    """
    for _ in range(TRIES):
        if not behind(Run.objects.filter(pk=run_id)).exists():
            return None
        try:
            ready = _prepare(run_id)
            seal_stream(run_id)  # in parts: under the lock, at the end, are only the lines that came since
            return _insert(run_id, ready)
        except Moved:
            continue
    return _insert(run_id, None)


@dataclass(frozen=True)
class Prepared:
    """The next version to be, and whether it would say anything new."""

    draft: Report
    version: int
    is_news: bool


def _prepare(run_id: str) -> Prepared:
    """Compared with the newest version, which is read last: one that comes in between leaves a line."""
    draft = build(run_id)
    last = ReportRow.objects.filter(run=run_id).order_by("-version").first()
    if last is None:
        return Prepared(draft, 1, True)
    before = json.loads(last.body)
    changed = replace(draft, changes=changes_since(before, draft))
    return Prepared(changed, last.version + 1, before["matters"] != draft.matters)


@verb
def _insert(run_id: str, ready: Prepared | None) -> ReportRow | None:
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    if run.status not in RESTING:
        return None
    newest = last_line(run.pk)
    if ready is not None and ready.draft.upto_seq != newest:
        raise Moved
    ready = ready or _prepare(run_id)
    return _freeze(run, ready.draft, ready.version) if ready.is_news else None


def _freeze(run: Run, draft: Report, version: int) -> ReportRow:
    """Seal the stream, then insert the version and its evidence. The caller holds the run's lock."""
    seal(run)
    sealed = Seal.objects.filter(stream=run.pk).order_by("-upto_seq").values_list("upto_seq", "head").first()
    now = database_time()
    issued = replace(
        draft,
        draft=False,
        version=version,
        issued_at=now,
        as_of=now,
        final=finality(draft),
        seal=SealFacts(*sealed) if sealed else None,
    )
    body = canonical(document(replace(issued, stamp=stamp(issued))))
    row = ReportRow.objects.create(
        run=run,
        version=version,
        outcome=issued.outcome,
        final=issued.final,
        upto_seq=issued.upto_seq,
        body=body,
        digest=digest(body),
        issued_at=now,
    )
    of_report(row)
    told = {"version": version, "digest": row.digest, "outcome": row.outcome, "final": row.final}
    record(run, Line("report.issued", SYSTEM.id, told, current_version=run.cancel_version))
    return row


def finality(report: Report) -> bool:
    """Whether an issued version leaves nothing open."""
    doubtful = sum(report.manifest.counts.get(state, 0) for state in DOUBTFUL)
    doubtful += report.deliveries.get("QUEUED", 0)
    return is_final(report.status, report.outcome, doubtful)


# reading -----------------------------------------------------------------------------------------------


def load(
    run_id: str, version: int | None = None, most: int | None = None, wanted: Wanted = EVERYTHING
) -> Report:
    """An issued version (the newest if None) as it was frozen, or the draft when none was issued.

    `most` bounds manifest and log for a page; `wanted` says which rows. Raises NotFound for a version that
    does not exist.
    """
    row, versions = _find(run_id, version)
    if row is None:
        return build(run_id, most)
    frozen, signed = json.loads(row.body), signed_rows(run_id)
    named = name_actors(_actors(frozen) | {one.actor for one in signed})
    matching = shorten(frozen, most, wanted) if most is not None else frozen["manifest"]["total"]
    report = replace(revive(Report, frozen), matching=matching)
    beside: dict[str, Any] = {"id": row.pk, "digest": row.digest, "versions": versions, "names": named}
    return replace(report, **beside, signed=signed, statement=_statement(row))


def _statement(row: ReportRow) -> StatementFacts | None:
    """None for a version that was issued before there were any."""
    made = getattr(row, "statement", None)
    return StatementFacts(made.pk, made.key, made.signature, made.unsigned) if made else None


def read(run_id: str, version: int | None = None) -> dict[str, Any]:
    """The document as JSON values, with `issue` beside it: id, digest, versions, sign-offs and names.

    `issue.digest` is the SHA-256 of the canonical JSON of everything but `issue`; a draft has none.
    """
    row, versions = _find(run_id, version)
    told = json.loads(row.body) if row else document(build(run_id))
    signed = signed_rows(run_id) if row else []
    beside = {
        "id": row.pk if row else None,
        "digest": row.digest if row else None,
        "names": name_actors(_actors(told) | {one.actor for one in signed}),
        "versions": [plain(one) for one in versions],
        "signed": [plain(one) for one in signed],
        "statement": plain(_statement(row)) if row else None,
        "missing": missing_for(Run.objects.values_list("admitted_at", flat=True).get(pk=run_id)),
    }
    return {**told, "issue": beside}


def _find(run_id: str, version: int | None) -> tuple[ReportRow | None, list[VersionRow]]:
    """The version asked for (None: the newest, or no row for the draft), and the list of all."""
    columns = ("version", "issued_at", "outcome", "final")
    issued = ReportRow.objects.filter(run=run_id).order_by("-version")
    versions = [VersionRow(*row) for row in issued.values_list(*columns)]
    if version is None and not versions:
        return None, []
    number = versions[0].version if version is None else version
    if number not in {one.version for one in versions}:
        raise NotFound("report")
    return issued.select_related("statement").get(version=number), versions


def newest(run_id: str) -> int | None:
    """The number of the newest issued version, None before one."""
    numbers: QuerySet[ReportRow, int] = ReportRow.objects.filter(run=run_id).values_list("version", flat=True)
    return numbers.order_by("-version").first()


def is_genuine(row: ReportRow) -> bool:
    """Whether an issued body still has its digest."""
    return digest(row.body) == row.digest


def _actors(told: dict[str, Any]) -> set[str]:
    stops = [*([told["stop"]] if told["stop"] else []), *told["earlier_stops"]]
    presses = [press["actor"] for stop in stops for press in stop["presses"]]
    mending = told.get("repairs", {}).get("rows", [])
    decided = {
        actor for row in mending for actor in (row["proposed_by"], row["decided_by"], *row["approved_by"])
    }
    lines = {line["actor"] for line in told["evidence"]}
    return {*presses, *decided, *lines, *(stop["actor"] for stop in stops)}


def since(run_id: str, upto_seq: int) -> list[str]:
    """What the evidence holds beyond a version's last line, counted: "2 × Provider looked up"."""
    lines = Evidence.objects.filter(stream=run_id, seq__gt=upto_seq).exclude(kind__in=OWN)
    kinds = lines.order_by().values_list("kind").annotate(number=Count("seq"), at=Min("seq")).order_by("at")
    return [f"{number} × {event(kind)}" for kind, number, _ in kinds]


# who waits for a report --------------------------------------------------------------------------------


def behind(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Of these runs, the resting ones without a report that knows their newest material line."""
    told = ReportRow.objects.filter(run=OuterRef("pk")).order_by("-version").values("upto_seq")[:1]
    newer = material(Evidence.objects.filter(stream=OuterRef("pk"), seq__gt=OuterRef("told")))
    rows = runs.filter(status__in=RESTING).annotate(told=Subquery(told))
    return rows.filter(Q(told__isnull=True) | Exists(newer))


def material(lines: QuerySet[Evidence]) -> QuerySet[Evidence]:
    rows = lines.exclude(kind__in=IMMATERIAL).exclude(kind__startswith="step.")
    return rows.exclude(kind__endswith=".refused")


class Round:
    """Goes through all resting runs, newest first, a slice at a time, and begins again."""

    def __init__(self) -> None:
        self.below = ""

    def next(self) -> list[str]:
        resting = Run.objects.filter(status__in=RESTING).order_by("-pk")
        if self.below:
            resting = resting.filter(pk__lt=self.below)
        ids = list(resting.values_list("pk", flat=True)[:SLICE])
        self.below = ids[-1] if len(ids) == SLICE else ""
        return ids


_round = Round()


def due(limit: int = SLICE) -> list[str]:
    """Runs to issue a report for: those with a recent line, and those found on the round.

    The first kind makes good a lost wake-up within seconds, the second whatever was missed while
    no process ran: a bounded number of runs a call, whatever their number.
    """
    recent = material(Evidence.objects.filter(at__gt=database_time() - RECENT))
    streams = recent.order_by().values_list("stream", flat=True).distinct()[:MANY]
    return sorted({*_behind(list(streams), limit), *_behind(_round.next(), limit)})


def _behind(run_ids: list[str], limit: int) -> list[str]:
    """Asked by id: a plan that looks into the evidence of every run would be a slow one."""
    found: QuerySet[Any, str] = behind(Run.objects.filter(pk__in=run_ids)).values_list("pk", flat=True)
    return list(found[:limit])
