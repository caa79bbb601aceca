"""From the gate to the fence: each run of a scope gets a stop of its own, as one stopped by itself."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects import tasks
from effects.drain import drain_run
from effects.models import Delivery, Effect, Review
from effects.resume import Seen, resume
from runs import bulk, children, fanout, fences, policies, releases, scopes, stops
from runs.models import (
    FINAL,
    Evidence,
    EvidencePayload,
    InFlight,
    Mode,
    Press,
    Result,
    Run,
    RunStatus,
    Step,
    StopPart,
    StopRequest,
)
from runs.scopes import Target
from runs.stops import Wish
from tests.worlds import (
    World,
    a_delivery,
    a_permit,
    a_review,
    a_run,
    a_step,
    an_effect,
    fresh,
    in_flight,
    kinds_of,
    number,
)

pytestmark = pytest.mark.django_db
STATUSES = [str(status) for status in RunStatus]
MODES = [str(mode) for mode in Mode]


def shut(world: World, mode: str = "cancel", **wish: Any) -> StopRequest:
    """The gate of the workspace, and then its runs."""
    target = Target("workspace", world.workspace.pk)
    return scopes.request_scope_stop(actor=world.alice, wish=Wish(mode=mode, **wish), target=target).stop


def parts(stop: StopRequest) -> dict[str, str]:
    return dict(StopPart.objects.filter(stop=stop).values_list("run__key", "result"))


# both roads ---------------------------------------------------------------------------------------


def furnished(world: World, status: str, born: str) -> Run:
    """A run of this status with all that a stop touches; `born`: under an earlier stop of this mode."""
    run = a_run(status, world.workspace, cancel_version=3, key=f"{number()}")
    for step_status in ("PENDING", "CLAIMED", "WAITING_APPROVAL", "RETRY_WAIT", "DISPATCHED"):
        a_step(run, step_status, key=step_status.lower(), happened=step_status == "RETRY_WAIT")
    a_step(run, "CLAIMED", key="tidy", cleanup=True, op_class="read")
    sent = a_step(run, "DISPATCHED", key="sent")
    an_effect(sent, "DISPATCHED", a_permit(sent), key="charge")
    an_effect(sent, "DECLARED", key="later")
    a_permit(a_step(run, "UNKNOWN", key="lost"), "LOST")
    a_delivery(run, key="queued")
    a_delivery(run, "HANDED_OVER", key="over")
    a_review(an_effect(Step.objects.get(run=run, key="waiting_approval"), key="asked"))
    if status in ("ACTIVE", "PAUSED", "FAILED"):
        a_run(workspace=world.workspace, parent=run, parent_version=1, key=f"child of {run.key}")
    if born:
        over: dict[str, Any] = {"passed_on_at": run.admitted_at}
        over |= {"closed_at": run.admitted_at} if status in FINAL else {}
        stops.record_stop(
            run,
            world.bob,
            Wish(mode=born),
            run.admitted_at,
            version_after=3,
            finished_before=status in FINAL,
            **over,
        )
    return run


def rows_of(run: Run) -> dict[str, Any]:
    """All that a stop leaves, without the ids, moments and numbers that no two stops share."""
    mine = StopRequest.objects.filter(run=run).order_by("number")
    name = {stop.pk: f"stop {place}" for place, stop in enumerate(mine)}
    steps = list(run.steps.all())
    name |= {step.pk: step.key for step in steps}
    own = ("id", "number", "run_id", "run_key", "via", "scope_stop_id", "workspace_id", "parent_stop_id")
    return {
        "run": (run.status, run.cancel_version, run.ended_at is None),
        "steps": sorted((step.key, step.status, step.worker, step.finished_at is None) for step in steps),
        "stops": [_plain(stop, own, name) for stop in mine],
        "presses": [
            _plain(press, ("id", "key", "via", "address", "stop_id"), name)
            for press in Press.objects.filter(stop__run=run).order_by("pk")
        ],
        "listed": Counter(
            (name[row.stop_id], row.permit.step.key, row.state_then)
            for row in InFlight.objects.filter(stop__run=run).select_related("permit__step")
        ),
        "effects": sorted(Effect.objects.filter(run=run).values_list("key", "settlement", "why_unknown")),
        "messages": sorted(Delivery.objects.filter(run=run).values_list("key", "state")),
        "reviews": sorted(Review.objects.filter(run=run).values_list("closed_as", "closed_by")),
        "lines": [_line(line, name) for line in Evidence.objects.filter(stream=run.pk).order_by("seq")],
    }


def _plain(row: Any, without: tuple[str, ...], name: dict[str, str]) -> dict[str, Any]:
    found = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    moments = {key for key in found if key.endswith("_at") or key == "at"}
    return {
        key: (value is None)
        if key in moments
        else name.get(value, value)
        if isinstance(value, str)
        else value
        for key, value in found.items()
        if key not in without
    }


def _line(line: Evidence, name: dict[str, str]) -> tuple[Any, ...]:
    body = EvidencePayload.objects.filter(stream=line.stream, seq=line.seq).first()
    told = re.sub(
        r"\b([a-z]{2,3})_[0-9a-f]{32}", lambda found: name.get(found[0], found[1]), body.body if body else ""
    )
    versions = (line.carried_version, line.current_version)
    named = (name.get(line.stop_id, ""), name.get(line.step_id, ""), line.effect_key)
    return (line.seq, line.kind, line.actor, *versions, *named, re.sub(r"#\d+", "#", told))


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_its_scope_stopped_can_not_be_told_from_one_stopped_by_itself(
    world: World, mode: str
) -> None:
    """Every status in one chunk, under a stop of before and without one, as a restore leaves a run."""
    pairs = [(_pair(world, status), _moves(status, mode), status) for status in STATUSES]
    wish = Wish(mode=mode, requested_mode=mode, reason="runaway", note="why", deadline_s=7)
    for (alone, bare, *_), _, _ in pairs:
        for run in (alone, bare):
            pressed = stops.request_stop(actor=world.alice, wish=wish, run_id=run.pk)
            children.pass_on(pressed.stop.pk)  # as it does after its commit
    ids = [run.pk for (*_, scoped, other), _, _ in pairs for run in (scoped, other)]
    stop = bulk.request_bulk_stop(
        actor=world.alice, workspace_id=world.workspace.pk, wish=wish, run_ids=ids
    ).stop
    for later in StopRequest.objects.filter(run__in=ids, passed_on_at__isnull=True):
        children.pass_on(later.pk)
    told = parts(stop)
    for (alone, bare, scoped, other), moves, status in pairs:
        assert _apart(scoped, alone) == [], status
        assert _apart(other, bare) == [], status
        result = "recorded" if moves else "finished" if status in FINAL else "joined"
        assert (told[scoped.key], told[other.key]) == (result, result)
        assert StopRequest.objects.filter(run=other, scope_stop=stop).exists(), "it had none"
    presses = Press.objects.filter(key=f"\N{RIGHTWARDS ARROW} {stop.pk}")
    assert (presses.count(), {press.via for press in presses}) == (2 * len(STATUSES), {fences.VIA})


def _apart(one: Run, other: Run) -> list[Any]:
    """Where the rows of two runs differ."""
    first, second = rows_of(fresh(one)), rows_of(fresh(other))
    return [(name, *_differ(first[name], second[name])) for name in first if first[name] != second[name]]


def _differ(one: Any, other: Any) -> list[Any]:
    if not isinstance(one, list) or len(one) != len(other):
        return [one, other]
    return [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]


def _pair(world: World, status: str) -> list[Run]:
    """Two runs alike with an earlier stop, and two without one or anything else."""
    born = {"ACTIVE": "", "PAUSING": "pause", "PAUSED": "pause", "COMPLETED": "pause"}.get(status, "cancel")
    bare = [a_run(status, world.workspace, cancel_version=3) for _ in range(2)]
    return [furnished(world, status, born), bare[0], furnished(world, status, born), bare[1]]


def _moves(status: str, mode: str) -> bool:
    """As the state table has it."""
    milder = {"ACTIVE": "pause", "PAUSING": "cancel", "PAUSED": "cancel"}
    rests = ("CANCELLING", "CANCELLING_TIMEOUT", "UNKNOWN")
    from_there = MODES[MODES.index(milder[status]) :] if status in milder else ["abandon"]
    return mode in from_there and (status in milder or status in rests)


def test_the_two_roads_are_compared_by_rows_that_differ_when_one_differs(world: World) -> None:
    """The control of the test above."""
    one, other = furnished(world, "ACTIVE", ""), furnished(world, "ACTIVE", "")
    stops.request_stop(actor=world.alice, wish=Wish(), run_id=one.pk)
    stops.request_stop(actor=world.alice, wish=Wish(note="x"), run_id=other.pk)
    first, second = rows_of(fresh(one)), rows_of(fresh(other))
    assert {name for name in first if first[name] != second[name]} == {"stops", "presses", "lines"}
    assert first["listed"]
    assert len(first["lines"]) > 8


# how it is carried out ----------------------------------------------------------------------------


def test_a_chunk_costs_as_many_statements_whatever_its_size(world: World) -> None:
    def cost(runs: int) -> int:
        made = [world.run(f"{number()}") for n in range(runs)]
        for run in made:
            world.opened(run, "charge")
            world.claimed(run, "next")
        ids = [run.pk for run in made]
        with CaptureQueriesContext(
            connection,
        ) as seen:
            bulk.request_bulk_stop(
                actor=world.alice, workspace_id=world.workspace.pk, wish=Wish(), run_ids=ids
            )
        assert Run.objects.filter(pk__in=ids, status="CANCELLING").count() == runs
        # how many rows one INSERT takes depends on the database alone
        return sum(not query["sql"].startswith("INSERT") for query in seen)

    cost(1)
    assert cost(2) == cost(30)
    assert cost(2) < 60


def test_the_runs_of_a_scope_are_stopped_and_the_others_go_on(world: World) -> None:
    inside, other = world.run("inside", session="night"), world.run("other", session="day")
    ended = a_run("COMPLETED", world.workspace, session=inside.session, session_epoch=1)
    assert inside.session is not None
    stop = scopes.request_scope_stop(
        actor=world.alice, wish=Wish(mode="pause"), target=Target("session", inside.session.pk)
    ).stop
    assert (fresh(inside).status, fresh(other).status, fresh(ended).status) == (
        "PAUSING",
        "ACTIVE",
        "COMPLETED",
    )
    assert parts(stop) == {"inside": "recorded"}, "a finished run gets no row"
    assert (stop.fenced_at is not None, stop.runs_n) == (True, 1)
    line = Evidence.objects.get(stream=world.workspace.pk, kind="stop.fenced")
    assert line.stop_id == stop.pk


def test_a_stronger_stop_of_the_scope_goes_through_all_runs_again(world: World) -> None:
    runs = [world.run(f"r{n}") for n in range(3)]
    weaker = shut(world, "pause")
    drain_run(runs[0].pk)
    stop = shut(world, "cancel")
    assert {fresh(run).status for run in runs} == {"CANCELLING"}
    assert parts(stop) == dict.fromkeys(["r0", "r1", "r2"], "recorded")
    assert fresh(weaker).superseded_by_id == stop.pk
    for run in runs:
        older, newer = StopRequest.objects.filter(run=run).order_by("number")
        assert (older.superseded_by_id, older.closed_because) == (newer.pk, "superseded")


def test_what_the_request_does_not_reach_is_carried_on_from_rows(world: World, monkeypatch: Any) -> None:
    runs = [world.run(f"r{n}") for n in range(5)]
    monkeypatch.setattr(fanout, "CHUNK", 2)
    monkeypatch.setattr(fanout, "IN_REQUEST_S", 0)
    monkeypatch.setattr(scopes, "IN_REQUEST_S", 0)
    stop = shut(world, "pause")
    told = fanout.progress(stop)
    assert (told.done, told.total, stop.fenced_at) == (2, 5, None)
    assert Counter(fresh(run).status for run in runs) == {"PAUSING": 2, "ACTIVE": 3}
    with pytest.raises(releases.NotFenced, match="2 of 5"):
        releases.release(actor=world.bob, stop_id=stop.pk, reason="too early")
    assert fanout.to_carry_on() == [stop.pk]
    fanout.carry_on(stop.pk)
    told = fanout.progress(fresh(stop))
    assert (told.done, told.total, told.results) == (5, 5, {Result.RECORDED: 5})
    assert fresh(stop).fenced_at is not None
    assert fanout.to_carry_on() == []
    assert Press.objects.filter(stop__run__isnull=False).count() == 5


def test_a_stop_that_was_superseded_reaches_nobody_any_more(world: World, monkeypatch: Any) -> None:
    world.run("r")
    with monkeypatch.context() as patch:
        patch.setattr(fanout, "fence", lambda *_, **__: False)
        weaker = shut(world, "pause")
    stop = shut(world, "cancel")
    fanout.carry_on(weaker.pk)
    assert (parts(weaker), parts(stop)) == ({}, {"r": "recorded"})


def test_one_that_observes_fences_nothing(world: World) -> None:
    run = world.run()
    stop = shut(world, observe=True)
    assert fanout.to_carry_on() == []
    fanout.carry_on(stop.pk)
    assert (fresh(run).status, parts(stop)) == ("ACTIVE", {})


def test_a_policy_of_effects_lists_what_is_in_flight_and_lets_its_runs_go_on(world: World) -> None:
    match = policies.Match(labels={"env": "prod"}, kinds=("bank.charge",))
    policy = policies.create_policy(
        actor=world.alice, workspace_id=world.workspace.pk, name="No charges", match=match
    )
    flying, idle = world.run("flying", labels={"env": "prod"}), world.run("idle", labels={"env": "prod"})
    other = world.run("other", labels={"env": "test"})
    charge, foreign = world.opened(flying, "charge:1"), world.opened(other, "charge:2")
    turn = a_permit(a_step(flying, "DISPATCHED", op_class="model_turn"))
    stop = scopes.request_scope_stop(
        actor=world.alice, wish=Wish(mode="pause"), target=Target("policy", policy.pk)
    ).stop
    assert in_flight(stop) == {charge.permit.pk}
    assert foreign.permit.pk not in in_flight(stop)
    assert turn.pk not in in_flight(stop)
    assert parts(stop) == {"flying": "listed", "idle": "listed"}
    assert [(fresh(run).status, fresh(run).cancel_version) for run in (flying, idle, other)] == [
        ("ACTIVE", 1)
    ] * 3
    assert kinds_of(flying)[-1] == "stop.listed"
    assert "stop.listed" not in kinds_of(idle)


# children -----------------------------------------------------------------------------------------


def test_a_stop_of_a_scope_passes_on_to_children_that_are_outside_of_it(world: World) -> None:
    parent = world.run("parent", session="night")
    inside = world.run("inside", session="night", parent=parent.pk)
    outside = world.run("outside", session="day", parent=parent.pk)
    assert parent.session is not None
    stop = scopes.request_scope_stop(
        actor=world.alice, wish=Wish(mode="pause"), target=Target("session", parent.session.pk)
    ).stop
    own = StopRequest.objects.get(run=parent)
    children.pass_on(own.pk)  # nothing is left to do, but where the request had no time for it
    assert fresh(own).passed_on_at is not None
    assert StopRequest.objects.get(run=outside).parent_stop_id == own.pk
    assert StopRequest.objects.get(run=inside).scope_stop_id == stop.pk
    assert Press.objects.filter(stop__run=inside).count() == 1, "reached by its scope, not by its parent too"
    assert parts(stop) == {"parent": "recorded", "inside": "recorded"}
    assert "stop.has_children" in kinds_of(parent)


def test_a_child_that_was_resumed_is_reached_by_another_press_of_its_parents_stop(world: World) -> None:
    parent = world.run("parent")
    child = world.run("child", parent=parent.pk)
    stop = shut(world, "pause")
    drain_run(parent.pk)
    drain_run(child.pk)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="looked at")
    resume(actor=world.alice, run_id=child.pk, seen=Seen(), reason="again")
    assert fresh(child).status == "ACTIVE"
    world.stop(parent, mode="pause")
    for stop_id in StopRequest.objects.filter(run=parent).values_list("pk", flat=True):
        children.pass_on(stop_id)
    assert fresh(child).status == "PAUSING"


# the end ------------------------------------------------------------------------------------------


def test_it_closes_when_it_is_released_and_each_run_has_come_to_its_end(world: World) -> None:
    run, paused = world.run("a"), world.run("b")
    world.stop(paused, mode="pause")
    stop = shut(world, "pause")
    assert parts(stop) == {"a": "recorded", "b": "joined"}
    for one in (run, paused):
        drain_run(one.pk)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="looked at")
    assert fresh(stop).closed_at is None, "its runs are still paused"
    for one in (run, paused):
        assert fanout.to_close() == []
        resume(actor=world.alice, run_id=one.pk, seen=Seen(), reason="again")
    assert fanout.to_close() == [stop.pk]
    assert fanout.close_if_over(stop.pk)
    assert fanout.close_if_over(stop.pk)
    assert Evidence.objects.filter(stream=world.workspace.pk, kind="stop.closed").count() == 1


def test_runs_that_can_not_be_stopped_keep_no_others_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, *others = (world.run(key) for key in "abc")
    stop_runs = fences.stop_runs

    def fails(stop: StopRequest, runs: Any, last_seqs: Any) -> int:
        assert broken not in runs, "a row that nobody foresaw"
        return stop_runs(stop, runs, last_seqs)

    monkeypatch.setattr(fanout, "CHUNK", 1)
    with monkeypatch.context() as patch:
        patch.setattr(fences, "stop_runs", fails)
        stop = shut(world)
        with pytest.raises(AssertionError, match="nobody foresaw"):
            fanout.carry_on(stop.pk)
    assert [fresh(run).status for run in (broken, *others)] == ["ACTIVE", "CANCELLING", "CANCELLING"]
    assert fresh(stop).fenced_at is None, "and nobody says that all were reached"
    fanout.carry_on(stop.pk)
    assert (fresh(broken).status, fresh(stop).fenced_at is None) == ("CANCELLING", False)


# the sweep ----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)  # a task gives its connection back
def test_a_stop_that_takes_all_its_time_keeps_neither_drains_nor_younger_stops_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "_fence", lambda stop_id: False)
    drains = a_run("CANCELLING", world.workspace)
    old = [shut(other).pk for other in (world, World(), World())]
    clock, did = [0.0], list[tuple[str, str]]()

    def takes_it_all(stop_id: str, within_s: float, *, patient: bool) -> bool:
        did.append(("fence", stop_id))
        clock[0] += within_s
        return False

    monkeypatch.setattr(fanout, "fence", takes_it_all)
    monkeypatch.setattr(fanout, "IN_REQUEST_S", -1.0)
    monkeypatch.setattr("effects.tasks.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("effects.tasks.drain.drain_run", lambda run_id: did.append(("drain", run_id)))
    tasks.sweep()
    assert did == [("drain", drains.pk), *(("fence", stop_id) for stop_id in old)]
    assert clock[0] <= tasks.PASS_S + 0.1, "all of them within the time of one pass"
