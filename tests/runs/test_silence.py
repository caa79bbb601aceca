"""A silent run is stopped where its workspace's rules say so, once; a resume gives its workers time again."""

from __future__ import annotations

import pytest

from effects import drain, resume, tasks
from runs import rules, silence
from runs.access import SET_UP, SYSTEM
from runs.models import Press, Run
from runs.rules import Rules
from tests.worlds import World, fresh, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def silent(world: World, key: str = "close-books") -> Run:
    """A run of which nothing was heard for an hour."""
    run = world.run(key)
    past = in_seconds(-3600)
    Run.objects.filter(pk=run.pk).update(admitted_at=past, last_heard_at=past, silent_at=past)
    return fresh(run)


def want(world: World, mode: str | None, version: int = 0) -> None:
    now = Rules.model_validate({"silent_stop": mode})
    rules.change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=version, rules=now)


@pytest.mark.parametrize(
    ("mode", "status"), [("pause", "PAUSING"), ("cancel", "CANCELLING"), ("abandon", "ABANDONED")]
)
def test_the_rules_have_a_stop_recorded_for_a_silent_run_once(world: World, mode: str, status: str) -> None:
    run, heard, elsewhere = silent(world), world.run("heard"), World()
    other = silent(elsewhere)
    tasks.sweep()
    assert fresh(run).status == "ACTIVE", "without such a rule nothing moves it"
    want(world, mode)
    assert silence.due() == [run.pk]
    for _ in range(2):
        silence.record_stop(run.pk)
    assert fresh(run).status == status
    assert [fresh(one).status for one in (heard, other)] == ["ACTIVE", "ACTIVE"]
    press = Press.objects.get()
    assert (press.actor, press.mode) == (SYSTEM.id, mode)
    assert "Nothing was heard of it for 900 s." in press.note
    assert silence.due() == []


def test_a_resume_gives_a_silent_run_its_time_again(world: World) -> None:
    run = silent(world)
    want(world, "pause")
    tasks.sweep()
    drain.drain_run(run.pk)
    assert fresh(run).status == "PAUSED"
    resumed = resume.resume(actor=world.alice, run_id=run.pk, reason="its worker is back")
    assert isinstance(resumed, resume.Resumed)
    tasks.sweep()
    assert fresh(run).status == "ACTIVE"
    Run.objects.filter(pk=run.pk).update(silent_at=in_seconds(-1))
    tasks.sweep()
    assert fresh(run).status in ("PAUSING", "PAUSED")
    assert Press.objects.count() == 2


def test_rules_that_want_none_any_more_record_none(world: World) -> None:
    run = silent(world)
    want(world, "cancel")
    assert silence.due() == [run.pk]
    want(world, None, version=1)
    assert (silence.due(), silence.record_stop(run.pk)) == ([], None)
    assert fresh(run).status == "ACTIVE"
