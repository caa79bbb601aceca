"""A pause, a resume, a second stop, a late report: what meets at one run ends one way; no press is lost."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from effects import ends, resume
from effects.drain import drain_run
from effects.models import Effect
from effects.resume import NotResumed, Resumed, Seen
from runs import stops
from runs.guard import Refusal
from runs.models import Press, Run, StopRequest
from tests.races.sides import sides, together
from tests.worlds import World, fresh, kinds_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


def complete(world: World, run: Run) -> Any:
    return ends.complete(actor=world.agent, run_id=run.pk, seen=1)


def paused(world: World) -> tuple[Run, Seen]:
    """A run that Alice paused, and what Bob sees of it."""
    run = world.run()
    stop = world.stop(run, mode="pause").stop
    assert drain_run(run.pk) == "PAUSED"
    return fresh(run), Seen(stop.pk, 2, 1)


def decide(world: World, run: Run, seen: Seen | None) -> Any:
    return resume.resume(actor=world.bob, run_id=run.pk, reason="checked", seen=seen)


# --- A pause and a completion -----------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["pause", "completion"])
def test_of_a_pause_and_a_completion_the_first_wins_and_the_second_is_told(first: str) -> None:
    world = World()
    run = world.run()
    calls = {"pause": lambda: world.stop(run, mode="pause"), "completion": lambda: complete(world, run)}
    second = next(name for name in calls if name != first)
    with sides() as make:
        one = make(first, calls[first], hold="COMMIT")
        one.stands()
        two = make(second, calls[second])
        assert two.waits_for(one)
        told = {first: one.result(), second: two.result()}
    if first == "pause":
        assert isinstance(told["completion"], Refusal)
        assert (told["pause"].answer, drain_run(run.pk), fresh(run).cancel_version) == (
            "recorded",
            "PAUSED",
            2,
        )
    else:
        assert (told["pause"].answer, told["completion"].status) == ("finished", "COMPLETED")
        assert (fresh(run).status, fresh(run).cancel_version) == ("COMPLETED", 1)


# --- A resume and a stop ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "after"), [("pause", "PAUSING"), ("cancel", "CANCELLING")])
def test_a_stop_that_waited_for_a_resume_is_a_stop_of_the_resumed_run(mode: str, after: str) -> None:
    world = World()
    run, seen = paused(world)
    with sides() as make:
        resumer = make("resume", lambda: decide(world, run, seen), hold="COMMIT")
        resumer.stands()
        stopper = make("stop", lambda: world.stop(run, by=world.carol, mode=mode))
        assert stopper.waits_for(resumer)
        assert isinstance(resumer.result(), Resumed)
        answer = stopper.result()
    assert (answer.answer, answer.stop.number) == ("recorded", 2)
    assert (fresh(run).status, fresh(run).cancel_version) == (after, 4)


@pytest.mark.parametrize(("mode", "why"), [("pause", "superseded"), ("cancel", "stopping")])
def test_a_resume_that_waited_for_a_stop_is_beaten_by_it(mode: str, why: str) -> None:
    world = World()
    run, seen = paused(world)
    with sides() as make:
        stopper = make("stop", lambda: world.stop(run, by=world.carol, mode=mode), hold="COMMIT")
        stopper.stands()
        resumer = make("resume", lambda: decide(world, run, seen))
        assert resumer.waits_for(stopper)
        assert stopper.result().answer == ("joined" if mode == "pause" else "recorded")
        refused = resumer.result()
    assert isinstance(refused, NotResumed)
    assert refused.reason == why
    assert fresh(run).status == ("PAUSED" if mode == "pause" else "CANCELLING")
    assert Press.objects.filter(actor=world.carol.id).count() == 1


def test_a_decision_that_carries_nothing_of_what_was_seen_runs_over_the_second_pause() -> None:
    """The control: without what was seen, Carol's pause is recorded, answered, and gone."""
    world = World()
    run, _ = paused(world)
    with sides() as make:
        stopper = make("stop", lambda: world.stop(run, by=world.carol, mode="pause"), hold="COMMIT")
        stopper.stands()
        resumer = make("resume", lambda: decide(world, run, None))
        assert resumer.waits_for(stopper)
        assert stopper.result().answer == "joined"
        assert isinstance(resumer.result(), Resumed)
    assert (fresh(run).status, StopRequest.objects.get().closed_because) == ("ACTIVE", "resumed")


def test_of_many_resumes_at_once_one_resumes() -> None:
    world = World()
    run, seen = paused(world)
    answers = together([partial(decide, world, run, seen)] * 6)
    told = Counter(answer.reason if isinstance(answer, NotResumed) else "resumed" for answer in answers)
    assert told == {"resumed": 1, "running": 5}
    assert (fresh(run).status, fresh(run).cancel_version) == ("ACTIVE", 3)
    assert kinds_of(run).count("run.resumed") == 1


@pytest.mark.invariant("I4")
def test_a_resume_and_a_stop_at_the_same_moment_leave_the_run_held_or_the_stop_a_new_one() -> None:
    world = World()
    seen_orders: Counter[str] = Counter()
    for n in range(10):
        run = world.run(f"run-{n}")
        stop = world.stop(run, mode="pause").stop
        drain_run(run.pk)
        what = Seen(stop.pk, 2, 1)
        done, pressed = together(
            [partial(decide, world, run, what), partial(world.stop, run, by=world.carol, mode="pause")]
        )
        first = "resume" if isinstance(done, Resumed) else "stop"
        assert fresh(run).status == ("PAUSING" if first == "resume" else "PAUSED")
        assert pressed.answer == ("recorded" if first == "resume" else "joined")
        seen_orders[first] += 1
    assert seen_orders.total() == 10


# --- A resume and a late report ---------------------------------------------------------------------------


def held_with_an_unknown(world: World) -> tuple[Run, Any, Seen]:
    """The deadline of the pause passed while a charge was in flight: it is unknown."""
    run = world.run()
    opened = world.opened(run)
    stop = world.stop(run, mode="pause", deadline_s=3600).stop
    stops.force_deadline(actor=world.alice, stop_id=stop.pk)
    assert drain_run(run.pk) == "PAUSED"
    assert Effect.objects.get().settlement == "UNKNOWN"
    return fresh(run), opened, Seen(stop.pk, 2, 1)


def test_a_resume_that_waited_for_a_late_report_skips_what_it_settled() -> None:
    world = World()
    run, opened, seen = held_with_an_unknown(world)
    with sides() as make:
        reporter = make("report", lambda: world.report(opened), hold="COMMIT")
        reporter.stands()
        resumer = make("resume", lambda: decide(world, run, seen))
        assert resumer.waits_for(reporter)
        assert reporter.result().late
        done = resumer.result()
    assert isinstance(done, Resumed)
    assert [item.answer for item in done.items] == ["skip, settled"]
    assert (fresh(run).status, Effect.objects.get().settlement) == ("ACTIVE", "CONFIRMED")


def test_a_late_report_that_waited_for_a_resume_finds_it_refused_and_settles_all_the_same() -> None:
    world = World()
    run, opened, seen = held_with_an_unknown(world)
    with sides() as make:
        resumer = make("resume", lambda: decide(world, run, seen), hold="COMMIT")
        resumer.stands()
        reporter = make("report", lambda: world.report(opened))
        assert reporter.waits_for(resumer)
        refused = resumer.result()
        assert reporter.result().late
    assert isinstance(refused, NotResumed)
    assert (refused.reason, fresh(run).status) == ("must wait", "PAUSED")
    assert Effect.objects.get().settlement == "CONFIRMED"
    assert isinstance(decide(world, run, seen), Resumed)
