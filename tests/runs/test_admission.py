"""admit: a run begins at the epochs of the scopes above it, attaches, meets its stop, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from runs import admission
from runs.access import NotAllowed, NotFound
from runs.admission import Admitted, NewRun, RunKeyReused
from runs.guard import Refusal
from runs.models import Evidence, Run, Session, Worker, Workspace
from runs.models import Refusal as RefusalRow
from tests.worlds import World, a_run, a_token, kinds_of

pytestmark = pytest.mark.django_db


def shut(scope: Workspace | Session, gate: str = "SHUT") -> None:
    type(scope)._default_manager.filter(pk=scope.pk).update(gate=gate, epoch=scope.epoch + 1)


@pytest.mark.invariant("I19")
def test_a_run_keeps_the_epochs_of_its_admission(world: World) -> None:
    shut(world.workspace, gate="OPEN")
    session = Session.objects.create(workspace=world.workspace, key="nightly", epoch=5)
    run = world.run(session="nightly")
    assert (run.status, run.cancel_version) == ("ACTIVE", 1)
    assert (run.admitted_epoch, run.session_id, run.session_epoch) == (2, session.pk, 5)
    assert (kinds_of(run), Worker.objects.get(run=run).name) == (["run.admitted"], "w-1")


def test_a_run_makes_its_session_and_the_next_one_shares_it(world: World) -> None:
    first, second = world.run("a", session="nightly"), world.run("b", session="nightly")
    assert first.session_id == second.session_id
    assert Session.objects.count() == 1


# --- The same key -----------------------------------------------------------------------------------------


def test_the_same_key_with_the_same_parameters_attaches(world: World) -> None:
    first = world.admit("nightly-42", labels={"team": "books"}, session="nightly")
    again = world.admit("nightly-42", labels={"team": "books"}, session="nightly")
    assert isinstance(first, Admitted)
    assert isinstance(again, Admitted)
    assert (first.created, again.created, first.run.pk == again.run.pk) == (True, False, True)
    assert kinds_of(first.run) == ["run.admitted"]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "another name"},
        {"session": "nightly"},
        {"agent": "other"},
        {"runtime": "other"},
        {"labels": {"team": "books"}},
        {"ungateable": ["shell"]},
        {"drill": True},
        {"silent_after_s": 60},
    ],
)
def test_the_same_key_with_other_parameters_is_an_error_and_changes_nothing(
    world: World, other: dict[str, Any]
) -> None:
    run = world.run("nightly-42")
    before = Run.objects.values().get()
    with pytest.raises(RunKeyReused):
        world.admit("nightly-42", **other)
    assert Run.objects.values().get() == before
    assert kinds_of(run) == ["run.admitted"]


@pytest.mark.parametrize("status", ["CANCELLING", "CANCELLED", "COMPLETED"])
def test_attaching_to_a_run_that_stopped_starts_it_no_second_time(world: World, status: str) -> None:
    run = world.run("nightly-42")
    Run.objects.filter(pk=run.pk).advance({"status": status})
    again = world.admit("nightly-42")
    assert isinstance(again, Admitted)
    assert (again.created, again.run.status) == (False, status)


def test_two_workspaces_may_use_the_same_key(world: World) -> None:
    here = world.run("nightly-42")
    there = admission.admit(
        actor=world.foreign_agent, workspace_id=world.elsewhere.pk, new=NewRun("nightly-42")
    )
    assert isinstance(there, Admitted)
    assert there.created
    assert there.run.pk != here.pk


# --- A shut gate ------------------------------------------------------------------------------------------


@pytest.mark.invariant("I19")
def test_no_run_is_admitted_under_a_shut_workspace(world: World) -> None:
    shut(world.workspace)
    refusal = world.admit("nightly-42")
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.boundary, Run.objects.count()) == ("stopped", "admit", 0)
    row = RefusalRow.objects.get()
    assert (row.run, row.workspace, row.run_key, row.count) == (None, world.workspace, "nightly-42", 1)


@pytest.mark.invariant("I19")
def test_no_run_is_admitted_under_a_shut_session_and_others_are(world: World) -> None:
    shut(Session.objects.create(workspace=world.workspace, key="nightly"))
    assert isinstance(world.admit("a", session="nightly"), Refusal)
    assert isinstance(world.admit("b", session="daily"), Admitted)
    assert isinstance(world.admit("c"), Admitted)


def test_the_same_refused_admission_is_one_row_with_a_count_and_one_line(world: World) -> None:
    shut(world.workspace)
    answers = [world.admit("nightly-42") for _ in range(4)] + [world.admit("nightly-43")]
    assert [answer.count for answer in answers if isinstance(answer, Refusal)] == [1, 2, 3, 4, 1]
    assert sorted(RefusalRow.objects.values_list("run_key", "count")) == [
        ("nightly-42", 4),
        ("nightly-43", 1),
    ]
    lines = Evidence.objects.filter(stream=world.workspace.pk, kind="admit.refused")
    assert {row.evidence_seq for row in RefusalRow.objects.all()} == {line.seq for line in lines}
    assert len(lines) == 2


def test_a_run_that_was_admitted_before_is_attached_to_under_a_shut_gate(world: World) -> None:
    run = world.run("nightly-42")
    shut(world.workspace)
    again = world.admit("nightly-42")
    assert isinstance(again, Admitted)
    assert again.run.pk == run.pk
    assert isinstance(world.refused(run), Refusal)  # attached, and still nothing of it may start


# --- Who may ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I28")
def test_an_outsider_admits_nothing_and_leaves_no_trace(world: World) -> None:
    world.run("nightly-42")
    for actor in (world.foreign_agent, world.mallory):
        for key in ("nightly-42", "other"):
            new = NewRun(key, session="theirs")
            with pytest.raises(NotFound):
                admission.admit(actor=actor, workspace_id=world.workspace.pk, new=new)
    assert (Run.objects.count(), Session.objects.count()) == (1, 0)


def test_a_token_without_the_scope_admits_nothing(world: World) -> None:
    for scope in ("runs:read", "stop:write", "kinds:write"):
        actor = a_token(world.workspace, scope)
        with pytest.raises(NotAllowed):
            admission.admit(actor=actor, workspace_id=world.workspace.pk, new=NewRun("x", session="s"))
    assert (Run.objects.count(), Session.objects.count()) == (0, 0)


def test_a_token_of_one_run_attaches_to_it_and_to_no_other_and_admits_none(world: World) -> None:
    mine, other = world.run("mine", session="nightly"), world.run("other")
    bound = a_token(world.workspace, run=mine)
    where: dict[str, Any] = {"actor": bound, "workspace_id": world.workspace.pk}
    attached = admission.admit(**where, new=NewRun("mine", session="nightly"))
    assert isinstance(attached, Admitted)
    assert (attached.run.pk, attached.created) == (mine.pk, False)
    with pytest.raises(NotFound):
        admission.admit(**where, new=NewRun(other.key))
    with pytest.raises(NotAllowed):
        admission.admit(**where, new=NewRun("third"))
    with pytest.raises(NotAllowed):
        admission.admit(**where, new=NewRun("third", session="daily"))
    assert (Run.objects.count(), Session.objects.count()) == (2, 1)


def test_a_run_in_a_workspace_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        admission.admit(actor=world.agent, workspace_id="ws_absent", new=NewRun("x"))
    assert a_run().status == "ACTIVE"
