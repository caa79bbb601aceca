"""sign_off(): a person says that they read an issued version. It settles nothing and is never taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.models import Max

from effects.models import Report as ReportRow
from effects.models import SignOff
from runs import access
from runs.access import Actor, NotAllowed, NotFound
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Run
from runs.store import database_time, verb

from .signed import open_in

NOTE_MAX = 1000


@dataclass(frozen=True)
class Signed:
    """The sign-off; `again`: this person had signed this version before, and nothing was added."""

    row: SignOff
    again: bool = False


@dataclass(frozen=True)
class NotSigned:
    """Nothing was signed: the version has another digest than the one that the person read."""

    sentence: str = "What you read is not what this version holds. Read it again."


@verb
def sign_off(*, actor: Actor, run_id: str, version: int, digest: str, note: str = "") -> Signed | NotSigned:
    """Record that a person read this version, once for each person and version, with a line of evidence.

    `digest`: the one on the page that they read. Raises NotFound for an absent run or version (a draft has
    none), NotAllowed for tokens and for members without the right to sign.
    """
    report = ReportRow.objects.filter(run=run_id, version=version).first()
    left = open_in(json.loads(report.body)) if report else 0  # before the lock: a stop waits for none of this
    run = lock_run(run_id)
    access.demand(actor, "sign", run)
    if actor.user is None or actor.via != "page":
        raise NotAllowed("sign")
    if report is None:
        raise NotFound("report")
    if report.digest != digest:
        return NotSigned()
    before = SignOff.objects.filter(report=report, person=actor.user).first()
    return Signed(before, again=True) if before else Signed(_insert(run, report, actor, note, left))


def _insert(run: Run, report: ReportRow, actor: Actor, note: str, left: int) -> SignOff:
    assert actor.user is not None
    newest = ReportRow.objects.filter(run=run).aggregate(newest=Max("version"))["newest"]
    told = {"version": report.version, "digest": report.digest, "newest": newest, "open": left}
    told |= {"note": note[:NOTE_MAX]} if note else {}
    line = record(run, Line("report.signed_off", actor.id, told, current_version=run.cancel_version))
    return SignOff.objects.create(
        report=report,
        version=report.version,
        newest=newest,
        digest=report.digest,
        open_items=left,
        person=actor.user,
        line=line,
        at=database_time(),
    )
