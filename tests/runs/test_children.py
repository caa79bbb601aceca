"""Child runs: who may be one, what a stop of the parent does to them, and what it does not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from effects import ends
from effects import resume as decisions
from effects.drain import drain_run
from effects.restore import Before, put_to_rest
from runs import access, children, gates, stops
from runs.access import NotFound
from runs.admission import RunKeyReused
from runs.models import Evidence, Press, Restore, Role, Run, RunStatus, StopRequest
from tests.wire import Wire, agent_of
from tests.worlds import World, a_person, a_run, a_workspace, fresh, in_seconds, kinds_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent(world: World) -> Run:
    return world.run("parent")


def child_of(world: World, parent: Run, key: str = "child") -> Run:
    return world.run(key, parent=parent.pk)


def stopped(world: World, run: Run, **wish: Any) -> StopRequest:
    """A stop of a run that was passed on, as the request does it after its commit."""
    stop = world.stop(run, **wish).stop
    children.pass_on(stop.pk)
    return fresh(stop)


def resumed(world: World, run: Run) -> None:
    answer = decisions.resume(actor=world.alice, run_id=run.pk, reason="checked")
    assert isinstance(answer, decisions.Resumed)


def statuses(*runs: Run) -> list[str]:
    return [fresh(run).status for run in runs]


# --- Who may be a child -----------------------------------------------------------------------------------


def test_a_child_keeps_its_parent_and_the_version_at_which_it_was_admitted(world: World, parent: Run) -> None:
    child = child_of(world, parent)
    assert (child.parent_id, child.parent_version, child.status) == (parent.pk, 1, "ACTIVE")
    assert world.admit("child", parent=parent.pk).run == child  # type: ignore[union-attr]
    with pytest.raises(RunKeyReused):
        world.admit("child")


def test_a_run_without_a_parent_has_the_digest_that_it_had_before_there_were_any(world: World) -> None:
    from runs.admission import NewRun
    from runs.evidence import canonical, digest

    plain = {k: v for k, v in vars(NewRun("nightly")).items() if k != "parent"}
    assert NewRun("nightly").digest == digest(canonical(plain))
    assert NewRun("nightly", parent="run_1").digest != NewRun("nightly").digest


@pytest.mark.invariant("I28")
def test_a_parent_elsewhere_is_answered_as_one_that_is_not_there(world: World) -> None:
    elsewhere = a_run(workspace=world.elsewhere)
    for named in (elsewhere.pk, "run_" + "0" * 32, "nonsense"):
        with pytest.raises(NotFound):
            world.admit("child", parent=named)
    agent = agent_of(world.workspace)
    said = [
        agent.post("/runs", {"key": "child", "parent": named}) for named in (elsewhere.pk, "run_" + "0" * 32)
    ]
    assert [(one.status, one.problem) for one in said] == [(404, "not-found")] * 2
    assert said[0].data == said[1].data
    assert not Run.objects.filter(key="child").exists()


@pytest.mark.parametrize("change", ["itself", "another", "none"])
def test_the_schema_knows_no_run_that_is_its_own_parent_nor_one_that_gets_another(change: str) -> None:
    space = a_workspace()
    first, second = a_run(workspace=space), a_run(workspace=space)
    child = a_run(workspace=space, parent=first)
    changes: dict[str, Callable[[], Any]] = {
        "itself": lambda: a_run(workspace=space, id="run_x", parent_id="run_x"),
        "another": lambda: Run.objects.filter(pk=child.pk).update(parent=second),
        "none": lambda: Run.objects.filter(pk=child.pk).update(parent=None),
    }
    with pytest.raises(IntegrityError), transaction.atomic():
        changes[change]()
    assert fresh(child).parent_id == first.pk


def test_a_run_can_name_no_child_of_its_own_as_its_parent(world: World, parent: Run) -> None:
    """A parent is there before its child, and fixed: a ring can't be registered."""
    child = child_of(world, parent)
    with pytest.raises(RunKeyReused):
        world.admit("parent", parent=child.pk)


def test_no_run_stands_deeper_than_the_limit(world: World, parent: Run) -> None:
    above = parent
    for n in range(children.DEEPEST):
        above = a_run(workspace=world.workspace, key=f"level-{n}", parent=above, parent_version=1)
    with pytest.raises(children.TooDeep):
        world.admit("too-deep", parent=above.pk)
    agent = agent_of(world.workspace)
    assert agent.post("/runs", {"key": "too-deep", "parent": above.pk}).problem == "too-deep"
    assert agent.post("/runs", {"key": "just", "parent": above.parent_id}).status == 201


# --- A stop reaches them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"), [("pause", "PAUSING"), ("cancel", "CANCELLING"), ("abandon", "ABANDONED")]
)
def test_a_stop_of_a_run_reaches_its_children_and_theirs(
    world: World, parent: Run, mode: str, expected: str
) -> None:
    child = child_of(world, parent)
    grandchild = child_of(world, child, "grandchild")
    stranger = world.run("stranger")
    stop = stopped(world, parent, mode=mode, reason="cost", deadline_s=7)
    assert statuses(parent, child, grandchild, stranger) == [expected] * 3 + ["ACTIVE"]
    mine, theirs = StopRequest.objects.get(run=child), StopRequest.objects.get(run=grandchild)
    assert (mine.parent_stop, theirs.parent_stop) == (stop, mine)
    told = (mine.mode, mine.reason, mine.deadline_s, mine.actor, mine.via)
    assert told == (mode, "cost", 7, world.alice.id, "parent")
    assert Press.objects.get(stop=mine).parent_stop == stop
    assert stop.passed_on_at is not None
    assert Evidence.objects.filter(stream=parent.pk, kind="stop.passed_on").count() == 1
    assert kinds_of(child)[1] == "stop.acknowledged"


def test_a_run_without_children_is_passed_on_to_nobody(world: World, parent: Run) -> None:
    stop = world.stop(parent).stop
    assert fresh(stop).passed_on_at is not None
    assert "stop.has_children" not in kinds_of(parent)
    assert children.to_pass_on() == []


def test_passed_on_twice_it_is_one_press_and_one_stop_of_each_child(world: World, parent: Run) -> None:
    child = child_of(world, parent)
    stop = stopped(world, parent)
    for _ in range(2):
        StopRequest.objects.filter(pk=stop.pk).update(reason="other")
        children.pass_on(stop.pk)
        children._stop_child(stop.pk, child.pk)
    assert (StopRequest.objects.count(), Press.objects.count()) == (2, 2)
    assert fresh(child).cancel_version == 2


def test_a_child_that_was_stopped_before_keeps_its_stop_and_the_press_with_it(
    world: World, parent: Run
) -> None:
    child = child_of(world, parent)
    own = world.stop(child, mode="cancel").stop
    stopped(world, parent, mode="pause")
    assert (statuses(parent, child), fresh(child).cancel_version) == (["PAUSING", "CANCELLING"], 2)
    assert [press.answer for press in own.presses.order_by("pk")] == ["recorded", "joined"]


def test_a_stronger_stop_of_the_parent_is_passed_on_as_one(world: World, parent: Run) -> None:
    child = child_of(world, parent)
    stopped(world, parent, mode="pause")
    stop = stopped(world, parent, mode="cancel")
    assert statuses(parent, child) == ["CANCELLING"] * 2
    first, second = StopRequest.objects.filter(run=child).order_by("number")
    assert (first.superseded_by, second.parent_stop) == (second, stop)


def test_a_stop_that_was_superseded_before_it_was_passed_on_reaches_nobody_by_itself(
    world: World, parent: Run
) -> None:
    child = child_of(world, parent)
    weak = world.stop(parent, mode="pause").stop
    strong = world.stop(parent, mode="cancel").stop
    children.pass_on(weak.pk)
    assert statuses(child) == ["ACTIVE"]
    assert set(StopRequest.objects.filter(passed_on_at=None)) == {strong}
    children.pass_on(strong.pk)
    assert statuses(child) == ["CANCELLING"]


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELLED", "ABANDONED"])
def test_a_finished_child_is_passed_by_and_its_own_children_are_reached(world: World, end: str) -> None:
    space = world.workspace
    parent = world.run("parent")
    done = a_run(end, workspace=space, parent=parent, parent_version=1)
    below = a_run(end, workspace=space, parent=done, parent_version=1)
    active = a_run(workspace=space, parent=below, parent_version=9)
    stopped(world, parent)
    assert statuses(done, below, active) == [end, end, "CANCELLING"]
    assert not StopRequest.objects.filter(run__in=[done, below]).exists()


def test_a_stop_of_a_finished_run_still_reaches_the_children_that_go_on(world: World) -> None:
    parent = a_run("COMPLETED", workspace=world.workspace)
    child = a_run(workspace=world.workspace, parent=parent, parent_version=1)
    stop = stopped(world, parent)
    assert (stop.finished_before, statuses(child)) == (True, ["CANCELLING"])


def test_the_one_who_asked_needs_no_right_of_their_own_to_the_children(world: World) -> None:
    """Whoever may stop a run stops what it started; the right is asked for once, with the stop."""
    parent = world.run("parent", parent="")
    child = child_of(world, parent)
    stop = world.stop(parent).stop
    from runs.models import Membership

    Membership.objects.filter(workspace=world.workspace).delete()
    children.pass_on(stop.pk)
    assert statuses(child) == ["CANCELLING"]


def test_a_resume_of_the_parent_resumes_no_child(world: World, parent: Run) -> None:
    child = child_of(world, parent)
    stopped(world, parent, mode="pause")
    assert [drain_run(run.pk) for run in (parent, child)] == ["PAUSED"] * 2
    assert isinstance(
        decisions.resume(actor=world.alice, run_id=parent.pk, reason="checked"), decisions.Resumed
    )
    assert statuses(parent, child) == ["ACTIVE", "PAUSED"]
    later = child_of(world, fresh(parent), "later")
    assert (later.status, later.parent_version) == ("ACTIVE", 3)


def test_a_stop_that_was_lifted_before_it_was_passed_on_reaches_those_of_its_time_only(
    world: World, parent: Run
) -> None:
    child = child_of(world, parent)
    stop = world.stop(parent, mode="pause").stop
    drain_run(parent.pk)
    assert isinstance(
        decisions.resume(actor=world.alice, run_id=parent.pk, reason="checked"), decisions.Resumed
    )
    later = child_of(world, fresh(parent), "later")
    children.pass_on(stop.pk)
    assert statuses(parent, child, later) == ["ACTIVE", "PAUSING", "ACTIVE"]


# --- Whoever dies in between ------------------------------------------------------------------------------


@pytest.mark.invariant("I3")
def test_what_a_dead_process_did_not_reach_the_sweep_does(world: World, parent: Run) -> None:
    runs = [child_of(world, parent, f"child-{n}") for n in range(5)]
    stop = world.stop(parent).stop
    children._stop_child(stop.pk, runs[0].pk)  # and here it died
    assert children.to_pass_on() == [], "its request may still be at it"
    StopRequest.objects.filter(pk=stop.pk).update(reason="other")
    assert statuses(*runs).count("ACTIVE") == 4
    assert children.pass_on(stop.pk)
    assert statuses(*runs) == ["CANCELLING"] * 5
    assert Press.objects.filter(parent_stop=stop).count() == 5


def test_a_slice_of_time_reaches_some_and_a_later_one_the_rest(
    world: World, parent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [child_of(world, parent, f"child-{n}") for n in range(3)]
    stop = world.stop(parent).stop
    assert not children.pass_on(stop.pk, within_s=0)
    assert statuses(*runs) == ["ACTIVE"] * 3
    monkeypatch.setattr(children, "SLICE", 2)
    assert children.pass_on(stop.pk)
    assert statuses(*runs) == ["CANCELLING"] * 3


# --- Born under a stop ------------------------------------------------------------------------------------


@pytest.mark.invariant("I19")
@pytest.mark.parametrize(
    ("mode", "drained", "born"),
    [
        ("pause", "PAUSING", "PAUSING"),
        ("pause", "PAUSED", "PAUSING"),
        ("cancel", "CANCELLING", "CANCELLING"),
        ("cancel", "CANCELLED", "CANCELLING"),
        ("abandon", "ABANDONED", "ABANDONED"),
    ],
)
def test_a_child_of_a_stopped_run_is_born_stopping_and_says_so(
    world: World, parent: Run, mode: str, drained: str, born: str
) -> None:
    stop = world.stop(parent, mode=mode).stop
    if drained in ("PAUSED", "CANCELLED"):
        drain_run(parent.pk)
    assert fresh(parent).status == drained
    agent = agent_of(world.workspace)
    said = agent.post("/runs", {"key": "child", "parent": parent.pk})
    assert (said.status, said.data["status"], said.data["parent"]) == (201, born, parent.pk)
    mine = StopRequest.objects.get(run_id=said.data["id"])
    assert (mine.parent_stop, mine.mode, said.data["stop"]["id"]) == (stop, mode, mine.pk)
    assert agent.effect(said.data).problem == "stopped"
    assert children.to_pass_on() == []


def test_under_a_finished_parent_it_is_the_stop_above_that_counts(world: World, parent: Run) -> None:
    done = a_run("COMPLETED", workspace=world.workspace, parent=parent, parent_version=1)
    assert child_of(world, done, "before").status == "ACTIVE"
    stopped(world, parent)
    assert child_of(world, done, "after").status == "CANCELLING"
    assert statuses(Run.objects.get(key="before")) == ["CANCELLING"]


@pytest.mark.parametrize(
    ("waits", "over", "born"),
    [("pause", "cancel", "CANCELLING"), ("cancel", "pause", "CANCELLING"), ("pause", "abandon", "ABANDONED")],
)
def test_of_a_waiting_stop_and_the_parents_the_stronger_one_holds_it(
    world: World, parent: Run, waits: str, over: str, born: str
) -> None:
    world.stop_key("child", mode=waits)
    world.stop(parent, mode=over)
    child = child_of(world, parent)
    assert child.status == born
    assert StopRequest.objects.filter(run=child, passed_on_at=None, superseded_by=None).count() == 0
    held = stops.stop_of(child)
    assert held is not None
    assert held.mode == max(waits, over, key=["pause", "cancel", "abandon"].index)
    assert Press.objects.filter(stop__run=child).count() == 2


# --- The wire ---------------------------------------------------------------------------------------------


def test_the_answer_names_the_children_and_what_it_does_not_cover(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run("parent", ungateable=["hosted search"])
    child = agent.run("child", parent=run["id"])
    said = agent.stop(run)
    assert said.data["children"]["registered"] == 1
    assert "1 registered child run" in said.data["sentence"]
    children.pass_on(said.data["id"])
    told = agent.get(f"/stops/{said.data['id']}").data["children"]
    assert (told["registered"], told["reached"], told["pending"]) == (1, 1, 0)
    assert [(c["run_id"], c["status"]) for c in told["items"]] == [(child["id"], "CANCELLING")]
    assert any("hosted search" in words for words in told["not_covered"])
    assert any("without naming" in words for words in told["not_covered"])


def test_what_a_finished_child_queued_is_named_as_not_covered(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run("parent")
    child = agent.run("child", parent=run["id"])
    assert children.FINISHED not in children.not_covered(Run.objects.get(pk=run["id"]))
    agent.post(f"/runs/{child['id']}/complete", {"seen_version": 1})
    assert agent.stop(run).data["children"]["not_covered"] == [children.UNREGISTERED, children.FINISHED]


def test_children_are_found_by_their_parent(world: World, parent: Run) -> None:
    agent: Wire = agent_of(world.workspace)
    child = child_of(world, parent)
    found = agent.get(f"/runs?parent={parent.pk}").data["items"]
    assert [(run["id"], run["parent"]) for run in found] == [(child.pk, parent.pk)]
    assert RunStatus(found[0]["status"]) == "ACTIVE"


def test_a_stronger_stop_of_a_finished_parent_reaches_the_children_that_a_milder_one_paused(
    world: World, parent: Run
) -> None:
    child = child_of(world, parent)
    assert isinstance(ends.complete(actor=world.agent, run_id=parent.pk, seen=1), Run)
    milder = stopped(world, parent, mode="pause")
    assert statuses(parent, child) == ["COMPLETED", "PAUSING"]
    stronger = stopped(world, parent, mode="cancel")
    assert (stronger.finished_before, fresh(milder).superseded_by_id) == (True, stronger.pk)
    assert statuses(parent, child) == ["COMPLETED", "CANCELLING"]
    again = world.stop(parent, mode="pause")
    assert (again.answer, again.stop.pk) == ("finished", stronger.pk), "a milder one joins"


def test_under_a_parent_that_a_restore_paused_a_child_is_born_paused(world: World, parent: Run) -> None:
    with transaction.atomic():
        restored = Restore.objects.create(taken_at=in_seconds(-60), digest="d", release="")
        put_to_rest(restored, Before())
    admin = access.person(a_person("erin", world.workspace, Role.ADMIN))
    gates.release(actor=admin, workspace_id=world.workspace.pk, reason="checked")
    assert (fresh(parent).status, stops.stop_of(fresh(parent))) == ("PAUSED", None)
    child = child_of(world, parent)
    assert child.status == "PAUSING", "its parent is held, though by no stop of its own"
    stop = StopRequest.objects.get(run=child)
    assert (stop.mode, stop.reason, stop.parent_stop_id) == ("pause", "restore", None)
    assert drain_run(child.pk) == "PAUSED"
    resumed(world, parent)
    assert child_of(world, parent, "later").status == "ACTIVE"


@pytest.mark.parametrize("mode", ["pause", "cancel"])
def test_another_press_on_the_parent_reaches_a_child_that_was_resumed_since(
    world: World, parent: Run, mode: str
) -> None:
    child = child_of(world, parent)
    below = child_of(world, child, "below")
    stop = stopped(world, parent, mode="pause")
    for run in (child, below):
        assert drain_run(run.pk) == "PAUSED"
        resumed(world, run)
    children.pass_on(stop.pk)
    assert statuses(child, below) == ["ACTIVE", "ACTIVE"], "the decision stands while nobody presses again"
    again = stopped(world, parent, by=world.bob, mode=mode)
    held = {"pause": "PAUSING", "cancel": "CANCELLING"}[mode]
    assert statuses(child, below) == [held, held]
    assert again.passed_on_at is not None
    assert (again.pk == stop.pk) == (mode == "pause")
    reach = children.reach_of(again)
    assert reach is not None
    assert (reach.registered, reach.reached, reach.pending) == (1, 1, 0)
