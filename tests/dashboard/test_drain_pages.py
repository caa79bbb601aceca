"""What people see of a drain: receipts, who is still at it, children, cleanup, silent runs."""

from __future__ import annotations

import pytest

from dashboard import reports
from effects.drain import drain_run
from runs import children, drain, gate
from runs.guard import Opened
from runs.models import Run, StopRequest, Worker
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_run, fresh, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def seen(world: World, path: str) -> str:
    answer = browser(world.alice).get(path)
    assert answer.status_code == 200
    return text_of(answer.content.decode())


def panel(world: World, run: Run, name: str) -> str:
    """The text of one section of the run page; "" when it is not there."""
    html = browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    _, found, rest = html.partition(f'id="{name}"')
    return text_of(f"<p {rest.partition('</section>')[0]}") if found else ""


def hush(run: Run, seconds: float = 1000) -> None:
    """Nothing was heard of its workers for so long."""
    then = in_seconds(-seconds)
    Run.objects.filter(pk=run.pk).update(last_heard_at=then, silent_at=then)
    Worker.objects.filter(run=run).update(last_heard_at=then)


def test_the_page_shows_per_worker_and_boundary_which_version_is_confirmed(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.opened(run, "charge:8", worker="w-2")
    world.stop(run)
    given = {"dispatch": 2, "checkpoint": 2}
    drain.heartbeat(actor=world.agent, run_id=run.pk, worker="w-2", seen=2, tokens=[], confirmed=given)
    said = panel(world, run, "workers")
    assert "1 of 2 confirmed v2" in said
    assert "w-1 holds v1" in said
    assert "at its boundaries: dispatch v1" in said
    assert "at its boundaries: dispatch v2, checkpoint v2" in said
    assert "1 of 2 workers confirmed" in seen(world, f"/runs/{run.pk}/")


def test_children_are_listed_with_what_a_stop_does_not_reach(world: World) -> None:
    parent = world.run("parent", ungateable=["hosted search"])
    assert panel(world, parent, "children") == ""
    child = world.run("child", name="Invoice 7", parent=parent.pk)
    assert "A stop of this run is passed on to each of them" in panel(world, parent, "children")
    stop = world.stop(parent).stop
    assert "1 child run may still start work" in panel(world, parent, "children")
    children.pass_on(stop.pk)
    said = panel(world, parent, "children")
    assert "1 registered" in said
    assert f"Stop #{stop.number} was passed on to 1 run." in said
    assert "Stopping Invoice 7" in said
    assert "Runs that were started without naming this one as their parent." in said
    assert "hosted search" in said
    assert "Parent parent" in seen(world, f"/runs/{child.pk}/")


def test_the_report_tells_of_children_and_of_cleanup(world: World) -> None:
    run = world.run()
    world.run("child", parent=run.pk)
    held = world.opened(run)
    gate.register(
        world.ask(run, step_key="tidy", step_name="Remove temp files", op_class="read"), cleanup=True
    )
    children.pass_on(world.stop(run).stop.pk)
    tidied = gate.dispatch(world.ask(fresh(run), step_key="tidy", op_class="read"))
    assert isinstance(tidied, Opened)
    world.report(tidied)
    world.finish(tidied.step)
    world.report(held)
    report = reports.build(run.pk)
    claims = report.sections[0].claims
    said = " ".join(claim.text for claim in claims)
    assert "1 cleanup action was permitted while the run drained" in said
    assert "“Remove temp files” (succeeded)" in said
    assert "passed on to 1 registered child run; none of them may start new work" in said
    assert report.new_work.found == 0, "cleanup is no new work"
    assert all(claim.lines for claim in claims if "cleanup" in claim.text)


# --- Silent runs ------------------------------------------------------------------------------------------


def test_a_silent_run_needs_you_and_nothing_else_says_so(world: World) -> None:
    loud = world.run("loud")
    assert "Needs you" not in seen(world, "/runs/")
    silent = world.run("silent", name="Nightly close")
    hush(silent)
    said = seen(world, "/runs/")
    assert "Needs you 1 silent" in said
    assert "Nightly close Silence" in said
    assert "last heard 16 min" in said
    assert "Silence is not proof that it stopped." in said
    assert "Last heard 16 min 40 s ago. Silence is not proof" in seen(world, f"/runs/{silent.pk}/")
    found = seen(world, "/runs/?status=silent")
    assert "1 of 1 runs" in found
    world.heartbeat(silent)
    assert "Needs you" not in seen(world, "/runs/")
    assert fresh(loud).status == "ACTIVE"


def test_only_the_longest_silences_are_shown_and_the_rest_is_counted(world: World) -> None:
    for _ in range(7):
        hush(a_run(workspace=world.workspace))
    hush(a_run(workspace=world.elsewhere))
    assert "7 silent" in seen(world, "/runs/")
    assert "All 7 silent runs" in seen(world, "/runs/")


def test_a_timed_out_worker_that_answers_and_one_that_does_not_have_a_sentence_each(world: World) -> None:
    run = world.run()
    world.opened(run)
    world.opened(run, "charge:8", worker="w-2")
    stop = world.stop(run).stop
    StopRequest.objects.filter(pk=stop.pk).update(deadline_at=in_seconds(-1))
    Worker.objects.filter(name="w-2").update(last_heard_at=in_seconds(-40))
    assert drain_run(run.pk) == "CANCELLING_TIMEOUT"
    said = seen(world, f"/runs/{run.pk}/")
    assert "w-1 is still in “charge:7” since" in said
    assert "w-2 did not confirm by" in said
    assert said.count("is still in") == 1
