"""Two claims, two stops, two ends, two keys: what meets at one row ends one way, and both sides are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from effects import ends, intents
from effects.drain import drain_run
from effects.intents import EffectKeyReused
from effects.models import Effect
from runs import gate
from runs.guard import Known, Opened, Refusal
from runs.models import InFlight, Permit, Press, Run, Step, StopRequest
from runs.models import Refusal as RefusalRow
from runs.stops import StopAnswer
from tests.races import unsafe
from tests.races.checker import verdict
from tests.races.sides import sides, together
from tests.worlds import World, a_step, fresh, in_seconds, intention, kinds_of, lapse

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


# --- Two claims -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I6")
def test_of_two_workers_that_claim_one_step_one_gets_it() -> None:
    world = World()
    step = a_step(world.run())
    ask = {name: world.ask(step.run, step_id=step.pk, worker=name) for name in ("w-1", "w-2")}
    with sides() as make:
        first = make("first", lambda: gate.claim(ask["w-1"]), hold="COMMIT")
        first.stands()
        second = make("second", lambda: gate.claim(ask["w-2"]))
        assert second.waits_for(first)
        claimed, refusal = first.result(), second.result()
    assert isinstance(claimed, Step)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "lost_claim"
    assert (fresh(step).worker, fresh(step).claim_token, fresh(step).attempt) == (
        "w-1",
        claimed.claim_token,
        1,
    )


@pytest.mark.invariant("I6")
def test_of_eight_workers_that_claim_twenty_steps_each_step_has_one_owner() -> None:
    world = World()
    run = world.run()
    steps = [a_step(run) for _ in range(20)]

    def claim_all(name: str) -> list[str]:
        answers = [gate.claim(world.ask(run, step_id=step.pk, worker=name)) for step in steps]
        return [answer.pk for answer in answers if isinstance(answer, Step)]

    won = together([partial(claim_all, f"w-{n}") for n in range(8)])
    taken = Counter(pk for mine in won if isinstance(mine, list) for pk in mine)
    assert len(won) == 8
    assert taken == Counter(step.pk for step in steps)
    refused = RefusalRow.objects.values_list("count", flat=True)
    assert sum(refused) == 7 * 20


@pytest.mark.only("postgresql")
def test_a_joined_filter_tells_both_workers_that_they_have_it() -> None:
    """The control: the natural line of Django, on which the machine puts a refusal."""
    world = World()
    step = a_step(world.run())
    with sides() as make:
        first = make("first", lambda: unsafe.joined_claim(step.run, step), hold="COMMIT")
        first.stands()
        second = make("second", lambda: unsafe.joined_claim(step.run, step))
        assert second.waits_for(first)
        assert [first.result(), second.result()] == [1, 1]


@pytest.mark.only("postgresql")
def test_a_joined_filter_dispatches_what_was_withheld() -> None:
    """The control: a step that was withheld while the UPDATE waited is overwritten."""
    world = World()
    step = world.claimed(world.run())

    def withhold() -> int:
        with transaction.atomic():
            return int(Step.withhold(Step.objects.filter(pk=step.pk)))

    with sides() as make:
        first = make("first", withhold, hold="COMMIT")
        first.stands()
        second = make("second", lambda: unsafe.joined_dispatch(step.run, step))
        assert second.waits_for(first)
        assert [first.result(), second.result()] == [1, 1]
    assert fresh(step).status == "DISPATCHED"


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I5")
def test_a_move_waits_and_is_refused_by_what_it_finds_after_the_wait() -> None:
    """The same meeting, through the machine: its own-row condition is checked again."""
    world = World()
    step = world.claimed(world.run())

    def move(arrow: Callable[..., int], *arguments: Any) -> int:
        with transaction.atomic():
            return arrow(Step.objects.filter(pk=step.pk), *arguments)

    with sides() as make:
        first = make("first", lambda: move(Step.withhold), hold="COMMIT")
        first.stands()
        second = make("second", lambda: move(Step.dispatch, in_seconds(30)))
        assert second.waits_for(first)
        assert [first.result(), second.result()] == [1, 0]
    assert fresh(step).status == "WITHHELD"


# --- Two stops --------------------------------------------------------------------------------------------


@pytest.mark.invariant("I4")
def test_fifty_presses_with_one_key_are_one_stop_one_press_and_one_version() -> None:
    world = World()
    run = world.run()
    opened = world.opened(run)
    answers = together([lambda: world.stop(run, key="one key")] * 50)
    assert [type(answer) for answer in answers] == [StopAnswer] * 50
    told = [answer for answer in answers if isinstance(answer, StopAnswer)]
    assert {answer.press.pk for answer in told} == {Press.objects.get().pk}
    assert Counter(answer.repeated for answer in told) == {False: 1, True: 49}
    assert (StopRequest.objects.count(), InFlight.objects.get().permit_id) == (1, opened.permit.pk)
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 2)
    assert kinds_of(run).count("stop.acknowledged") == 1


@pytest.mark.invariant("I4")
def test_presses_of_many_people_at_once_are_one_stop_that_keeps_each_of_them() -> None:
    world = World()
    run = world.run()
    actors = [world.alice, world.bob, world.carol, world.agent] * 5
    answers = together([partial(world.stop, run, by=actor) for actor in actors])
    words = Counter(answer.answer for answer in answers if isinstance(answer, StopAnswer))
    assert words == {"recorded": 1, "joined": 19}
    assert (StopRequest.objects.count(), Press.objects.count(), fresh(run).cancel_version) == (1, 20, 2)


@pytest.mark.invariant("I4")
def test_presses_by_key_before_the_run_exists_are_one_waiting_stop() -> None:
    world = World()
    answers = together([lambda: world.stop_key("nightly-43")] * 12)
    assert Counter(answer.answer for answer in answers if isinstance(answer, StopAnswer)) == {"waiting": 12}
    assert (StopRequest.objects.count(), Press.objects.count()) == (1, 12)


def test_stops_of_many_runs_at_once_are_numbered_without_a_gap() -> None:
    world = World()
    runs = [world.run(f"run-{n}") for n in range(12)]
    answers = together([partial(world.stop, run) for run in runs])
    assert Counter(answer.answer for answer in answers if isinstance(answer, StopAnswer)) == {"recorded": 12}
    assert sorted(StopRequest.objects.values_list("number", flat=True)) == list(range(1, 13))


# --- A stop and an end ------------------------------------------------------------------------------------


def complete(world: World, run: Run) -> Any:
    return ends.complete(actor=world.agent, run_id=run.pk, seen=1)


def test_a_completion_that_has_begun_is_waited_for_and_the_stop_says_finished() -> None:
    world = World()
    run = world.run()
    with sides() as make:
        ending = make("runtime", lambda: complete(world, run), hold="COMMIT")
        ending.stands()
        stopper = make("stop", lambda: world.stop(run))
        assert stopper.waits_for(ending)
        assert isinstance(ending.result(), Run)
        assert stopper.result().answer == "finished"
    assert (fresh(run).status, fresh(run).cancel_version) == ("COMPLETED", 1)


def test_a_stop_that_has_begun_is_waited_for_and_the_completion_is_refused() -> None:
    world = World()
    run = world.run()
    with sides() as make:
        stopper = make("stop", lambda: world.stop(run), hold="COMMIT")
        stopper.stands()
        ending = make("runtime", lambda: complete(world, run))
        assert ending.waits_for(stopper)
        assert stopper.result().answer == "recorded"
        refusal = ending.result()
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.current_version, fresh(run).status) == ("stopped", 2, "CANCELLING")


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_stop_and_an_end_at_the_same_moment_end_one_way_and_both_are_told(end: str) -> None:
    world = World()
    seen: Counter[str] = Counter()
    for n in range(15):
        run = world.run(f"run-{n}")
        finish: dict[str, Callable[[], Any]] = {
            "complete": partial(complete, world, run),
            "fail": partial(ends.fail, actor=world.agent, run_id=run.pk),
        }
        ended, stopped = together([finish[end], partial(world.stop, run)])
        assert isinstance(stopped, StopAnswer)
        status = fresh(run).status
        if isinstance(ended, Refusal):
            assert (status, stopped.answer) == ("CANCELLING", "recorded")
        else:
            assert (status, stopped.answer) == ("COMPLETED" if end == "complete" else "FAILED", "finished")
        seen[status] += 1
    assert seen.total() == 15


@pytest.mark.invariant("I2")
def test_a_report_and_a_stop_at_the_same_moment_leave_the_permit_ended_or_listed() -> None:
    world = World()
    for n in range(15):
        run = world.run(f"run-{n}")
        opened = world.opened(run)
        together([partial(world.report, opened, "applied"), partial(world.stop, run)])
        drain_run(run.pk)
        assert fresh(run).status == "CANCELLED"
        assert Effect.objects.get(run=run).settlement == "CONFIRMED"
    found = verdict(world.workspace.pk)
    assert (found.unlisted, found.listed + found.ended_before, found.stops) == (0, 15, 15)


def test_two_controllers_that_drain_one_run_lose_its_lease_once() -> None:
    world = World()
    run = world.run()
    opened = world.opened(run)
    world.stop(run)
    lapse(opened.permit, opened.step)
    assert together([lambda: drain_run(run.pk)] * 4) == ["UNKNOWN"] * 4
    counts = Counter(kinds_of(run))
    assert [counts[kind] for kind in ("permit.lost", "effect.unknown", "run.unknown", "stop.quiet")] == [
        1
    ] * 4


# --- One effect key ---------------------------------------------------------------------------------------


@pytest.mark.invariant("I6")
def test_the_same_key_at_the_same_moment_is_one_effect_and_the_second_must_wait() -> None:
    world = World()
    run = world.run()
    with sides() as make:
        first = make(
            "first", lambda: intents.dispatch(world.ask(run, step_key="a"), intention()), hold="COMMIT"
        )
        first.stands()
        second = make("second", lambda: intents.dispatch(world.ask(run, step_key="b"), intention()))
        assert second.waits_for(first)
        opened, known = first.result(), second.result()
    assert isinstance(opened, Opened)
    assert isinstance(known, Known)
    assert (known.answer, known.subject.pk) == ("must_wait", opened.subject.pk)
    assert (Effect.objects.count(), Permit.objects.count()) == (1, 1)


@pytest.mark.invariant("I6")
def test_the_same_key_with_other_bytes_at_the_same_moment_is_told_so() -> None:
    world = World()
    run = world.run()
    other = intention(body=b'{"amount": 101}')
    with sides() as make:
        first = make(
            "first", lambda: intents.dispatch(world.ask(run, step_key="a"), intention()), hold="COMMIT"
        )
        first.stands()
        second = make("second", lambda: intents.dispatch(world.ask(run, step_key="a"), other))
        assert second.waits_for(first)
        assert isinstance(first.result(), Opened)
        with pytest.raises(EffectKeyReused):
            second.result()
    assert (Effect.objects.count(), Permit.objects.count()) == (1, 1)


@pytest.mark.invariant("I6")
def test_a_redelivery_to_five_workers_opens_one_permit() -> None:
    world = World()
    run = world.run()
    effect = intents.declare(world.ask(run, step_key="pay"), intention())
    assert isinstance(effect, Effect)
    answers = together([lambda: intents.dispatch(world.ask(run, step_key="pay"), intention())] * 5)
    assert Counter(type(answer) for answer in answers) == {Opened: 1, Known: 4}
    assert (Permit.objects.count(), fresh(effect).attempt) == (1, 1)
