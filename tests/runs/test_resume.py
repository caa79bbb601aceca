"""A resume is a decision about what was seen: whatever came since beats it, no press is swallowed."""

from __future__ import annotations

import pytest

from effects import drain, ends, resume
from effects.models import Effect
from effects.resume import NoReason, NotResumed, Resumed, Seen
from runs import stops
from runs.access import NotAllowed, NotFound
from runs.models import Evidence, EvidencePayload, Run, Session, StopRequest, Workspace
from tests.wire import Wire, agent_of
from tests.worlds import World, a_run, a_step, a_token, an_effect, fresh, kinds_of

pytestmark = pytest.mark.django_db


def paused(world: World, key: str = "close-books", **fields: object) -> Run:
    """A run that is held by Alice's pause, quiet, with nothing unknown."""
    run = world.run(key, **fields)
    world.stop(run, mode="pause")
    assert drain.drain_run(run.pk) == "PAUSED"
    return fresh(run)


def seen(run: Run) -> Seen:
    stop = stops.open_stop(run)
    assert stop is not None
    return Seen(stop.pk, run.cancel_version, stop.presses.count())


def decide(world: World, run: Run, what: Seen | None = None, **more: object) -> Resumed | NotResumed:
    asked = {"actor": world.bob, "run_id": run.pk, "reason": "checked", **more}
    return resume.resume(seen=what, **asked)  # type: ignore[arg-type]


def test_what_was_seen_and_is_still_so_is_resumed(world: World) -> None:
    run = paused(world)
    assert isinstance(decide(world, run, seen(run)), Resumed)
    line = Evidence.objects.get(stream=run.pk, kind="run.resumed")
    assert (line.actor, line.carried_version, line.current_version) == (world.bob.id, 2, 3)
    assert line.stop_id == StopRequest.objects.get().pk
    assert '"reason":"checked"' in EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body


@pytest.mark.parametrize("mode", ["pause", "cancel", "abandon"])
def test_a_press_since_beats_the_decision(world: World, mode: str) -> None:
    run = paused(world)
    what = seen(run)
    world.stop(run, by=world.carol, mode=mode)
    refused = decide(world, run, what)
    assert isinstance(refused, NotResumed)
    assert refused.reason == {"pause": "superseded", "cancel": "stopping", "abandon": "ended"}[mode]
    assert fresh(run).status == {"pause": "PAUSED", "cancel": "CANCELLING", "abandon": "ABANDONED"}[mode]


def test_a_resume_since_and_a_second_pause_beat_the_decision_by_the_version_alone(world: World) -> None:
    run = paused(world)
    assert isinstance(decide(world, run), Resumed)
    world.stop(run, mode="pause")
    drain.drain_run(run.pk)
    for old in (Seen(version=2), Seen(presses=2), Seen(stop_id=StopRequest.objects.get(number=1).pk)):
        refused = decide(world, run, old)
        assert isinstance(refused, NotResumed)
        assert (refused.reason, refused.stop and refused.stop.number) == ("superseded", 2)
    assert isinstance(decide(world, run, seen(fresh(run))), Resumed)


@pytest.mark.parametrize("reason", ["", "  \n", ".", "\u3164"])
def test_a_resume_without_a_reason_is_none(world: World, reason: str) -> None:
    run = paused(world)
    with pytest.raises(NoReason):
        decide(world, run, reason=reason)
    assert fresh(run).status == "PAUSED"


def test_a_shut_scope_is_named_and_a_release_lets_the_resume_take_the_epochs_of_now(world: World) -> None:
    run = paused(world, session="nightly")
    for model, name in ((Workspace, "Workspace “Finance”"), (Session, "Session “nightly”")):
        model.objects.update(gate="SHUT", epoch=5)
        refused = decide(world, run)
        assert isinstance(refused, NotResumed)
        assert (refused.reason, refused.scope) == ("gate", name)
        assert name in refused.sentence
        model.objects.update(gate="OPEN")
    assert isinstance(decide(world, run), Resumed)
    run = fresh(run)
    assert (run.admitted_epoch, run.session_epoch) == (5, 5)
    world.opened(run, "charge:2", seen_version=run.cancel_version)


def test_what_is_held_can_not_let_itself_go_on(world: World) -> None:
    run = paused(world)
    bound = a_token(world.workspace, "resume:write", run=run)
    owner = world.dana.user
    Run.objects.filter(pk=run.pk).update(owner=owner)
    for actor in (bound, world.dana, a_token(world.workspace, "runs:write", "stop:write")):
        with pytest.raises(NotAllowed):
            decide(world, run, actor=actor)
    with pytest.raises(NotFound):
        decide(world, run, actor=world.mallory)
    assert isinstance(decide(world, run, actor=a_token(world.workspace, "resume:write")), Resumed)


def test_an_accepted_unknown_is_skipped_by_name(world: World) -> None:
    run = paused(world)
    an_effect(a_step(run, "UNKNOWN"), "ACCEPTED_UNKNOWN", key="charge:1")
    done = decide(world, run)
    assert [(item.key, item.answer) for item in done.items] == [("charge:1", "skip, accepted as unknown")]
    assert isinstance(done, Resumed)


# --- What a resume leaves behind --------------------------------------------------------------------------


def test_after_a_resume_no_stop_holds_the_run_and_the_next_press_is_a_stop_of_its_own(world: World) -> None:
    run = paused(world)
    decide(world, run)
    assert stops.stop_of(fresh(run)) is None
    assert world.heartbeat(run, seen=3).stop is None
    agent = agent_of(world.workspace)
    assert agent.get(f"/runs/{run.pk}").data["stop"] is None
    again = world.stop(run)
    assert (again.answer, again.stop.number, fresh(run).cancel_version) == ("recorded", 2, 4)


def test_a_press_after_a_run_that_was_resumed_and_completed_is_kept_with_a_stop_of_its_own(
    world: World,
) -> None:
    run = paused(world)
    decide(world, run)
    ends.complete(actor=world.agent, run_id=run.pk, seen=3)
    late = world.stop(run)
    assert (late.answer, late.stop.finished_before, late.stop.number) == ("finished", True, 2)


def test_a_run_that_was_left_paused_without_a_stop_keeps_a_press_as_a_stop_that_moves_nothing(
    world: World,
) -> None:
    run = a_run("PAUSED", workspace=world.workspace, cancel_version=1_000_001)
    held = world.stop(run, mode="pause")
    stop = fresh(held.stop)
    assert (held.answer, stop.finished_before, stop.closed_at) == ("joined", False, None)
    assert (fresh(run).status, fresh(run).cancel_version) == ("PAUSED", 1_000_001)
    assert isinstance(decide(world, run, Seen(stop.pk, 1_000_001, 1)), Resumed)


def test_the_same_key_with_a_stronger_mode_is_a_stop_of_its_own(world: World) -> None:
    run = paused(world)
    asked = [world.stop(run, key="k-1", mode=mode) for mode in ("pause", "cancel", "cancel", "pause")]
    told = [(said.stop.mode, said.answer, said.repeated) for said in asked]
    assert told == [
        ("pause", "joined", False),
        ("cancel", "recorded", False),
        ("cancel", "recorded", True),
        ("pause", "joined", True),
    ]
    assert (fresh(run).status, fresh(run).cancel_version) == ("CANCELLING", 3)


@pytest.mark.parametrize("then", ["ACTIVE", "COMPLETED"])
def test_the_same_key_after_a_resume_is_a_stop_of_its_own(world: World, then: str) -> None:
    run = world.run()
    first = world.stop(run, key="k-1", mode="pause")
    drain.drain_run(run.pk)
    decide(world, run)
    if then == "COMPLETED":
        ends.complete(actor=world.agent, run_id=run.pk, seen=3)
    asked = [world.stop(run, key="k-1", mode="pause") for _ in range(2)]
    assert [said.repeated for said in asked] == [False, True], "the old stop holds nothing any more"
    assert asked[0].stop.pk == asked[1].stop.pk != first.stop.pk
    assert fresh(run).status == ("PAUSING" if then == "ACTIVE" else "COMPLETED")
    assert asked[0].stop.finished_before == (then == "COMPLETED")


# --- The deadline -----------------------------------------------------------------------------------------


def test_a_deadline_is_forced_once_and_only_where_something_waits_for_it(world: World) -> None:
    run = world.run()
    world.opened(run)
    stop = world.stop(run, deadline_s=3600).stop
    assert [stops.force_deadline(actor=world.bob, stop_id=stop.pk).forced for _ in range(2)] == [True, False]
    assert kinds_of(run).count("stop.deadline_forced") == 1
    assert drain.drain_run(run.pk) == "CANCELLING_TIMEOUT"
    quiet = paused(world, "quiet")
    held = stops.open_stop(quiet)
    assert held is not None
    assert not stops.force_deadline(actor=world.bob, stop_id=held.pk).forced
    waiting = world.stop_key("not yet").stop
    assert not stops.force_deadline(actor=world.bob, stop_id=waiting.pk).forced
    with pytest.raises(NotAllowed):
        stops.force_deadline(actor=world.dana, stop_id=stop.pk)


def test_a_deadline_is_forced_over_the_api(world: World) -> None:
    agent: Wire = agent_of(world.workspace)
    run = agent.run()
    agent.permitted(run)
    stop = agent.stop(run, {"deadline_s": 3600, "mode": "pause"}).data
    path = f"/stops/{stop['id']}/deadline"
    first, again = agent.post(path, key="k-1"), agent.post(path, key="k-1")
    assert (first.status, first.data["forced"], again.data == first.data) == (200, True, True)
    assert again.replayed
    assert agent.post(path).data["forced"] is False
    assert first.data["stop"]["deadline_at"] < stop["deadline_at"]
    assert drain.drain_run(run["id"]) == "PAUSED"
    assert Effect.objects.get().settlement == "UNKNOWN"
