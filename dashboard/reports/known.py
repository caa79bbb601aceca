"""Questions 2 and 3: what had already completed, and what is uncertain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dashboard import words
from effects.models import Settlement
from runs.models import OperationClass

from . import decisions, deliveries, repairs, turns
from .model import Claim
from .providers import asked, called_back, jobs_over, not_asked_of
from .rows import CITED
from .sentences import GROUND, NOT_PROOF, classes, look_up_says, name_of, names_of, part, quoted, reference
from .teller import Teller, say


def what_had_completed(t: Teller) -> Iterator[Claim]:
    done = sorted(
        not_asked_of([*t.rows.settled_as(Settlement.CONFIRMED), *t.rows.settled_as(Settlement.PARTIAL)]),
        key=lambda e: str(e.pk),
    )
    for effect in done:
        yield _happened(t, effect)
    if not done:
        yield say("No outside effect is known to have happened.")
    yield from _did_not_happen(t)
    yield from _duplicates(t)
    yield from asked(t)
    yield from decisions.used(t)
    yield from repairs.came_to(t)
    yield from deliveries.handed_over(t)
    yield from _begun_inside(t)
    yield from turns.spent(t)
    yield from turns.cut_off(t)


def _happened(t: Teller, effect: Any) -> Claim:
    whole = effect.settlement == Settlement.CONFIRMED
    word = "accepted by the provider" if effect.op_class == OperationClass.EXTERNAL_JOB else "confirmed"
    how = f"{GROUND.get(effect.ground, '')}{reference(effect)}"
    text = f"{word if whole else 'partly done, recorded'} {t.at(effect.settled_at)} {how}.{part(effect)}"
    text += jobs_over(effect, t.at(effect.job_at)) + called_back(effect)
    text += _after_the_stop(t, effect) + _seen_twice(effect)
    return say(text, effect.line, lead=f"{name_of(effect)}:", effect=effect.pk)


def _after_the_stop(t: Teller, effect: Any) -> str:
    """Known only after the stop, by line numbers: it was in flight then."""
    if not t.stop or not effect.line or effect.line < t.rows.effective_line:
        return ""
    if (effect.sent or 0) > t.rows.effective_line:
        return " It was dispatched after the stop."
    return " Its permit was given before the stop; that it happened became known after it."


def _duplicates(t: Teller) -> Iterator[Claim]:
    """What was counted, never an estimate of the rest."""
    text = t.rows.duplicates.sentence
    if text:
        seen = [effect.looked or effect.line for effect in t.rows.effects if effect.counted is not None]
        yield say(f"{text[0].upper()}{text[1:]}.", *seen[:CITED])


def _seen_twice(effect: Any) -> str:
    if effect.seen_twice < 2:
        return ""
    return (
        f" The provider holds {effect.seen_twice} objects under its key: it may have happened more than once."
    )


def _did_not_happen(t: Teller) -> Iterator[Claim]:
    denied = t.rows.settled_as(Settlement.NOT_APPLIED)
    effects = not_asked_of(denied)
    if effects:
        total = t.rows.count("effect", Settlement.NOT_APPLIED) - len(denied) + len(effects)
        were = words.count(total, "dispatched effect is", "dispatched effects are")
        text = f"{were} known not to have happened: {names_of(effects, total)}."
        yield say(text, *[e.line for e in effects[:CITED]])


def _begun_inside(t: Teller) -> Iterator[Claim]:
    begun = classes(t.rows.tally["begun"], OperationClass.MODEL_TURN, OperationClass.READ)
    if begun:
        yield say(f"Also begun: {begun}. They change nothing outside; what they cost is spent.")


def what_is_uncertain(t: Teller) -> Iterator[Claim]:
    claims = [
        *(_unknown(t, effect) for effect in t.rows.settled_as(Settlement.UNKNOWN)),
        *(_still_flying(t, effect) for effect in t.rows.settled_as(Settlement.DISPATCHED)),
        *(_accepted(effect) for effect in t.rows.settled_as(Settlement.ACCEPTED_UNKNOWN)),
        *_uncertain_inside(t),
        *_missing(t),
        *repairs.uncertain(t),
    ]
    yield from claims or [say("No effect is uncertain.", *t.rows.seqs("run.cancelled"))]
    yield from deliveries.unknown(t)


def _unknown(t: Teller, effect: Any) -> Claim:
    looked = t.rows.lines.get(effect.looked)
    why = f" Why unknown: {quoted(effect.why_unknown)}." if effect.why_unknown else ""
    text = f"Dispatched {t.at(effect.dispatched_at)}, not confirmed.{why}"
    text += look_up_says(effect, looked.body if looked else None)
    if effect.contradicted:
        text += " Pieces of evidence contradict each other; all of them are kept."
    lines = (effect.sent, effect.looked, effect.line)
    return say(text, *lines, lead=f"{name_of(effect)}.", stress=NOT_PROOF, effect=effect.pk)


def _still_flying(t: Teller, effect: Any) -> Claim:
    text = (
        f"In flight since {t.at(effect.dispatched_at)}: its holder has not reported. It may still complete."
    )
    return say(text, effect.sent, effect.line, lead=f"{name_of(effect)}.", effect=effect.pk)


def _accepted(effect: Any) -> Claim:
    text = "Two people accepted that it cannot be determined."
    lines = (effect.sent, effect.looked, effect.line)
    return say(text, *lines, lead=f"{name_of(effect)}.", effect=effect.pk)


def _missing(t: Teller) -> Iterator[Claim]:
    """Stops, dispatches and reports of that time: nobody here knows of them."""
    if t.rows.missing:
        yield say(t.rows.missing, *t.rows.seqs("run.restored"))


def _uncertain_inside(t: Teller) -> Iterator[Claim]:
    lost = classes(t.rows.tally["lost"], OperationClass.MODEL_TURN, OperationClass.READ)
    if lost:
        yield say(
            f"Lost with their worker: {lost}. What they cost is not reported.", *t.rows.seqs("permit.lost")
        )
    unknown = t.rows.count("unexplained")
    if unknown:
        text = f"How {words.count(unknown, 'step')} ended is unknown."
        yield say(text, t.rows.count("unexplained_first"))
