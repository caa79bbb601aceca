"""Something unknown of each kind, with its run, its calls and what was said of it, for tests of verdicts."""

from __future__ import annotations

from typing import Any

from effects import resolve
from effects.models import Attachment, Resolution
from effects.resolve import NotResolved, Resolved
from effects.unknowns import row_of, state_of
from runs.access import Actor
from runs.evidence import Line, record
from runs.models import Run, StopRequest
from tests.worlds import (
    World,
    a_compensation,
    a_delivery,
    a_permit,
    a_run,
    a_step,
    an_effect,
    fresh,
    in_seconds,
    number,
)

MATTERS = ("effect", "delivery", "compensation")
LONG_AGO = -600
TEXT = "The statement of 29 November lists it."


def an_unknown(world: World, matter: str = "effect", run: Run | None = None, **fields: Any) -> Any:
    """Unknown for five minutes; its holder said ten minutes ago that its call was over, and no more.

    `permit`: how its call ended (REPORTED, LOST, OPEN); `owner`: of its run; the rest are fields of the row.
    """
    permit = fields.pop("permit", "REPORTED")
    run = run or a_run("UNKNOWN", world.workspace, owner=fields.pop("owner", None), cancel_version=2)
    step = a_step(run, "UNKNOWN", ends_with_effect=True)
    times = {"dispatched_at": in_seconds(LONG_AGO), "unknown_since": in_seconds(LONG_AGO / 2)}
    key = fields.pop("key", f"thing:{step.key}")
    ended = None if permit == "OPEN" else in_seconds(LONG_AGO)
    given = {"effect_key": key, "permit_until": in_seconds(LONG_AGO), "ended_at": ended}
    if matter == "delivery":
        called = a_permit(step, permit, boundary="deliver", **given)
        return a_delivery(run, "UNKNOWN", permit=called, key=key, attempt=1, **{**times, **fields})
    guard = "compensate" if matter == "compensation" else "ordinary"
    called = a_permit(step, permit, guard=guard, **given)
    more = {"permit": called, "key": key, "attempt": 1, **times, **fields}
    if matter == "effect":
        return an_effect(step, "UNKNOWN", why_unknown="the answer was lost", **more)
    original = an_effect(a_step(run, "SUCCEEDED"), "CONFIRMED", ground="reported")
    return a_compensation(original, "UNKNOWN", **more)


def a_stop(run: Run) -> StopRequest:
    """The open cancel of a run that came to rest."""
    stop: StopRequest = StopRequest.objects.create(
        workspace_id=run.workspace_id,
        run=run,
        scope="run",
        mode="cancel",
        number=number(),
        recorded_at=in_seconds(LONG_AGO),
        gate_at=in_seconds(LONG_AGO),
        fenced_at=in_seconds(LONG_AGO),
    )
    return stop


def settled(world: World, state: str, ground: str, matter: str = "effect", **fields: Any) -> Any:
    """As `an_unknown`, and known since a minute ago."""
    row = an_unknown(world, matter, **fields)
    name = "settlement" if matter == "effect" else "state"
    type(row).objects.filter(pk=row.pk).advance(
        {name: state, "ground": ground, "settled_at": in_seconds(-60)}
    )
    return again(row)


def again(row: Any) -> Any:
    return row_of(row.pk)[1]


def now(row: Any) -> str:
    """Where it stands."""
    return state_of(again(row))


def say(row: Any, by: Actor, verdict: str = "happened", **more: Any) -> Resolved | NotResolved:
    """A verdict by somebody who saw everything that there is."""
    newest = Resolution.objects.filter(subject_id=row.pk).order_by("-number").first()
    given = {"evidence": TEXT, "seen": newest.number if newest else 0, **more}
    if verdict == "partly happened":
        given.setdefault("items", ["one of two"])
    return resolve.resolve(actor=by, subject_id=row.pk, verdict=verdict, **given)


def said(answer: Any) -> str:
    """The reason why not, or the state afterwards."""
    return answer.reason if isinstance(answer, NotResolved) else answer.state


def recorded(row: Any, by: Actor, verdict: str = "happened", **more: Any) -> Resolution:
    answer = say(row, by, verdict, **more)
    assert isinstance(answer, Resolved), answer
    return answer.resolution


def attached(row: Any, by: Actor, form: str = "reference", text: str = "ch_1") -> Attachment:
    made = resolve.attach(actor=by, subject_id=row.pk, form=form, text=text)
    assert isinstance(made, Attachment), made
    return made


def looked_up(row: Any, answer: str, ground: str = "looked up", **more: Any) -> int:
    """A line in which the provider says so, asked just now of the newest attempt; its seq."""
    run = fresh(row.run)
    asked = {"asked_at": in_seconds(0).isoformat(), "attempt": row.attempt}
    told = {"answer": answer, **asked, **more}
    return record(run, Line("effect.looked_up", "system", told, ground=ground, effect_key=row.key))
