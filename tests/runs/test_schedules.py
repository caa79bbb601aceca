"""Stops at a moment to come: how a clock is read, who may schedule, and that each is pressed once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from effects import tasks
from runs import schedules
from runs.access import NotAllowed, NotFound
from runs.models import Evidence, Press, Run, ScheduledStop, Session, StopRequest, Workspace
from runs.presses import Wish
from runs.schedules import Ended, Moment, NotAhead, UnknownZone, What, read_clock
from runs.store import database_time
from tests.wire import Wire, agent_of
from tests.worlds import World, fresh, in_seconds

pytestmark = pytest.mark.django_db

# Written by hand. What somebody says by the clock there -> UTC, and how it was read. The rule: the first
# moment at which the clock there shows that time, or a later one.
CLOCKS: dict[tuple[str, str], tuple[str, str]] = {
    ("2026-01-15T12:00", "Europe/Berlin"): ("2026-01-15T11:00:00", "exact"),
    ("2026-07-15T12:00", "Europe/Berlin"): ("2026-07-15T10:00:00", "exact"),
    ("2026-03-29T01:59:59", "Europe/Berlin"): ("2026-03-29T00:59:59", "exact"),
    ("2026-03-29T02:00", "Europe/Berlin"): ("2026-03-29T01:00:00", "skipped"),
    ("2026-03-29T02:30", "Europe/Berlin"): ("2026-03-29T01:00:00", "skipped"),
    ("2026-03-29T03:00", "Europe/Berlin"): ("2026-03-29T01:00:00", "exact"),
    ("2026-10-25T02:30", "Europe/Berlin"): ("2026-10-25T00:30:00", "twice"),
    ("2026-10-25T03:00", "Europe/Berlin"): ("2026-10-25T02:00:00", "exact"),
    ("2026-03-08T02:30", "America/New_York"): ("2026-03-08T07:00:00", "skipped"),
    ("2026-11-01T01:30", "America/New_York"): ("2026-11-01T05:30:00", "twice"),
    ("2026-10-04T02:15", "Australia/Lord_Howe"): ("2026-10-03T15:30:00", "skipped"),  # by half an hour
    ("2011-12-30T12:00", "Pacific/Apia"): ("2011-12-30T10:00:00", "skipped"),  # a whole day
    ("2026-06-01T00:00", "UTC"): ("2026-06-01T00:00:00", "exact"),
}


@pytest.mark.parametrize(("said", "meant"), CLOCKS.items(), ids=[" ".join(said) for said in CLOCKS])
def test_a_clock_there_is_read_by_one_rule(said: tuple[str, str], meant: tuple[str, str]) -> None:
    found = read_clock(datetime.fromisoformat(said[0]), said[1])
    assert (found.at, found.reading) == (datetime.fromisoformat(meant[0]).replace(tzinfo=UTC), meant[1])


@pytest.mark.parametrize("zone", ["", "Europe", "Mars/Base", "../etc/passwd", "Europe/Berlin\0", "/etc"])
def test_a_zone_that_is_none_is_said_so(zone: str) -> None:
    with pytest.raises(UnknownZone):
        read_clock(datetime(2026, 1, 1), zone)


def scheduled(world: World, what: What | None = None, seconds: float = 60, **wish: Any) -> ScheduledStop:
    return schedules.schedule(
        actor=world.alice,
        workspace_id=world.workspace.pk,
        what=what or What("workspace"),
        wish=Wish(**wish),
        when=Moment(in_seconds(seconds)),
    )


def make_due(*made: ScheduledStop) -> None:
    for one in made:
        ScheduledStop.objects.filter(pk=one.pk).update(at=in_seconds(-1))


def lines(world: World) -> list[str]:
    rows = Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="stop.")
    return list(rows.order_by("seq").values_list("kind", flat=True))


def test_it_is_pressed_by_the_system_when_its_moment_has_come_and_not_before(world: World) -> None:
    run = world.run()
    made = scheduled(world, mode="pause", note="before the audit")
    assert schedules.due() == []
    assert schedules.press(made.pk) is None
    assert fresh(run).status == "ACTIVE"
    make_due(made)
    assert schedules.due() == [made.pk]
    answer = schedules.press(made.pk)
    assert answer is not None
    stop = fresh(answer.stop)
    assert (stop.scope, stop.mode, stop.actor, fresh(run).status) == (
        *("workspace", "pause"),
        *("system", "PAUSING"),
    )
    assert stop.note.endswith("UTC. before the audit")
    pressed = ScheduledStop.objects.get()
    assert (pressed.stop_id, pressed.pressed_at is not None) == (stop.pk, True)
    assert {"stop.scheduled", "stop.scheduled_pressed"} <= set(lines(world))


def test_whoever_dies_after_the_press_comes_to_the_same_stop(world: World) -> None:
    made = scheduled(world)
    make_due(made)
    first = schedules.press(made.pk)
    ScheduledStop.objects.update(pressed_at=None, stop=None)  # its note of the press was never committed
    again = schedules.press(made.pk)
    assert first is not None
    assert again is not None
    assert (again.stop.pk, again.repeated) == (first.stop.pk, True)
    assert (StopRequest.objects.filter(scope="workspace").count(), Press.objects.count()) == (1, 1)
    assert schedules.press(made.pk) is None


def test_the_sweep_presses_each_that_is_due(world: World) -> None:
    run = world.run("nightly", session="s")
    session = Session.objects.get()
    of_run = scheduled(world, What("run", run_key="nightly"))
    of_session = scheduled(world, What("session", session.pk), mode="abandon")
    of_nothing = scheduled(world, What("run", run_key="never-came"))
    make_due(of_run, of_session, of_nothing)
    run_of: Any = tasks.sweep.run
    run_of.__wrapped__()  # without a connection of its own
    assert fresh(run).status == "ABANDONED"
    assert StopRequest.objects.get(run_key="never-came").run_id is None
    assert not ScheduledStop.objects.filter(pressed_at__isnull=True).exists()


def test_a_withdrawn_one_is_never_pressed_and_a_pressed_one_never_withdrawn(world: World) -> None:
    taken_back, pressed = scheduled(world), scheduled(world)
    schedules.withdraw(actor=world.bob, scheduled_id=taken_back.pk)
    make_due(taken_back, pressed)
    assert schedules.due() == [pressed.pk]
    assert schedules.press(taken_back.pk) is None
    assert schedules.press(pressed.pk) is not None
    for one in (taken_back, pressed):
        with pytest.raises(Ended):
            schedules.withdraw(actor=world.bob, scheduled_id=one.pk)
    found = ScheduledStop.objects.get(pk=taken_back.pk)
    assert (found.withdrawn_by, found.pressed_at) == (world.bob.id, None)
    assert "stop.withdrawn" in lines(world)


def test_who_may_not_stop_may_not_schedule_and_its_moment_lies_ahead(world: World) -> None:
    made = scheduled(world)
    when = Moment(in_seconds(60))
    refused: list[tuple[Any, type[Exception]]] = [(world.dana, NotAllowed), (world.mallory, NotFound)]
    for actor, error in refused:
        with pytest.raises(error):
            schedules.schedule(
                actor=actor, workspace_id=world.workspace.pk, what=What("workspace"), wish=Wish(), when=when
            )
        with pytest.raises(error):
            schedules.withdraw(actor=actor, scheduled_id=made.pk)
    elsewhere = Session.objects.create(workspace=world.elsewhere, key="s")
    with pytest.raises(NotFound):
        scheduled(world, What("session", elsewhere.pk))
    for seconds in (-1, 400 * 86_400):
        with pytest.raises(NotAhead):
            scheduled(world, seconds=seconds)
    assert ScheduledStop.objects.count() == 1


def test_the_same_key_of_the_same_person_is_one_scheduled_stop(world: World) -> None:
    first, again = scheduled(world, key="k"), scheduled(world, key="k", mode="pause")
    other = scheduled(world, key="")
    assert (first.pk, first.mode) == (again.pk, again.mode)
    assert other.pk != first.pk
    assert lines(world) == ["stop.scheduled"] * 2


def test_an_old_key_keeps_a_stop_anew_once_the_one_before_was_withdrawn(world: World) -> None:
    first = scheduled(world, key="k")
    schedules.withdraw(actor=world.alice, scheduled_id=first.pk, reason="not needed")
    anew, again = scheduled(world, key="k"), scheduled(world, key="k")
    assert (anew.pk == first.pk, anew.withdrawn_at, again.pk) == (False, None, anew.pk)


def test_whose_run_it_is_may_schedule_and_withdraw_its_stop(world: World) -> None:
    run = world.run("mine")
    told = {"workspace_id": world.workspace.pk, "wish": Wish(), "when": Moment(in_seconds(60))}
    mine: dict[str, Any] = told | {"actor": world.dana, "what": What("run", run_key="mine")}
    with pytest.raises(NotAllowed):
        schedules.schedule(**mine)
    Run.objects.filter(pk=run.pk).update(owner=world.dana.user)
    made = schedules.schedule(**mine)
    with pytest.raises(NotAllowed):
        schedules.schedule(**mine | {"what": What("workspace")})
    found = schedules.withdraw(actor=world.dana, scheduled_id=made.pk, reason="not needed")
    assert found.withdrawn_why == "not needed"
    assert lines(world) == ["stop.scheduled", "stop.withdrawn"]


# --- Over the API -----------------------------------------------------------------------------------------


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def next_summer() -> int:
    now = database_time()
    return now.year + (1 if now.month >= 7 else 0)


def test_its_moment_is_told_in_utc_before_it_is_kept(world: World, agent: Wire) -> None:
    body = {"scope": "session", "session": "nightly", "local": f"{next_summer()}-07-01T09:00"}
    body |= {"zone": "Europe/Berlin"}
    preview = agent.post("/scheduled-stops", body | {"preview": True})
    assert (preview.status, preview.data["id"], preview.data["at"]) == (
        *(200, None),
        f"{next_summer()}-07-01T07:00:00Z",
    )
    assert preview.data["says"].startswith(f"At {next_summer()}-07-01 07:00:00 UTC, which is ")
    assert (ScheduledStop.objects.exists(), Session.objects.exists()) == (False, False)
    kept = agent.post("/scheduled-stops", body, key="k-1")
    again = agent.post("/scheduled-stops", body, key="k-1")
    assert (kept.status, again.replayed, kept.data["state"]) == (201, True, "waiting")
    assert [one["id"] for one in agent.get("/scheduled-stops?waiting=true").data["items"]] == [
        kept.data["id"]
    ]
    back = agent.post(f"/scheduled-stops/{kept.data['id']}/withdraw", {"reason": "moved"})
    told = (back.status, back.data["state"], back.data["withdrawn_why"])
    assert told == (200, "withdrawn", "moved")
    late = agent.post(f"/scheduled-stops/{kept.data['id']}/withdraw")
    assert (late.status, late.problem) == (409, "scheduled-stop-ended")
    assert agent.get("/scheduled-stops?waiting=true").data["items"] == []
    assert Workspace.objects.get(pk=world.workspace.pk).gate == "OPEN"


def test_what_can_not_be_read_is_not_kept(agent: Wire) -> None:
    soon = (database_time() + timedelta(days=1)).isoformat()
    wrong: list[dict[str, Any]] = [
        {"scope": "workspace"},
        {"scope": "workspace", "at": soon, "local": "2026-01-01T00:00"},
        {"scope": "workspace", "local": "2026-01-01T00:00", "zone": "Mars/Base"},
        {"scope": "workspace", "local": "2026-13-01T00:00", "zone": "UTC"},
        {"scope": "workspace", "local": "tomorrow", "zone": "UTC"},
        {"scope": "workspace", "at": "2001-01-01T00:00:00Z"},
        {"scope": "session", "at": soon},
        {"scope": "run", "at": soon},
        {"scope": "planet", "at": soon},
        {"scope": "workspace", "at": soon, "colour": "red"},
    ]
    for body in wrong:
        said = agent.post("/scheduled-stops", body)
        assert (said.status, said.problem) == (422, "invalid-request"), body
    assert agent.post("/scheduled-stops", {"scope": "policy", "policy": "none", "at": soon}).status == 404
    assert not ScheduledStop.objects.exists()


def test_others_see_none_of_it(world: World, agent: Wire) -> None:
    at = (database_time() + timedelta(days=1)).isoformat()
    made = agent.post("/scheduled-stops", {"scope": "run", "run_key": "a", "at": at}).data
    mallory, bound = agent_of(world.elsewhere), agent_of(world.workspace, run=world.run())
    for who in (mallory, bound):
        assert who.get("/scheduled-stops").data["items"] == []
        assert who.get(f"/scheduled-stops/{made['id']}").status == 404
        assert who.post(f"/scheduled-stops/{made['id']}/withdraw").status == 404
    assert bound.post("/scheduled-stops", {"scope": "workspace", "at": at}).status == 403
