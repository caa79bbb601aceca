"""What a person's verdict stands on, and why it is not enough: read under the run's lock.

A plain text is evidence of somebody else's run. On one's own it needs what the provider said, or what
another person attached. That something did not happen can't be said while it may still be sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from runs.access import Actor
from runs.models import Evidence, EvidencePayload, Permit, PermitState, Run
from runs.saying import words_in
from runs.store import database_time

from .four_eyes import people_behind
from .models import Attachment, Delivery, Ground, Kind, Matter, Verdict
from .reconcile import ABSENT, REFUSED, Answer, Asked, meaning_of

PROVIDERS_OWN = (Ground.LOOKED_UP, Ground.WEBHOOK, Ground.INSPECTED)
MEANINGS: dict[str, tuple[str, ...]] = {
    Verdict.HAPPENED: ("happened",),
    Verdict.PARTLY: ("partly",),
    Verdict.DID_NOT: ("did not happen",),
    Verdict.CANNOT_TELL: ("happened", "partly", "did not happen", "nothing"),
}
RECORDS = ("reference", "link", "file")  # forms of an attachment that may be the provider's record
OF_PEOPLE = ("resolution.", "unknown.")  # lines that say what people said; they can't stand on themselves


@dataclass(frozen=True)
class Draft:
    """A verdict that somebody would record. `shared`: an attachment of another subject that this may cite."""

    verdict: str
    evidence: str
    items: Any = None
    attachments: Sequence[str] = ()
    lines: Sequence[int] = ()
    shared: str = ""
    found: dict[str, Any] = field(default_factory=dict)


def objection(run: Run, matter: str, row: Any, actor: Actor, draft: Draft) -> str:
    """Why this draft is not enough: a key of WHY_NOT, or ""."""
    if draft.verdict not in Verdict.values or (matter == Matter.DELIVERY and draft.verdict == Verdict.PARTLY):
        return "verdict"
    if not words_in(draft.evidence):
        return "evidence"
    if draft.verdict == Verdict.PARTLY and not has_items(draft.items):
        return "items"
    if not are_of(run, row, draft):
        return "foreign"
    if is_own(run, actor) and not _backed(run, row, actor, draft):
        return "own_run"
    return may_still_happen(run, row, draft) if draft.verdict == Verdict.DID_NOT else ""


def has_items(items: Any) -> bool:
    """Whether it says which part: a text, or texts in a list, or what stands under a name."""
    if isinstance(items, str):
        return bool(words_in(items))
    if isinstance(items, (list, tuple)):
        return any(has_items(one) for one in items)
    if not isinstance(items, dict):
        return False
    return any(words_in(str(name)) and (_is_figure(one) or has_items(one)) for name, one in items.items())


def _is_figure(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def are_of(run: Run, row: Any, draft: Draft) -> bool:
    """Whether every line and attachment that it cites is about this subject."""
    mine = Attachment.objects.filter(pk__in=set(draft.attachments), run__workspace=run.workspace_id)
    theirs = [one for one, of in mine.values_list("pk", "subject_id") if of == row.pk or one == draft.shared]
    return len(theirs) == len(set(draft.attachments)) and _lines(run, row, draft).count() == len(
        set(draft.lines)
    )


def _lines(run: Run, row: Any, draft: Draft) -> QuerySet[Evidence]:
    rows = Evidence.objects.filter(stream=run.pk, effect_key=row.key, seq__in=set(draft.lines))
    for kind in OF_PEOPLE:
        rows = rows.exclude(kind__startswith=kind)
    return rows


def is_own(run: Run, actor: Actor) -> bool:
    """Whether the run is this person's: they own it, or made the token that registered it."""
    if actor.user is None:
        return False
    admitted = Evidence.objects.filter(stream=run.pk, kind="run.admitted").values_list("actor", flat=True)
    return actor.user.pk in {run.owner_id, *people_behind(admitted)}


def _backed(run: Run, row: Any, actor: Actor, draft: Draft) -> bool:
    """Whether more than one's own word says so: the provider, or what somebody else attached."""
    assert actor.user is not None
    theirs = Attachment.objects.filter(pk__in=set(draft.attachments)).exclude(person_id=actor.user.pk)
    return theirs.exists() or _provider_says(run, row, draft, actor)


def _provider_says(run: Run, row: Any, draft: Draft, actor: Actor) -> bool:
    """Whether a cited line is the provider's own answer, and proves what the verdict says."""
    cited = _lines(run, row, draft).filter(ground__in=PROVIDERS_OWN).values_list("seq", flat=True)
    bodies = EvidencePayload.objects.filter(stream=run.pk, seq__in=list(cited))
    told = [json.loads(body) for body in bodies.values_list("body", flat=True) if body]
    return any(
        _means(row, one) in MEANINGS[draft.verdict] and not _answered_by(one, actor)
        for one in told
        if isinstance(one, dict)
    )


def _means(row: Any, told: dict[str, Any]) -> str:
    """What the answer in a line proves, by the rules that settle by themselves; "": it holds none."""
    if not isinstance(told.get("answer"), str):
        return ""
    answer = Answer(told["answer"], fenced=told.get("fenced") is True)
    if "asked_at" not in told and answer.answer in (ABSENT, REFUSED):
        return "nothing"  # of what it could know is not said
    at = datetime.fromisoformat(told["asked_at"]) if "asked_at" in told else database_time()
    return meaning_of(row, answer, Asked(at, int(told.get("attempt", 0))))


def _answered_by(told: dict[str, Any], actor: Actor) -> bool:
    """Whether the look-up was answered by an agent of this very person, or of nobody knows whom: one that we
    called back, or whose token is gone."""
    by = told.get("answered_by")
    if not isinstance(by, str) or actor.user is None:
        return False
    behind = people_behind([by])
    return not behind or actor.user.pk in behind


def may_still_happen(run: Run, row: Any, draft: Draft) -> str:
    """Why "it did not happen" can't be said yet: it may still be sent, or still appear at the provider."""
    calls = Permit.objects.filter(run=run, effect_key=row.key).exclude(state=PermitState.NOT_SENT)
    told = list(calls.values_list("state", "ended_at", "permit_until"))
    if any(state == PermitState.OPEN for state, _, _ in told):
        return "may_be_sent"
    kind: Kind | None = None if isinstance(row, Delivery) else row.kind
    ends = [ended if state == PermitState.REPORTED and ended else until for state, ended, until in told]
    window = timedelta(seconds=kind.settle_window_s if kind else 0)
    if max([*ends, row.dispatched_at or run.admitted_at]) + window > database_time():
        return "in_window"
    lost = any(state == PermitState.LOST for state, _, _ in told)
    return "lost_holder" if lost and not _has_record(run, row, draft) else ""


def _has_record(run: Run, row: Any, draft: Draft) -> bool:
    """Whether the provider's own record is cited: an answer of it that proves it in spite of the lost holder,
    or a reference, link or file."""
    records = Attachment.objects.filter(pk__in=set(draft.attachments), form__in=RECORDS)
    nobody = Actor("")
    return records.exists() or _provider_says(run, row, draft, nobody)
