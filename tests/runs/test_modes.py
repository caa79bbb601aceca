"""Modes: a stronger stop supersedes, a weaker one joins; a pause is held and resumed by a decision."""

from __future__ import annotations

import pytest

from effects import drain, reconcile, settle
from effects.models import Effect
from effects.resume import NotResumed, Resumed, Seen, resume
from runs import admission, gate, stops
from runs.guard import Opened, Refusal
from runs.models import Mode, Run, Step, StopRequest, Workspace
from tests.worlds import World, a_kind, a_run, a_step, fresh, kinds_of, lapse

pytestmark = pytest.mark.django_db


def press(world: World, run: Run, mode: str, **words: object) -> stops.StopAnswer:
    wish = stops.Wish(mode=mode, **words)  # type: ignore[arg-type]
    return stops.request_stop(actor=world.alice, wish=wish, run_id=run.pk)


def test_the_stronger_stop_supersedes_and_both_are_told(world: World) -> None:
    run = world.run()
    world.opened(run, "charge:1")
    first, second = press(world, run, Mode.PAUSE).stop, press(world, run, Mode.CANCEL).stop
    first = fresh(first)
    assert (first.superseded_by_id, first.closed_because) == (second.pk, "superseded")
    assert "stop.superseded" in kinds_of(run)
    assert [row.permit.effect_key for row in second.in_flight.all()] == ["charge:1"]


def test_a_pause_gives_claims_back_and_leaves_what_waits(world: World) -> None:
    run = world.run()
    claimed = world.claimed(run)
    waiting = a_step(run, "RETRY_WAIT")
    press(world, run, Mode.PAUSE)
    assert (fresh(claimed).status, fresh(waiting).status) == ("PENDING", "RETRY_WAIT")
    assert drain.drain_run(run.pk) == "PAUSED"
    answer = gate.claim(world.ask_of(claimed))
    assert isinstance(answer, Refusal)
    assert answer.reason == "stopped"


def test_a_pause_past_its_deadline_is_held_with_what_was_in_flight_unknown(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:1")
    stop = press(world, run, Mode.PAUSE, deadline_s=3600).stop
    assert drain.drain_run(run.pk) == "PAUSING"
    assert stops.force_deadline(actor=world.alice, stop_id=stop.pk).forced
    assert drain.drain_run(run.pk) == "PAUSED"
    assert fresh(opened.permit).state == "LOST"
    assert (Effect.objects.get().settlement, fresh(opened.step).status) == ("UNKNOWN", "UNKNOWN")
    assert fresh(stop).timed_out_at is not None
    assert fresh(stop).closed_at is None
    token = opened.permit.token
    told = settle.report(
        actor=world.agent, permit_id=opened.permit.pk, token=token, told=settle.Told("applied")
    )
    assert told.late
    assert (fresh(run).status, Effect.objects.get().settlement) == ("PAUSED", "CONFIRMED")


def test_a_resume_raises_the_version_and_starts_nothing(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    press(world, run, Mode.PAUSE)
    drain.drain_run(run.pk)
    done = resume(actor=world.alice, run_id=run.pk, reason="morning")
    assert isinstance(done, Resumed)
    run = fresh(run)
    assert (run.status, run.cancel_version) == ("ACTIVE", 3)
    assert fresh(step).status == "PENDING"
    assert StopRequest.objects.get().closed_because == "resumed"
    stale = gate.claim(world.ask_of(step, seen_version=1))
    assert isinstance(stale, Refusal)
    assert stale.reason == "stale_version"


def test_a_settled_key_is_skipped_after_a_resume(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:1")
    settle.report(
        actor=world.agent,
        permit_id=opened.permit.pk,
        token=opened.permit.token,
        told=settle.Told("applied", {"id": "ch_1"}),
    )
    press(world, run, Mode.PAUSE)
    drain.drain_run(run.pk)
    done = resume(actor=world.alice, run_id=run.pk, reason="checked")
    assert [(item.key, item.answer) for item in done.items] == [("charge:1", "skip, settled")]


def test_an_unknown_effect_stands_in_the_way_and_is_named(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:1")
    press(world, run, Mode.PAUSE)
    lapse(opened.permit, opened.step)
    assert drain.drain_run(run.pk) == "PAUSED"
    refused = resume(actor=world.alice, run_id=run.pk, reason="checked")
    assert isinstance(refused, NotResumed)
    assert (refused.reason, refused.items[0].answer) == ("must wait", "must wait")
    assert fresh(run).status == "PAUSED"


def test_a_second_stop_beats_a_resume_link(world: World) -> None:
    run = world.run()
    first = press(world, run, Mode.PAUSE).stop
    drain.drain_run(run.pk)
    assert isinstance(
        resume(actor=world.alice, run_id=run.pk, reason="checked", seen=Seen(first.pk)), Resumed
    )
    press(world, run, Mode.PAUSE)
    drain.drain_run(run.pk)
    late = resume(actor=world.alice, run_id=run.pk, reason="checked", seen=Seen(first.pk))
    assert isinstance(late, NotResumed)
    assert late.reason == "superseded"


@pytest.mark.parametrize(
    ("status", "reason"),
    [("ACTIVE", "running"), ("PAUSING", "draining"), ("CANCELLED", "ended"), ("CANCELLING", "stopping")],
)
def test_only_a_paused_run_is_resumed(world: World, status: str, reason: str) -> None:
    run = a_run(status, workspace=world.workspace)
    refused = resume(actor=world.alice, run_id=run.pk, reason="checked")
    assert isinstance(refused, NotResumed)
    assert refused.reason == reason


def test_a_resume_after_a_release_takes_the_current_epochs(world: World) -> None:
    run = world.run()
    press(world, run, Mode.PAUSE)
    drain.drain_run(run.pk)
    rows = Workspace.objects.filter(pk=run.workspace_id)
    rows.update(gate="SHUT", epoch=7)
    shut = resume(actor=world.alice, run_id=run.pk, reason="checked")
    assert isinstance(shut, NotResumed)
    assert shut.reason == "gate"
    rows.update(gate="OPEN")
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="checked"), Resumed)
    run = fresh(run)
    assert run.admitted_epoch == 7
    assert isinstance(world.opened(run, "charge:2", seen_version=run.cancel_version), Opened)


def test_abandon_ends_the_run_and_leaves_its_effects_unknown_at_once(world: World) -> None:
    run = world.run()
    world.opened(run, "charge:1")
    stop = press(world, run, Mode.ABANDON).stop
    run, effect = fresh(run), Effect.objects.get()
    assert (run.status, effect.settlement, effect.next_check_at) == ("ABANDONED", "UNKNOWN", None)
    assert run.ended_at is not None
    assert fresh(stop).closed_because == "fenced"
    assert not Step.objects.filter(run=run, status__in=["PENDING", "CLAIMED"]).exists()


@pytest.mark.parametrize(("mode", "status"), [("pause", "PAUSING"), ("abandon", "ABANDONED")])
def test_a_run_with_a_waiting_stop_is_born_by_its_mode(world: World, mode: str, status: str) -> None:
    wish = stops.Wish(mode=mode)
    stops.request_stop(actor=world.alice, wish=wish, workspace_id=world.workspace.pk, run_key="later")
    admitted = admission.admit(
        actor=world.agent, workspace_id=world.workspace.pk, new=admission.NewRun("later")
    )
    assert isinstance(admitted, admission.Admitted)
    assert admitted.run.status == status
    assert drain.drain_run(admitted.run.pk) == ("PAUSED" if mode == "pause" else "ABANDONED")


def test_nobody_is_asked_any_more_about_a_run_that_was_given_up(world: World) -> None:
    """Also not by a look-up that was under way, nor when evidence contradicts itself later."""
    a_kind(world.workspace, lookup={"url": "https://bank.example/{key}"})
    run = world.run()
    opened, booked = world.opened(run, "charge:1"), world.opened(run, "charge:2")
    world.report(opened, "unknown")
    world.report(booked)
    asked = Effect.objects.get(key="charge:1")
    assert asked.next_check_at is not None
    press(world, run, Mode.ABANDON)
    assert reconcile.apply_answer(asked.pk, reconcile.Answer("can't tell")) == "UNKNOWN"
    contradicted = Effect.objects.get(key="charge:2")
    settle.contradict(contradicted, "a webhook says otherwise")
    assert set(Effect.objects.values_list("settlement", "next_check_at")) == {("UNKNOWN", None)}
