"""Questions 4 and 5: will the system do anything more, and what a person can do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dashboard import words
from effects.models import Settlement
from runs.models import PermitState, RunStatus, StepStatus

from . import decisions, deliveries, repairs
from .model import Claim
from .providers import jobs_go_on
from .sentences import NO_RETRY, RETRY_AFTER, name_of, next_look_up, quoted, unobserved
from .teller import ENDS, Teller, say

DRAINING = (RunStatus.PAUSING, RunStatus.CANCELLING)
SAID = 20  # effects that get a sentence of their own here; the others are counted


def will_it_do_more(t: Teller) -> Iterator[Claim]:
    doing = [*_as_a_run(t), *_retries(t), *_look_ups(t), *jobs_go_on(t)]
    doing += [*deliveries.queued(t), *decisions.waits(t), *repairs.may_still(t)]
    abandoned = t.run.status == RunStatus.ABANDONED
    if abandoned:
        seqs = t.rows.seqs("run.abandoned")
        yield say("We no longer wait or act. Outside work may continue.", *seqs, lead="No.")
    elif not doing:
        yield say("No further action is scheduled.", *t.rows.seqs("run.unknown", *ENDS), lead="No.")
    for number, claim in enumerate(doing):
        yield say(
            claim.text,
            *claim.lines,
            lead="" if number or abandoned else "Yes.",
            stress=claim.stress,
            effect=claim.effect,
        )
    yield from _not_looked_up(t)
    if t.run.ungateable:
        yield say(f"Allstop does not govern all of this run.{unobserved(t.run.ungateable)}")


def _as_a_run(t: Teller) -> Iterator[Claim]:
    status, stop = t.run.status, t.rows.in_force
    if t.rows.held_back:
        yield say(words.HELD_BACK.sentence, *t.rows.seqs("run.admitted"))
    elif status == RunStatus.ACTIVE:
        resumed = t.rows.seqs("run.resumed")[-1:]
        yield say("The run is active and may start new work.", *(resumed or t.rows.seqs("run.admitted")))
    elif status == RunStatus.PAUSED:
        yield say("The run is held and can be resumed by a new decision.", *t.rows.seqs("run.paused"))
    elif status in DRAINING and stop is not None:
        until = f"until {t.at(stop.deadline_at)}"
        then = (
            "leases are fenced and the run is paused" if status == RunStatus.PAUSING else "the stop times out"
        )
        yield say(f"It waits for work in flight {until}; then {then}.", t.rows.line_of(stop))
    elif status == RunStatus.CANCELLING_TIMEOUT:
        text = "It goes on waiting: work in flight ends when its holder reports, or when its lease runs out."
        yield say(text, *t.rows.seqs("stop.timed_out"))
    opened = t.rows.count("open")
    if opened and status != RunStatus.ACTIVE:
        permits = words.count(opened, "permit is", "permits are")
        begun = f"what was begun under {'it' if opened == 1 else 'them'} may still complete"
        yield say(f"{permits} still open: {begun}.", *t.rows.seqs("stop.fenced"))


def _retries(t: Teller) -> Iterator[Claim]:
    number = t.rows.count("step", StepStatus.RETRY_WAIT)
    if not number:
        return
    first = t.at(t.rows.tally["retry_at"].get(StepStatus.RETRY_WAIT))
    text = f"A retry is due at {first}" if number == 1 else f"{number} retries are due, the first at {first}"
    held = t.run.status != RunStatus.ACTIVE
    how = "only after a resume" if held else "the gate is asked again then, and the same key is sent"
    yield say(f"{text}: {how}.", t.rows.count("retry_line"))


def _retry_says(t: Teller, effect: Any) -> str:
    """An unknown effect is never sent again; one that a look-up denies may be, where its kind says so."""
    again = t.run.status == RunStatus.ACTIVE and effect.attempt <= len(effect.again or [])
    return RETRY_AFTER if again else NO_RETRY


def _look_ups(t: Teller) -> Iterator[Claim]:
    planned = [e for e in t.rows.settled_as(Settlement.UNKNOWN) if e.next_check_at]
    for effect in planned[:SAID]:
        text = next_look_up(effect, name_of(effect), t.clock, " again")
        yield say(text, effect.looked or effect.line, stress=_retry_says(t, effect), effect=effect.pk)
    left = t.rows.count("checking") - len(planned[:SAID])
    if left > 0:
        text = f"It will look up {left} more; their times stand in the manifest."
        yield say(text, stress="It will not retry them.")


def _not_looked_up(t: Teller) -> Iterator[Claim]:
    alone = [e for e in t.rows.settled_as(Settlement.UNKNOWN) if not e.next_check_at]
    for effect in alone[:SAID]:
        why = "the look-ups have ended" if effect.check_until else "its kind has none"
        why = "the run was abandoned" if t.run.status == RunStatus.ABANDONED else why
        text = f"No further check of {name_of(effect)}: {why}. A later report still counts as evidence."
        yield say(text, effect.looked or effect.line, stress=NO_RETRY, effect=effect.pk)
    left = t.rows.count("effect", Settlement.UNKNOWN) - t.rows.count("checking") - len(alone[:SAID])
    if left > 0:
        text = f"The same holds for {left} more, which the manifest lists."
        yield say(text, stress="It will not retry them.")


def what_a_person_can_do(t: Teller) -> Iterator[Claim]:
    claims = [*_settle(t), *deliveries.ask(t), *_contradictions(t), *_parts(t), *_again(t)]
    claims += [*decisions.decide(t), *_workers(t), *repairs.ask(t), *_go_on(t)]
    yield from claims or [say("Nothing here needs a person.")]


def _again(t: Teller) -> Iterator[Claim]:
    """Failed steps of which nothing happened, while the run may go on."""
    number = t.rows.count("again")
    if number and t.run.status == RunStatus.ACTIVE:
        steps = words.count(number, "failed step")
        yield say(
            f"Decide whether to try {steps} again: nothing of {'it' if number == 1 else 'them'} happened."
        )


def _settle(t: Teller) -> Iterator[Claim]:
    unknown = t.rows.settled_as(Settlement.UNKNOWN)[:SAID]
    for effect in unknown:
        text = (
            f"Ask the provider for its own record of {name_of(effect)}, under the key {quoted(effect.key)}."
        )
        yield say(text, effect.line, effect=effect.pk)
    left = t.rows.count("effect", Settlement.UNKNOWN) - len(unknown)
    if left > 0:
        yield say(f"The same for {left} more, which the manifest lists.")


def _contradictions(t: Teller) -> Iterator[Claim]:
    for effect in [e for e in t.rows.effects if e.contradicted][:SAID]:
        yield say(
            f"Compare the evidence of {name_of(effect)}: it disagrees.",
            effect.sent,
            effect.line,
            effect=effect.pk,
        )


def _parts(t: Teller) -> Iterator[Claim]:
    for effect in t.rows.settled_as(Settlement.PARTIAL)[:SAID]:
        text = f"Decide about the rest of {name_of(effect)}: nothing here will complete it."
        yield say(text, effect.line, effect=effect.pk)


def _workers(t: Teller) -> Iterator[Claim]:
    """Who still holds work: we refuse its next boundary, we don't end its process."""
    flying = [entry for entry in t.rows.in_flight if entry.permit.state == PermitState.OPEN]
    heard = {name: at for name, _, at in t.rows.workers}
    for entry in flying[:SAID]:
        permit = entry.permit
        last = f", last heard {t.at(heard[permit.worker])}" if permit.worker in heard else ""
        since = f"it holds {quoted(permit.step.name)} since {t.at(permit.opened_at)}{last}"
        refused = "It will be refused at its next gate; its process is not ours to end."
        text = f"Look at worker {quoted(permit.worker)}: {since}. {refused}"
        yield say(text, *t.rows.seqs("stop.fenced"))


def _go_on(t: Teller) -> Iterator[Claim]:
    if t.run.status == RunStatus.ACTIVE:
        yield say("Stop the run, if no new work is wanted.")
    elif t.run.status == RunStatus.PAUSED:
        yield say("Resume the run by a decision of its own, once no effect must wait; or stop it for good.")
    elif t.rows.in_force and t.run.status in (RunStatus.CANCELLED, RunStatus.UNKNOWN, RunStatus.ABANDONED):
        yield say("Start a new run from this evidence, if the work is still wanted: this one does not go on.")
