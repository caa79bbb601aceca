"""What people say of an unknown: resolve, agree, withdraw, correct.

A person's verdict needs evidence, and stands on the weakest ground: whatever a provider says later goes
before it. What can't be determined is accepted by two people. Tokens have no way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from runs.access import Actor, NotFound, demand
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Run
from runs.saying import words_in
from runs.store import Now, verb

from . import backing, close, contradictions, verdict_moves
from .asking import check_many, check_now
from .attaching import attach
from .backing import Draft
from .care import assign_many, give_back, take
from .models import Ground, Matter, Resolution, Verdict
from .unknowns import ACCEPTED, UNKNOWN, row_of, state_of
from .verdicts import FILE_MAX, TEXT_MAX, WHY_NOT, Checked, NotResolved, Resolved

SHOWN_WITH = ("changed", "settled", "waits")  # reasons that show what was recorded meanwhile
SETTLED = (*contradictions.SETTLED, *contradictions.AS_EFFECT, ACCEPTED)


def resolve(
    *,
    actor: Actor,
    subject_id: str,
    verdict: str,
    evidence: str,
    items: Any = None,
    attachments: Sequence[str] = (),
    lines: Sequence[int] = (),
    seen: int,
    correct: bool = False,
) -> Resolved | NotResolved:
    """Record a person's verdict (models.Verdict) with its evidence, and settle what it settles.

    `lines`: seqs of evidence lines about this subject in its run's stream; `attachments`: ids. `seen`: the
    number of the newest verdict that the person was shown (0: none). `correct`: it was shown as settled, and
    this says that this is wrong. Raises NotFound, NotAllowed.
    """
    draft = Draft(verdict, evidence, items, tuple(attachments), tuple(lines))
    return _resolve(actor, subject_id, draft, seen, correct)


@verb
def _resolve(
    actor: Actor, subject_id: str, draft: Draft, seen: int | None, correct: bool, by_two: bool = False
) -> Resolved | NotResolved:
    run, matter, row = _locked(actor, subject_id, "resolve")
    newest = Resolution.objects.filter(subject_id=subject_id).order_by("-number").first()
    why = _objection(run, matter, row, actor, draft, newest, seen, correct)
    if why:
        return NotResolved(why, newest if why in SHOWN_WITH else None)
    waits = by_two or draft.verdict == Verdict.CANNOT_TELL or _outweighed(matter, row)
    _end_waiting(run, row, actor, "another verdict was recorded")
    made = _insert(run, matter, row, actor, draft, newest)
    record(run, _line(made, row, "resolution.recorded", actor, _told(made, waits)))
    if not waits:
        _enforce(run, matter, row, made, actor)
    close.advance(run, actor.id)
    return Resolved(Resolution.objects.get(pk=made.pk), state_of(row), waits)


def _locked(actor: Actor, subject_id: str, right: str) -> tuple[Run, str, Any]:
    """The run, locked, and the subject as its row is now. Raises NotFound, NotAllowed."""
    run = lock_run(row_of(subject_id)[1].run_id)
    demand(actor, right, run)
    matter, row = row_of(subject_id)
    row.run = run
    return run, matter, row


def _objection(
    run: Run,
    matter: str,
    row: Any,
    actor: Actor,
    draft: Draft,
    newest: Resolution | None,
    seen: int | None,
    correct: bool,
) -> str:
    """Why this is not recorded: a key of WHY_NOT, or ""."""
    if actor.user is None or actor.via != "page":
        return "token"
    if seen is not None and seen != (newest.number if newest else 0):
        return "changed"
    if seen is None and newest is not None and _waits(newest):
        return "waits"
    if state_of(row) != UNKNOWN:
        why = _not_correctable(matter, row, actor, draft, correct)
        if why:
            return why
    return backing.objection(run, matter, row, actor, draft)


def _not_correctable(matter: str, row: Any, actor: Actor, draft: Draft, correct: bool) -> str:
    if state_of(row) not in SETTLED:
        return "not_unknown"
    if not correct:
        return "settled"
    if matter == Matter.COMPENSATION:
        return "no_correction"
    if draft.verdict in Verdict.values and verdict_moves.says_already(row, draft.verdict):
        return "same"
    first = _in_force(row.pk)
    if first is None or actor.user is None or verdict_moves.ground_of(matter, row) != Ground.DECIDED:
        return ""
    return "same_person" if first.person_id == actor.user.pk else ""


def _in_force(subject_id: str) -> Resolution | None:
    """The newest verdict that counts."""
    rows = Resolution.objects.filter(subject_id=subject_id, in_force_at__isnull=False)
    return rows.order_by("-number").first()


def _outweighed(matter: str, row: Any) -> bool:
    """It is settled by more than a person's word: to put that in doubt takes two people."""
    settled = state_of(row) in SETTLED
    return settled and verdict_moves.ground_of(matter, row) != Ground.DECIDED


def _waits(made: Resolution) -> bool:
    """Whether it waits for a second person."""
    return made.in_force_at is None and made.withdrawn_at is None


def _end_waiting(run: Run, row: Any, actor: Actor, why: str) -> None:
    """What waits for a second person waits no longer: whose it was, who ended it and why stand in a line."""
    rows = Resolution.objects.filter(subject_id=row.pk, in_force_at__isnull=True, withdrawn_at__isnull=True)
    lines = []
    for made in rows:
        told = {"by": f"user:{made.person_id}", **({"why": why} if why else {})}
        lines.append(_line(made, row, "resolution.withdrawn", actor, told))
    rows.update(withdrawn_at=Now(), withdrawn_by=actor.id, withdrawn_why=why)
    record(run, *lines)


def _insert(
    run: Run, matter: str, row: Any, actor: Actor, draft: Draft, newest: Resolution | None
) -> Resolution:
    assert actor.user is not None
    corrected = _in_force(row.pk) if state_of(row) != UNKNOWN else None
    return Resolution.objects.create(
        workspace_id=run.workspace_id,
        run=run,
        matter=matter,
        subject_id=row.pk,
        number=newest.number + 1 if newest else 1,
        verdict=draft.verdict,
        items=draft.items if draft.verdict == Verdict.PARTLY else None,
        evidence=words_in(draft.evidence)[:TEXT_MAX],
        attachments=list(dict.fromkeys(draft.attachments)),
        lines=sorted(set(draft.lines)),
        supersedes=corrected,
        person=actor.user,
    )


def _told(made: Resolution, waits: bool) -> dict[str, Any]:
    names = ("verdict", "items", "evidence", "attachments", "lines", "number")
    told = {name: getattr(made, name) for name in names}
    more = {"supersedes": made.supersedes_id, "waits": waits}
    return {name: value for name, value in (told | more).items() if value not in (None, "", [], False)}


def _line(made: Resolution, row: Any, kind: str, actor: Actor, told: dict[str, Any] | None = None) -> Line:
    named = {"resolution": made.pk, "matter": made.matter, "subject": made.subject_id}
    return Line(kind, actor.id, named | (told or {}), ground=Ground.DECIDED, effect_key=row.key)


def _enforce(run: Run, matter: str, row: Any, made: Resolution, actor: Actor) -> None:
    """The verdict counts from now on: what is settled is put in doubt first, and stays there if it stood on
    more than a person's word."""
    was, told = state_of(row), {"resolution": made.pk, "verdict": made.verdict}
    outweighed, lines = _outweighed(matter, row), list[Line]()
    if was != UNKNOWN:
        said = f"it was {was.lower().replace('_', ' ')}; a second person says: {made.verdict}"
        lines += verdict_moves.doubt(run, matter, row, actor, said, told)
    if not outweighed:
        lines += verdict_moves.apply(run, matter, row, made.verdict, made.items, actor, told)
    rows = Resolution.objects.filter(pk=made.pk)
    second = actor.user if actor.user is not None and actor.user.pk != made.person_id else None
    rows.update(in_force_at=Now(), settled_as=state_of(row), **({"second": second} if second else {}))
    record(run, *lines)
    if matter == Matter.EFFECT:
        contradictions.follow(run, was, row)


# a second person ------------------------------------------------------------------------------------------


@verb
def agree(*, actor: Actor, resolution_id: str) -> Resolved | NotResolved:
    """The second person's yes to a verdict that waits for one. Raises NotFound, NotAllowed."""
    subject_id = Resolution.objects.filter(pk=resolution_id).values_list("subject_id", flat=True).first()
    if subject_id is None:
        raise NotFound("resolution")
    run, matter, row = _locked(actor, subject_id, "approve")
    made = Resolution.objects.select_related("person").get(pk=resolution_id)
    why = _may_not_agree(run, row, made, actor)
    if why:
        return NotResolved(why)
    record(run, _line(made, row, "resolution.agreed", actor, {"by": f"user:{made.person_id}"}))
    _enforce(run, matter, row, made, actor)
    close.advance(run, actor.id)
    return Resolved(Resolution.objects.get(pk=made.pk), state_of(row))


def _may_not_agree(run: Run, row: Any, made: Resolution, actor: Actor) -> str:
    if actor.user is None or actor.via != "page":
        return "token"
    if not _waits(made):
        return "withdrawn"
    if made.person_id == actor.user.pk:
        return "same_person"
    if backing.is_own(run, actor):
        return "own_yes"
    if _has_moved(row, made):
        return "settled" if state_of(row) in SETTLED else "changed"
    if made.verdict == Verdict.DID_NOT:
        draft = Draft(made.verdict, made.evidence, None, made.attachments, made.lines)
        return backing.may_still_happen(run, row, draft)
    return ""


def _has_moved(row: Any, made: Resolution) -> bool:
    """Whether it became something else since the first person's word, so that this was said of another."""
    if state_of(row) == UNKNOWN:
        return row.unknown_since is None or row.unknown_since > made.recorded_at
    return state_of(row) not in SETTLED or row.settled_at is None or row.settled_at >= made.recorded_at


@verb
def withdraw(*, actor: Actor, resolution_id: str, why: str = "") -> Resolved | NotResolved:
    """Take back one's own verdict that waits for a second person. Raises NotFound, NotAllowed."""
    subject_id = Resolution.objects.filter(pk=resolution_id).values_list("subject_id", flat=True).first()
    if subject_id is None:
        raise NotFound("resolution")
    run, _, row = _locked(actor, subject_id, "resolve")
    made = Resolution.objects.get(pk=resolution_id)
    if actor.user is None or actor.via != "page":
        return NotResolved("token")
    if not _waits(made):
        return NotResolved("withdrawn")
    if made.person_id != actor.user.pk:
        return NotResolved("not_yours")
    _end_waiting(run, row, actor, words_in(why)[:200])
    return Resolved(Resolution.objects.get(pk=made.pk), state_of(row))


# several --------------------------------------------------------------------------------------------------


def resolve_many(
    *, actor: Actor, subject_ids: Sequence[str], verdict: str, evidence: str, file_name: str, content: bytes
) -> dict[str, Resolved | NotResolved]:
    """One verdict for each, on one export of the provider that all of them share; it counts when a second
    person agrees to it. What can't be found is answered as "not_found".
    """
    if not content or not subject_ids:
        return dict.fromkeys(subject_ids, NotResolved("export"))
    found: dict[str, Resolved | NotResolved] = {}
    shared = ""
    for subject_id in dict.fromkeys(subject_ids):
        try:
            if not shared:
                made = attach(
                    actor=actor, subject_id=subject_id, form="file", file_name=file_name, content=content
                )
                if isinstance(made, NotResolved):
                    return dict.fromkeys(subject_ids, made)
                shared = made.pk
            draft = Draft(verdict, evidence, attachments=(shared,), shared=shared)
            found[subject_id] = _resolve(actor, subject_id, draft, None, False, by_two=True)
        except NotFound:
            found[subject_id] = NotResolved("not_found")
    return found


def agree_many(*, actor: Actor, resolution_ids: Iterable[str]) -> dict[str, Resolved | NotResolved]:
    """The second person's yes to each."""
    found: dict[str, Resolved | NotResolved] = {}
    for resolution_id in dict.fromkeys(resolution_ids):
        try:
            found[resolution_id] = agree(actor=actor, resolution_id=resolution_id)
        except NotFound:
            found[resolution_id] = NotResolved("not_found")
    return found


__all__ = [
    "FILE_MAX",
    "TEXT_MAX",
    "WHY_NOT",
    "Checked",
    "NotResolved",
    "Resolved",
    "agree",
    "agree_many",
    "assign_many",
    "attach",
    "check_many",
    "check_now",
    "give_back",
    "resolve",
    "resolve_many",
    "take",
    "withdraw",
]
