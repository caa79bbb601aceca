"""The line of drills: one runs, each stands in it once, nobody's death leaves it running for ever."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from dashboard import metrics, tasks
from dashboard.drilling import carry, catalogue, line, room, schedule
from dashboard.drilling.line import Told
from dashboard.drilling.models import Via
from dashboard.models import DrillRun, DrillSchedule, Notice
from dashboard.pages import needs
from dashboard.pages.run_filter import Filter
from effects import care, unknowns
from effects.models import Effect
from runs import access, wake
from runs.access import DRILLS, SYSTEM, Actor, NotAllowed
from runs.models import Evidence, Membership, Token, Workspace
from tests.dashboard.scenes import an_admin
from tests.worlds import World, a_run, in_seconds

pytestmark = pytest.mark.django_db
ONE, OTHER = "repeated-stop-requests", "stop-during-a-read"
# The fourteen of the contract, by hand.
FOURTEEN = {
    "cancel-between-claim-and-dispatch",
    "worker-pauses-after-check",
    "process-dies-after-request",
    "retry-timer-after-cancel",
    "store-unavailable",
    "browser-mid-action",
    "controller-restarts-in-drain",
    "stop-while-the-model-reasons",
    "stop-during-a-read",
    "stop-during-a-local-write",
    "stop-after-a-request-timed-out",
    "stop-during-an-approval-wait",
    "repeated-stop-requests",
    "resume-after-a-pause",
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No worker takes anything; which tasks were woken."""
    woken: list[str] = []
    monkeypatch.setattr(wake, "run_soon", lambda task, *args: woken.append(task))
    return woken


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def erin(world: World) -> Actor:
    return an_admin(world)


def ask(who: Actor, *names: str) -> line.Asked:
    return line.ask(actor=who, names=names or [ONE], via=Via.PAGE)


def lines_of_drills() -> list[str]:
    space = Workspace.objects.get(slug=DRILLS)
    kinds = Evidence.objects.filter(stream=space.pk, kind__startswith="drill.").order_by("seq")
    return list(kinds.values_list("kind", flat=True))


# the line ---------------------------------------------------------------------------------------------------


def test_there_are_the_fourteen_and_two_of_them_say_that_they_run_elsewhere() -> None:
    assert set(catalogue.NAMES) == FOURTEEN
    assert len(catalogue.NAMES) == 14
    private = {entry.name for entry in catalogue.ENTRIES if "private instance" in entry.note}
    assert private == {"store-unavailable", "controller-restarts-in-drain"}


def test_a_second_press_joins_and_one_drill_runs_at_a_time(erin: Actor, world: World) -> None:
    assert ask(erin) == line.Asked([ONE], [])
    assert ask(erin, ONE, OTHER) == line.Asked([OTHER], [ONE])
    first = line.begin()
    assert first is not None
    assert (first.name, line.begin(), line.waits()) == (ONE, None, False)
    assert ask(erin).joined == [ONE], "while it runs, too"
    assert line.end(first.pk, Told("passed"), "1.0")
    assert line.waits()
    second = line.begin()
    assert second is not None
    assert second.name == OTHER
    assert lines_of_drills() == ["drill.asked", "drill.asked", "drill.ended"]
    assert ask(erin).new == [ONE], "once it has ended, a press is a new one"


def test_the_schema_forbids_a_second_running_one_and_a_second_in_line(erin: Actor) -> None:
    ask(erin, ONE, OTHER)
    assert line.begin() is not None
    for change in ({"started_at": in_seconds(0)}, {"name": ONE}):
        with pytest.raises(IntegrityError), transaction.atomic():
            DrillRun.objects.filter(name=OTHER).update(**change)


def test_only_admins_of_a_workspace_start_drills_and_may_then_read_what_is_left(
    erin: Actor, world: World
) -> None:
    for who in (world.alice, world.bob, world.dana):
        with pytest.raises(NotAllowed):
            ask(who)
    assert not DrillRun.objects.exists()
    ask(erin)
    members = Membership.objects.filter(workspace__slug=DRILLS)
    assert [(member.user, member.role) for member in members] == [(erin.user, "viewer")]
    assert erin.user is not None
    assert [space.slug for space in access.workspaces_of(erin.user)][-1] == DRILLS, "never the first one"
    Membership.objects.filter(user=erin.user).exclude(workspace__slug=DRILLS).delete()
    Membership.objects.filter(user=erin.user).update(role="admin")
    assert not room.may_start(erin.user), "to administer the drills' workspace is not enough"
    erin.user.is_superuser = True
    assert room.may_start(erin.user)


def test_one_whose_worker_falls_silent_is_interrupted_and_its_late_result_does_not_count(erin: Actor) -> None:
    ask(erin)
    row = line.begin()
    assert row is not None
    token, text = room.give_token("drill")
    row.token = token.pk
    assert line.go_on(row, ["a step"])
    assert line.interrupt_silent("1.0") == []
    assert access.token_of(text) is not None
    DrillRun.objects.update(alive_until=in_seconds(-1))
    assert line.interrupt_silent("1.0") == [ONE]
    assert access.token_of(text) is None
    assert not line.go_on(row, ["a later step"])
    assert not line.end(row.pk, Told("passed"), "1.0")
    row.refresh_from_db()
    assert (row.result, row.why, len(row.steps)) == ("interrupted", line.NOBODY_CARRIES, 1)


def test_a_token_of_a_drill_lasts_half_an_hour_and_lets_nobody_in(erin: Actor) -> None:
    token, _ = room.give_token("drill")
    assert token.expires_at is not None
    assert timedelta(minutes=29) < token.expires_at - token.created_at < timedelta(minutes=31)
    rights = access.rights(access.agent(token), token.workspace_id)
    assert rights == {"read", "write", "stop", "resume", "kinds", "rules", "release"}
    room.take_token(token.pk)
    room.take_token("tok_absent")
    assert not access.rights(access.agent(token), token.workspace_id)


# the schedule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "due", "now", "later"),
    [
        ("daily", "2026-11-29 03:00", "2026-11-29 03:00", "2026-11-30 03:00"),
        ("daily", "2026-11-26 03:00", "2026-11-29 02:59", "2026-11-29 03:00"),
        ("weekly", "2026-11-29 03:00", "2026-11-29 03:05", "2026-12-06 03:00"),
        ("weekly", "2026-11-01 03:00", "2026-11-29 03:05", "2026-12-06 03:00"),
    ],
)
def test_what_was_missed_is_not_made_up_for(every: str, due: str, now: str, later: str) -> None:
    def at(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert schedule.after_this(at(due), every, at(now)) == at(later)
    assert schedule.first_after(at("2026-11-29 02:59"), 3) == at("2026-11-29 03:00")
    assert schedule.first_after(at("2026-11-29 03:00"), 3) == at("2026-11-30 03:00")


def test_a_schedule_asks_once_when_it_is_due(erin: Actor, world: World) -> None:
    with pytest.raises(NotAllowed):
        schedule.put(actor=world.bob, which=schedule.ALL, every="daily", hour=3)
    with pytest.raises(ValueError, match="0 to 23"):
        schedule.put(actor=erin, which=schedule.ALL, every="daily", hour=24)
    schedule.put(actor=erin, which=ONE, every="daily", hour=3)
    schedule.put(actor=erin, which=ONE, every="weekly", hour=4)
    assert schedule.ask_due(catalogue.NAMES) == []
    DrillSchedule.objects.update(next_at=in_seconds(-1))
    assert schedule.ask_due(catalogue.NAMES) == [ONE]
    assert schedule.ask_due(catalogue.NAMES) == []
    row = DrillRun.objects.get()
    assert (row.name, row.via, row.by) == (ONE, "schedule", SYSTEM.id)
    DrillSchedule.objects.update(next_at=in_seconds(-1), which=schedule.ALL)
    assert schedule.ask_due(catalogue.NAMES) == list(catalogue.NAMES)
    assert DrillRun.objects.count() == 14, "the one that waits already is joined"
    schedule.put(actor=erin, which=schedule.ALL, every="off", hour=0)
    assert not DrillSchedule.objects.filter(which=schedule.ALL).exists()


@pytest.mark.django_db(transaction=True)
def test_the_sweep_wakes_somebody_for_one_that_waits(erin: Actor, quiet: list[str]) -> None:
    ask(erin)
    quiet.clear()
    tasks.drills()
    assert quiet == [line.TASK]


# carrying one out -------------------------------------------------------------------------------------------

PASSES = f"""
import json
print(json.dumps({{"name": "{ONE}", "tick": "A thing was done."}}), flush=True)
print("something else", flush=True)
check = {{"what": "w", "expected": "1", "observed": "1", "ok": True}}
print(json.dumps({{"name": "{ONE}", "result": "passed", "situation": [check], "safety": [], "evidence": [],
                   "report": "http://other.host/runs/run_1/report", "why": "", "instance": "given"}}))
"""
PRIVATE = PASSES.replace('"given"', '"private"')
STAYS = "import time; print('here', flush=True); time.sleep(60)"


@pytest.fixture
def begun(erin: Actor, monkeypatch: pytest.MonkeyPatch) -> DrillRun:
    monkeypatch.setattr(carry, "address", lambda token: "http://here")
    monkeypatch.setattr(carry, "LOOK_S", 0.1)
    ask(erin)
    row = line.begin()
    assert row is not None
    return row


def carried(row: DrillRun, program: str, monkeypatch: pytest.MonkeyPatch) -> DrillRun:
    monkeypatch.setattr(carry, "command", lambda name, url: [sys.executable, "-c", program])
    carry.out(row, "1.0")
    assert not access.live_tokens().filter(name=f"drill {ONE}").exists(), "its token is taken back"
    assert Token.objects.filter(name=f"drill {ONE}").exists()
    return DrillRun.objects.get()


def test_what_a_drill_says_is_kept_as_its_steps_checks_and_result(
    begun: DrillRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = carried(begun, PASSES, monkeypatch)
    assert (row.result, row.why, row.release, row.log) == ("passed", "", "1.0", "something else\n")
    assert row.report == "/runs/run_1/report", "the reader's own host goes in front of it"
    assert [step["said"] for step in row.steps] == ["A thing was done."]
    assert row.checks["situation"] == [{"what": "w", "expected": "1", "observed": "1", "ok": True}]
    assert ", one process" in row.runtime


def test_nothing_is_linked_that_went_with_a_private_instance(
    begun: DrillRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = carried(begun, PRIVATE, monkeypatch)
    assert (row.report, row.runtime) == ("", carry.PRIVATE)


@pytest.mark.parametrize(
    ("program", "why"), [("print('oh')", carry.SILENT), ("import os; os.abort()", carry.SILENT)]
)
def test_a_process_that_ends_without_a_result_shows_nothing(
    begun: DrillRun, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    row = carried(begun, program, monkeypatch)
    assert (row.result, row.why) == ("inconclusive", why)


def test_a_worker_that_is_told_to_go_ends_its_drill(begun: DrillRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "leaving", lambda: True)
    row = carried(begun, STAYS, monkeypatch)
    assert (row.result, row.why, row.log) == ("interrupted", carry.LEFT, "here\n")


def test_a_drill_that_was_taken_for_dead_is_ended_and_keeps_its_first_word(
    begun: DrillRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = line.go_on, iter([True, False])

    def go_on(row: DrillRun, steps: Any = ()) -> bool:
        if next(looks):
            return real(row, steps)
        return line.end(row.pk, Told("interrupted", "silent"), "1.0") and False

    monkeypatch.setattr(line, "go_on", go_on)
    row = carried(begun, STAYS, monkeypatch)
    assert (row.result, row.why) == ("interrupted", "silent")


def test_without_an_address_it_says_what_to_set(begun: DrillRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "address", lambda token: "")
    row = carried(begun, STAYS, monkeypatch)
    assert (row.result, row.why) == ("inconclusive", carry.UNREACHABLE)


# what drills leave is no alarm ------------------------------------------------------------------------------


def test_nobody_is_told_of_a_drill_and_it_is_in_no_list_or_figure(world: World, settings: Any) -> None:
    """Beside a run that has come to the very same end, of which everybody hears."""
    settings.ALLSTOP_UNKNOWN_DUE_S = 0.0
    for name in ("drill", "real"):
        run = world.run(name, drill=name == "drill")
        opened = world.opened(run, f"charge:{name}")
        world.stop(run)
        world.report(opened, "unknown")
        a_run("PAUSED", world.workspace, key=f"paused {name}", drill=name == "drill")
    Effect.objects.update(unknown_since=in_seconds(-9))
    for subject_id in unknowns.overdue():
        care.tell_overdue(subject_id)
    told = [(notice.run and notice.run.key, notice.event) for notice in Notice.objects.order_by("event")]
    assert told == [("real", "stop.recorded"), ("real", "unknown.past_due")]
    assert [need.title for need in needs.paused_in(world.workspace).rows] == ["paused real"]
    assert [need.title for need in needs.unknown_in(world.workspace).rows] == ["charge:real"]
    figures = {one.name: sum(sample.value for sample in one.samples) for one in metrics.read()}
    assert (figures["allstop_effects_unknown"], figures["allstop_stops_open"]) == (1, 1)
    asked = Filter(world.workspace)
    assert [run.key for run in asked.rows()] == ["paused real", "real"]
    assert Filter(world.workspace, drills=True).rows().count() == 4
    Workspace.objects.filter(pk=world.workspace.pk).update(slug=DRILLS)
    assert Filter(Workspace.objects.get(slug=DRILLS)).rows().count() == 4, "at home they are shown"
