"""What the report says of compensations: what they came to, what they may still do, what people are asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dashboard import repair_words, words
from effects.models import CompensationState
from runs.models import RunStatus, StepStatus

from .mending import MOST
from .model import Claim, RepairRow, Repairs
from .rows import CITED
from .sentences import is_planned, name, name_of, names_of, next_look_up, short
from .teller import Teller, say

STANDS = "The original effect stays what it was."
SAME = (
    *("op_class", "state", "number", "attempt", "next_check_at", "ground", "effect_key", "proposed_by"),
    *("needed", "decided_by", "line"),
)
SAID = 20  # plans that get a sentence with a link each


def name_of_repair(row: Any) -> str:
    """“Refund of €120.00 to Nordhaven AG”, once."""
    return name(row.title, row.amount, row.target)


def original(row: Any) -> str:
    return name(row.effect_title, row.effect_amount, row.effect_target)


def _those(t: Teller, *states: str) -> list[Any]:
    return [row for row in t.rows.repairs.rows if row.state in states]


def _lead(row: Any) -> str:
    return f"{name_of_repair(row)}, a compensation of {original(row)}:"


def _approved(t: Teller, row: Any) -> str:
    """How many people approved it; their names stand in its table."""
    number = len(t.rows.repairs.approved_by.get(row.pk, ()))
    return f" Approved by {words.count(number, 'person', 'people')} before it was sent." if number else ""


# questions 2 and 3 --------------------------------------------------------------------------------


def came_to(t: Teller) -> Iterator[Claim]:
    """Question 2: verified ones, failed ones, and those that were not sent."""
    for row in _those(t, CompensationState.VERIFIED, CompensationState.FAILED):
        stage = stage_of(row)
        how = _ground(row) if stage == "verified" else repair_words.part(row.items)
        said = {
            "verified": f"verified {t.at(row.settled_at)}, {how}. {STANDS}",
            "partly": f"failed in part, known {t.at(row.settled_at)}. {how} The rest of the original stands.",
            "failed": f"failed, known {t.at(row.settled_at)}: it did not happen. The original effect stands.",
        }[stage]
        text = " ".join(f"{said}{_approved(t, row)}".split())
        yield say(text, row.sent, row.line, lead=_lead(row), effect=row.pk)
    yield from _not_sent(t)


def _not_sent(t: Teller) -> Iterator[Claim]:
    for row in _those(t, "REJECTED", "EXPIRED", "VOID", "NOT_NEEDED"):
        word = repair_words.WORDS[stage_of(row)][0].lower()
        why = f" ({short(row.reason)})" if row.reason else ""
        was = "; an attempt of it had failed" if row.state == "NOT_NEEDED" and row.dispatched_at else ""
        sent = "" if row.dispatched_at else " It was not sent."
        yield say(f"{word}{why}{was}.{sent}", row.line, lead=_lead(row), effect=row.pk)


def _ground(row: Any) -> str:
    reference = f", reference {short(row.provider_ref)}" if row.provider_ref else ""
    return f"{repair_words.GROUND.get(row.ground, 'as recorded')}{reference}"


def uncertain(t: Teller) -> Iterator[Claim]:
    """Question 3: sent, and not verified. Reported done is not verified."""
    for row in _those(t, "DISPATCHED", "UNKNOWN", "ACCEPTED_UNKNOWN"):
        _, _, sentence = repair_words.WORDS[stage_of(row)]
        why = f" Why unknown: “{short(row.why_unknown)}”." if row.why_unknown else ""
        asked = f" Looked up {words.count(row.checks, 'time')}." if row.checks else ""
        text = f"Sent {t.at(row.dispatched_at)}. {sentence}{why}{asked}{_approved(t, row)}"
        yield say(text, row.sent, row.line, lead=_lead(row), effect=row.pk)


# question 4 ---------------------------------------------------------------------------------------


def may_still(t: Teller) -> Iterator[Claim]:
    """What may still be sent, or is still asked about."""
    for row in _those(t, CompensationState.APPROVED):
        halt = t.rows.repairs.halt_of(row)
        text = f"{name_of_repair(row)} is approved and queued: it is sent once the gate has looked again."
        if halt is not None:
            text = (
                f"{name_of_repair(row)} is approved, and halted by stop #{halt.stop.number}: it is not sent"
            )
            text += " until a reviewer lifts that."
        yield say(text, row.line, effect=row.pk)
    for row in _those(t, CompensationState.PROPOSED):
        given = len(t.rows.repairs.approved_by.get(row.pk, ()))
        text = f"{name_of_repair(row)} waits for people ({given} of {row.needed or 1} have approved)"
        yield say(f"{text} until {t.at(row.expires_at)}. It is not sent before.", row.line, effect=row.pk)
    for row in _those(t, "DISPATCHED", "UNKNOWN"):
        yield from _asked_again(t, row)


def _asked_again(t: Teller, row: Any) -> Iterator[Claim]:
    if t.run.status == RunStatus.ABANDONED or row.next_check_at is None:
        return
    text = next_look_up(row, name_of_repair(row), t.clock)
    yield say(f"{text} It is not sent again.", row.line, effect=row.pk)


# question 5 ---------------------------------------------------------------------------------------


def ask(t: Teller) -> Iterator[Claim]:
    """What people are asked: decide, lift, see what failed, propose what was declared."""
    for row in _those(t, CompensationState.PROPOSED):
        text = f"Decide about {name_of_repair(row)}: approve or reject it under Reviews."
        yield _act(say(text, row.line), "review", row.review)
    for halt in {
        halt.pk: halt for row in _those(t, "APPROVED") if (halt := t.rows.repairs.halt_of(row))
    }.values():
        text = f"Decide whether compensations may start again: stop #{halt.stop.number} halted them."
        yield _act(say(text), "lift", halt.pk)
    yield from _failed(t)
    for row in _those(t, CompensationState.UNKNOWN):
        text = (
            f"Ask the provider for its own record of {name_of_repair(row)}, under the key “{short(row.key)}”."
        )
        yield say(text, row.line, effect=row.pk)
    yield from _plans(t)


def _failed(t: Teller) -> Iterator[Claim]:
    newest = {row.effect_id: row.number for row in t.rows.repairs.rows}
    for row in _those(t, CompensationState.FAILED):
        if row.number == newest[row.effect_id]:
            text = f"Decide what follows {name_of_repair(row)}, which failed: a new one, or none needed."
            yield _act(say(text, row.line), "review", row.review)


def _plans(t: Teller) -> Iterator[Claim]:
    """Plans that were declared before the effect, and not proposed yet. None is carried out by itself."""
    if t.stop is None:
        return
    known = {row.effect_id for row in t.rows.repairs.rows}
    done = [e for e in t.rows.settled_as("CONFIRMED", "PARTIAL") if is_planned(e) and e.pk not in known]
    total = t.rows.count("planned")
    if not total:
        return
    named = f"{words.count(total, 'effect')} had a corrective action declared ({names_of(done, total)})"
    text = f"Decide whether to lessen what happened: {named}."
    yield say(
        f"{text} It would be a new action of its own; none is scheduled.", *[e.line for e in done[:CITED]]
    )
    if t.run.status in (RunStatus.PAUSED, RunStatus.CANCELLED, RunStatus.UNKNOWN):
        for effect in done[:SAID]:
            text = f"Propose what was declared with {name_of(effect)}: people decide before it is sent."
            yield _act(say(text, effect.line), "propose", effect.pk)


def _act(claim: Claim, action: str, about: str | None) -> Claim:
    return replace(claim, action=action, about=about) if about else claim


# its table ----------------------------------------------------------------------------------------


def table(t: Teller) -> Repairs:
    """All compensations with what they came to, failed and unverified ones as that."""
    rows, total = t.rows.repairs.rows, t.rows.count("repair")
    says = f"The oldest {MOST} of {total}; the API lists all." if total > len(rows) else ""
    counts = {str(state): int(number) for state, number in t.rows.tally["repair"].items()}
    return Repairs(total, says, counts, [_row(t, row) for row in rows])


def _row(t: Teller, row: Any) -> RepairRow:
    halted = row.state in ("PROPOSED", "APPROVED") and t.rows.repairs.halt_of(row) is not None
    stage = stage_of(row, halted=halted)
    word, _, _ = repair_words.WORDS[stage]
    given = t.rows.repairs.approved_by.get(row.pk, [])
    same: dict[str, Any] = {one: getattr(row, one) for one in SAME}
    same |= {one: words.clean(getattr(row, one)) for one in ("key", "target", "amount", "provider_ref")}
    return RepairRow(
        **same,
        id=row.pk,
        name=words.clean(row.title),
        kind=words.clean(row.kind_name),
        stage=stage,
        stands=f"{word}, {len(given)} of {row.needed}" if stage == "waiting" and row.needed else word,
        says=_says(t, row, stage),
        halted=halted,
        effect=row.effect_id,
        effect_name=words.clean(row.effect_title),
        approved_by=given,
        reason=words.clean(row.reason),
        review=row.review or "",
    )


def _says(t: Teller, row: Any, stage: str) -> str:
    at = row.settled_at or row.unknown_since or row.dispatched_at or row.decided_at or row.proposed_at
    by = "A reviewer"
    sentence = repair_words.WORDS[stage][2].format(ground=_ground(row), by=by)
    more = repair_words.part(row.items) if stage == "partly" else ""
    return " ".join(part for part in (sentence, more, t.at(at)) if part)


def stage_of(row: Any, *, halted: bool = False) -> str:
    """Where it stands, from its row, as pages say it."""
    reported = row.permit_state == "REPORTED"
    if row.state == "FAILED":
        return "partly" if row.items or row.step_status == StepStatus.PARTIAL else "failed"
    return repair_words.stage_by(row.state, reported=reported, halted=halted)
