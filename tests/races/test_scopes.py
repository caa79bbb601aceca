"""Stops of a session, a workspace, a policy or many runs, where they meet admissions, workers, each other.

P1 to P7 and K1 to K4 of the protocol, through the verbs; beside each is the shape that gets it wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection

from effects import intents
from effects.drain import drain_run
from runs import bulk, fanout, gate, policies, refusals, releases, scopes, store
from runs.admission import Admitted
from runs.guard import Opened, Refusal
from runs.models import Permit, Policy, Press, Run, Session, StopPart, StopRequest
from runs.policies import Match
from runs.presses import StopAnswer, Wish
from runs.scopes import Scope, Target
from tests.races import unsafe
from tests.races.checker import active_under_a_shut_gate, verdict
from tests.races.sides import sides, together
from tests.worlds import World, fresh, in_flight, intention, lapse

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

KINDS = ["workspace", "session", "policy"]
PERMIT = 'INSERT INTO "runs_permit"'
on_sqlite = pytest.mark.only("sqlite")
on_postgresql = pytest.mark.only("postgresql")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that looks once for runs that somebody holds, and leaves them to the sweep."""
    monkeypatch.setattr(scopes, "IN_REQUEST_S", 0.0)


@pytest.fixture
def unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that dies with its acknowledgement: no run was reached."""
    monkeypatch.setattr(scopes, "_fence", lambda stop_id: False)


class Scene:
    """A run under a session and under a policy of its label, and the scope of that kind above it."""

    def __init__(self, kind: str = "workspace") -> None:
        self.world, self.kind = World(), kind
        self.rule = self.policy("by night", labels={"shift": "night"})
        self.run = self.admitted("nightly-1")
        ids = {"workspace": self.world.workspace.pk, "policy": self.rule.pk}
        self.target = Target(kind, {**ids, "session": self.run.session_id or ""}[kind])

    def policy(self, name: str, **match: Any) -> Policy:
        here, who = self.world.workspace.pk, self.world.alice
        return policies.create_policy(actor=who, workspace_id=here, name=name, match=Match(**match))

    def admit(self, key: str = "nightly-2") -> Any:
        return self.world.admit(key, session="nightly", labels={"shift": "night"})

    def admitted(self, key: str) -> Run:
        answer = self.admit(key)
        assert isinstance(answer, Admitted)
        return answer.run

    def stop(self, target: Target | None = None, **wish: Any) -> StopAnswer:
        who = wish.pop("by", self.world.alice)
        return scopes.request_scope_stop(actor=who, wish=Wish(**wish), target=target or self.target)

    def stop_effects(self, **wish: Any) -> StopAnswer:
        """Of the kind that `dispatch` sends; its run goes on."""
        rule = self.policy("no charges", kinds=["bank.charge"])
        return self.stop(Target("policy", rule.pk), **wish)

    def dispatch(self, key: str = "charge:7", run: Run | None = None) -> Any:
        return intents.dispatch(self.world.ask(run or self.run, step_key=key), intention(key))

    def release(self, stop: StopRequest, by: Any = None) -> Any:
        try:
            return releases.release(actor=by or self.world.bob, stop_id=stop.pk, reason="checked")
        except (releases.NotFenced, releases.NotStanding) as refused:
            return refused

    def scope(self) -> Scope:
        return scopes.scope_of(StopRequest.objects.filter(scope=self.kind).latest("number"))

    def shut_gates_hold(self) -> None:
        """No run is active under a shut gate, and no permit was opened that no stop lists."""
        assert active_under_a_shut_gate(self.world.workspace.pk) == []
        assert verdict(self.world.workspace.pk).unlisted == 0


def reach(stop: StopRequest) -> StopRequest:
    """What the sweep does."""
    assert fanout.fence(stop.pk, 8, patient=True)
    assert fresh(stop).fenced_at
    return fresh(stop)


def look(opened: Opened) -> str:
    return gate.look(opened.permit.pk, opened.permit.token).answer


def of_run(run: Run) -> StopRequest:
    return StopRequest.objects.get(run=run, scope="run")


def refused_by(refusal: Any) -> str:
    """The stop of the scope behind a refusal: by itself, or by the stop of the run."""
    assert isinstance(refusal, Refusal)
    stop = StopRequest.objects.get(pk=refusal.stop_id)
    return stop.scope_stop_id or stop.pk


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQLSTATE of each conflict that a verb tried again after: 40P01 is a deadlock."""
    found: list[str] = []
    ask = store._worth_another_try

    def asked(error: BaseException) -> bool:
        found.append(getattr(error.__cause__, "sqlstate", None) or str(error))
        return ask(error)

    monkeypatch.setattr(store, "_worth_another_try", asked)
    return found


# --- Admission and stop: P1 to P5 -------------------------------------------------------------------------


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_of_a_scope_waits_for_an_admission_that_has_begun_and_stops_its_run(kind: str) -> None:
    scene = Scene(kind)
    with sides() as make:
        admission = make("admission", scene.admit, hold="COMMIT")
        admission.stands()
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(admission)
        admitted, stop = admission.result(), stopper.result().stop
    assert isinstance(admitted, Admitted)
    reach(stop)
    assert {fresh(run).status for run in (scene.run, admitted.run)} == {"CANCELLING"}
    assert of_run(admitted.run).scope_stop_id == stop.pk
    scene.shut_gates_hold()


@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_an_admission_waits_for_a_stop_of_a_scope_and_is_refused_by_it(kind: str) -> None:
    scene = Scene(kind)
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        admission = make("admission", scene.admit)
        assert admission.waits_for(stopper)
        stop, refusal = stopper.result().stop, admission.result()
    assert (refused_by(refusal), refusal.boundary, refusal.scope) == (stop.pk, "admit", kind)
    assert [run.pk for run in Run.objects.all()] == [scene.run.pk]
    reach(stop)
    scene.shut_gates_hold()


@on_postgresql
@pytest.mark.invariant("I19")
@pytest.mark.parametrize("kind", KINDS)
def test_p1_without_the_lock_of_its_workspace_a_run_is_active_under_a_gate_whose_fence_is_complete(
    kind: str,
) -> None:
    """The control: the key of the rows that it points at does not make the stop wait."""
    scene = Scene(kind)
    with sides() as make:
        admission = make("admission", partial(unsafe.admit_unlocked, scene.run), hold="COMMIT")
        admission.stands()
        stopper = make("stop", scene.stop)
        assert not stopper.waits_for(admission)
        stop = reach(stopper.result().stop)
        admission.result()
    assert stop.fenced_at
    assert active_under_a_shut_gate(scene.world.workspace.pk) == ["unlocked"]


@on_postgresql
@pytest.mark.invariant("I19")
@pytest.mark.parametrize("shape", [unsafe.gate_and_runs_at_once, unsafe.gate_and_runs_on_one_snapshot])
def test_p4_p5_gate_and_runs_on_one_snapshot_miss_the_run_that_the_lock_waited_for(
    shape: Callable[[str], None],
) -> None:
    """The control: the lock alone is not enough, the runs are read in a statement after it."""
    scene = Scene()
    with sides() as make:
        admission = make("admission", scene.admit, hold="COMMIT")
        admission.stands()
        stopper = make("stop", partial(shape, scene.world.workspace.pk))
        assert stopper.waits_for(admission)
        admission.result()
        stopper.result()
    assert fresh(scene.run).status == "CANCELLING"
    assert active_under_a_shut_gate(scene.world.workspace.pk) == ["nightly-2"]


@pytest.mark.invariant("I19")
def test_admissions_that_hammer_during_a_stop_are_stopped_or_refused() -> None:
    scene = Scene()
    calls = [partial(scene.admit, f"new-{n}") for n in range(10)]
    answers = together([*calls[:5], scene.stop, *calls[5:]])
    seen = Counter(type(answer).__name__ for answer in answers)
    assert (seen["StopAnswer"], seen["Admitted"] + seen["Refusal"]) == (1, 10)
    stop = reach(StopRequest.objects.get(scope="workspace"))
    assert Run.objects.count() == 1 + seen["Admitted"] == stop.runs_n
    scene.shut_gates_hold()


# --- Dispatch, before a run is reached and while it is: P6 --------------------------------------------------


@pytest.mark.invariant("I1")
@pytest.mark.invariant("I2")
@pytest.mark.parametrize("kind", KINDS)
def test_the_acknowledgement_waits_for_no_dispatch_and_the_fence_waits_and_lists_it(kind: str) -> None:
    scene = Scene(kind)
    with sides() as make:
        worker = make("worker", scene.dispatch, hold=PERMIT)
        worker.stands()  # the guard has said yes; no permit is written yet
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(worker) is (connection.vendor == "sqlite")
        if connection.vendor == "postgresql":
            assert stopper.result().stop.fenced_at is None
            sweep = make("sweep", partial(fanout.fence, stopper.result().stop.pk, 8, patient=True))
            assert sweep.waits_for(worker)
        opened = worker.result()
        stop = stopper.result().stop
    assert isinstance(opened, Opened)
    assert look(opened) == "shut"
    reach(stop)
    assert in_flight(of_run(scene.run)) == {opened.permit.pk}
    assert refused_by(scene.dispatch("charge:8")) == stop.pk
    scene.shut_gates_hold()


@on_postgresql
@pytest.mark.invariant("I2")
def test_a_fence_that_lists_before_it_locks_misses_the_dispatch_that_it_waited_for() -> None:
    """The control."""
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.dispatch, hold="COMMIT")
        worker.stands()
        stopper = make("fence", partial(unsafe.list_then_lock, scene.run))
        assert stopper.waits_for(worker)
        worker.result()
        stopper.result()
    assert verdict(scene.world.workspace.pk).unlisted == 1


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_dispatch_waits_for_the_fence_of_its_run_and_is_refused(kind: str, unreached: None) -> None:
    scene = Scene(kind)
    stop = scene.stop().stop
    with sides() as make:
        sweep = make("sweep", partial(fanout.fence, stop.pk, 0), hold="COMMIT")
        sweep.stands()
        worker = make("worker", scene.dispatch)
        assert worker.waits_for(sweep)
        sweep.result()
        refusal = worker.result()
    assert (refused_by(refusal), refusal.current_version) == (stop.pk, 2)
    assert not Permit.objects.exists()
    reach(stop)
    scene.shut_gates_hold()


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("kind", KINDS)
def test_p6_between_gate_and_fence_an_active_run_at_its_own_version_starts_nothing(
    kind: str, unreached: None
) -> None:
    scene = Scene(kind)
    before = scene.dispatch("charge:6")
    stop = scene.stop().stop
    assert (fresh(scene.run).status, fresh(scene.run).cancel_version) == ("ACTIVE", 1)
    assert refused_by(scene.dispatch()) == stop.pk
    assert look(before) == "shut"
    # The controls: the gate is what refuses it, and the checker sees a run that no fence has reached.
    assert unsafe.at_its_version(scene.run) == 1
    assert active_under_a_shut_gate(scene.world.workspace.pk) == ["nightly-1"]


# --- Release: P7 --------------------------------------------------------------------------------------------


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("kind", KINDS)
def test_p7_a_run_that_a_gate_was_opened_over_stays_refused_by_its_epoch(kind: str, unreached: None) -> None:
    scene = Scene(kind)
    stop = scene.stop().stop
    assert isinstance(scene.release(stop), releases.NotFenced)
    scope = scene.scope()
    type(scope)._default_manager.filter(pk=scope.pk).update(gate="OPEN")  # what no verb does
    assert (fresh(scene.run).status, fresh(scene.run).cancel_version) == ("ACTIVE", 1)
    assert refused_by(scene.dispatch()) == stop.pk
    # The control: the same look at the gate, without the epoch, brings the run back to life.
    assert unsafe.past_an_open_gate(scene.run, scope) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_while_a_run_is_held_is_refused_and_after_the_fence_no_run_goes_on(kind: str) -> None:
    scene = Scene(kind)
    with sides() as make:
        worker = make("worker", scene.dispatch, hold=PERMIT)
        worker.stands()
        if connection.vendor == "sqlite":  # there nobody stops anything beside a writer
            worker.result()
        stop = scene.stop().stop
        early = scene.release(stop)
        opened = worker.result()
    assert isinstance(early, releases.NotFenced)
    reach(stop)
    assert isinstance(scene.release(stop), releases.Released)
    assert scene.scope().gate == "OPEN"
    assert look(opened) == "shut"
    assert refused_by(scene.dispatch("charge:8")) == stop.pk
    assert isinstance(scene.dispatch(run=scene.admitted("nightly-2")), Opened)


@pytest.mark.parametrize("kind", KINDS)
def test_a_press_that_waited_for_a_release_shuts_the_gate_again(kind: str) -> None:
    scene = Scene(kind)
    stop = reach(scene.stop(mode="pause").stop)
    with sides() as make:
        releaser = make("release", partial(scene.release, stop), hold="COMMIT")
        releaser.stands()
        stopper = make("stop", partial(scene.stop, mode="pause", by=scene.world.carol))
        assert stopper.waits_for(releaser)
        assert isinstance(releaser.result(), releases.Released)
        answer = stopper.result()
    assert (answer.answer, answer.stop.pk != stop.pk) == ("recorded", True)
    assert (scene.scope().gate, scene.scope().epoch) == ("SHUT", 3)
    assert isinstance(scene.admit(), Refusal)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_that_waited_for_a_stronger_press_is_beaten_by_it(kind: str) -> None:
    scene = Scene(kind)
    stop = reach(scene.stop(mode="pause").stop)
    with sides() as make:
        stopper = make("stop", partial(scene.stop, mode="cancel", by=scene.world.carol), hold="COMMIT")
        stopper.stands()
        releaser = make("release", partial(scene.release, stop))
        assert releaser.waits_for(stopper)
        assert stopper.result().answer == "recorded"
        assert isinstance(releaser.result(), releases.NotStanding)
    assert (scene.scope().gate, fresh(stop).superseded_by_id is None) == ("SHUT", False)


# --- A policy of effects ------------------------------------------------------------------------------------


@pytest.mark.invariant("I2")
def test_an_effect_that_was_let_through_before_its_policy_shut_is_listed_and_its_run_goes_on() -> None:
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.dispatch, hold=PERMIT)
        worker.stands()
        stopper = make("stop", scene.stop_effects)
        assert stopper.waits_for(worker) is (connection.vendor == "sqlite")
        if connection.vendor == "postgresql":
            sweep = make("sweep", partial(fanout.fence, stopper.result().stop.pk, 8, patient=True))
            assert sweep.waits_for(worker)
        opened = worker.result()
        stop = stopper.result().stop
    reach(stop)
    assert in_flight(stop) == {opened.permit.pk}
    assert look(opened) == "shut"
    assert (fresh(scene.run).status, fresh(scene.run).cancel_version) == ("ACTIVE", 1)
    assert isinstance(scene.dispatch("charge:8"), Refusal)


@pytest.mark.invariant("I2")
def test_of_many_effects_and_a_stop_of_their_kind_each_is_listed_or_refused_and_none_is_neither() -> None:
    scene = Scene()
    runs = [scene.run, *(scene.admitted(f"more-{n}") for n in range(5))]
    calls = [partial(scene.dispatch, f"charge:{n}", run) for n, run in enumerate(runs)]
    stop, *answers = together([scene.stop_effects, *calls])
    reach(stop.stop)
    opened = {answer.permit.pk for answer in answers if isinstance(answer, Opened)}
    assert in_flight(stop.stop) == opened == set(Permit.objects.values_list("pk", flat=True))
    assert {type(answer) for answer in answers} <= {Opened, Refusal}
    assert {look(answer) for answer in answers if isinstance(answer, Opened)} <= {"shut"}
    assert set(Run.objects.values_list("status", flat=True)) == {"ACTIVE"}
    assert set(StopPart.objects.values_list("result", flat=True)) == {"listed"}
    assert isinstance(scene.dispatch("later"), Refusal)


@on_postgresql
@pytest.mark.invariant("I2")
def test_a_list_of_effects_that_passes_through_no_lock_holds_neither_refusal_nor_permit() -> None:
    """The control."""
    scene = Scene()
    with sides() as make:
        worker = make("worker", scene.dispatch, hold=PERMIT)
        worker.stands()
        stopper = make("stop", scene.stop_effects)
        stop = stopper.result().stop  # its own pass goes past the run that is held
        listed = unsafe.permits_of_kind("bank.charge")
        opened = worker.result()
    assert isinstance(opened, Opened)
    assert (listed, in_flight(stop)) == ([], set())


# --- Observe ------------------------------------------------------------------------------------------------


def test_what_an_observing_stop_counts_is_what_began_while_it_observed() -> None:
    scene = Scene()
    watching = scene.stop(observe=True, mode="pause").stop
    calls = [partial(scene.dispatch, f"charge:{n}") for n in range(6)]
    *answers, enforced = together([*calls, partial(scene.stop, mode="pause")])
    opened = sum(isinstance(answer, Opened) for answer in answers)
    reach(enforced.stop)
    assert {type(answer) for answer in answers} <= {Opened, Refusal}
    found = refusals.would_have_refused(watching).count
    assert opened - found in ((0,) if connection.vendor == "sqlite" else range(len(calls) + 1))
    assert (fresh(watching).closed_because, fresh(watching).superseded_by_id) == (
        f"enforced by #{enforced.stop.number}",
        enforced.stop.pk,
    )
    assert in_flight(of_run(scene.run)) == set(Permit.objects.values_list("pk", flat=True))


# --- Many runs, and one of them -----------------------------------------------------------------------------


def stop_list(scene: Scene, *runs: Run) -> StopAnswer:
    ids = [run.pk for run in runs]
    here, who = scene.world.workspace.pk, scene.world.alice
    return bulk.request_bulk_stop(actor=who, workspace_id=here, wish=Wish(), run_ids=ids)


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("first", ["one", "many"])
def test_a_run_that_is_stopped_by_itself_and_with_others_has_one_stop_with_both_presses(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    other = scene.admitted("nightly-2")
    monkeypatch.setattr(fanout, "fence", lambda stop_id, within_s=0.0: False)
    many = stop_list(scene, scene.run, other).stop
    monkeypatch.undo()
    calls: dict[str, Callable[[], Any]] = {
        "one": partial(scene.world.stop, scene.run, by=scene.world.bob),
        "many": partial(fanout.fence, many.pk, 8, patient=True),
    }
    second = next(name for name in calls if name != first)
    with sides() as make:
        one = make(first, calls[first], hold="COMMIT")
        one.stands()
        two = make(second, calls[second])
        assert two.waits_for(one)
        told = {first: one.result(), second: two.result()}
    reach(many)
    assert Press.objects.filter(stop=of_run(scene.run)).count() == 2
    assert told["one"].answer == ("recorded" if first == "one" else "joined")
    results = dict(StopPart.objects.filter(stop=many).values_list("run", "result"))
    assert results == {scene.run.pk: "joined" if first == "one" else "recorded", other.pk: "recorded"}
    assert {fresh(run).cancel_version for run in (scene.run, other)} == {2}


# --- One order of locks: K1 to K4 ---------------------------------------------------------------------------


@on_postgresql
@pytest.mark.invariant("I20")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(unsafe.run_then_step, unsafe.step_then_run, id="K1-a-reaper-that-begins-at-the-step"),
        pytest.param(unsafe.share_then_update, unsafe.share_then_update, id="K2-a-shared-lock-made-stronger"),
        pytest.param(unsafe.first_then_second, unsafe.second_then_first, id="K3-runs-in-two-orders"),
    ],
)
def test_locks_in_two_orders_end_in_a_deadlock_which_is_seen(
    one: unsafe.Locker, other: unsafe.Locker, retried: list[str]
) -> None:
    """The control of all that follows."""
    scene = Scene()
    step, second = scene.world.claimed(scene.run), scene.admitted("nightly-2")
    with sides() as make:
        pair = [
            make(f"side {n}", partial(store.verb(call), step, second), hold=unsafe.THEN)
            for n, call in enumerate((one, other))
        ]
        for side in pair:
            side.stands()
        for side in pair:
            side.go()
        for side in pair:
            side.result()  # the victim's next try goes through
    assert retried == ["40P01"]


HOLDERS: dict[str, Callable[[Scene, Opened], Any]] = {
    "dispatch": lambda scene, opened: scene.dispatch("charge:8"),
    "heartbeat": lambda scene, opened: scene.world.heartbeat(scene.run, opened.permit.token),
    "reaper": lambda scene, opened: drain_run(scene.run.pk),
    "report": lambda scene, opened: scene.world.report(opened),
}


@pytest.mark.invariant("I20")
@pytest.mark.parametrize("holder", HOLDERS)
def test_whoever_holds_a_run_delays_its_fence_and_no_gate(holder: str, retried: list[str]) -> None:
    scene = Scene()
    opened = scene.dispatch()
    if holder == "reaper":
        lapse(opened.permit, opened.step)
    with sides() as make:
        held = make(holder, partial(HOLDERS[holder], scene, opened), hold="COMMIT")
        held.stands()
        stopper = make("stop", partial(scene.stop, mode="cancel"))
        assert stopper.waits_for(held) or connection.vendor == "postgresql"
        if connection.vendor == "postgresql":  # the gate is durable, whether its request waits for a step
            assert scene.scope().gate == "SHUT"
            assert look(opened) == "shut"
            stop = StopRequest.objects.get(scope="workspace")
            sweep = make("sweep", partial(fanout.fence, stop.pk, 8, patient=True))
            waits = sweep.waits_for(held)
            assert waits is (holder != "heartbeat")  # which holds its permit, and not the run
        held.result()
        stop = stopper.result().stop
    reach(stop)
    assert fresh(scene.run).status == "CANCELLING"
    assert "40P01" not in retried
    scene.shut_gates_hold()


@pytest.mark.invariant("I20")
@pytest.mark.parametrize(
    ("first", "second"), [("workspace", "policy"), ("policy", "session"), ("session", "workspace")]
)
def test_k4_two_stops_that_overlap_wait_for_each_other_in_one_order(
    first: str, second: str, unreached: None, retried: list[str]
) -> None:
    """Two fan-outs over the same runs: the second waits for the rows of the first, then goes on."""
    scene = Scene(first)
    runs = [scene.run, *(scene.admitted(f"more-{n}") for n in range(4))]
    below = Scene.__new__(Scene)
    below.__dict__ |= {**vars(scene), "kind": second, "target": target_of(scene, second)}
    stops = [scene.stop(mode="pause").stop, below.stop(mode="cancel").stop]
    with sides() as make:
        one = make(first, partial(fanout.fence, stops[0].pk, 0, patient=True), hold="COMMIT")
        one.stands()
        two = make(second, partial(fanout.fence, stops[1].pk, 8, patient=True))
        assert two.waits_for(one)
        one.result()
        assert two.result()
    for stop in stops:
        reach(stop)
    assert {fresh(run).status for run in runs} == {"CANCELLING"}
    assert StopPart.objects.filter(stop__in=stops).count() == 2 * len(runs)
    assert "40P01" not in retried
    scene.shut_gates_hold()


def target_of(scene: Scene, kind: str) -> Target:
    session = Session.objects.get(key="nightly")
    return Target(
        kind, {"workspace": scene.world.workspace.pk, "session": session.pk, "policy": scene.rule.pk}[kind]
    )


@pytest.mark.invariant("I19")
@pytest.mark.invariant("I20")
def test_three_stops_reapers_workers_and_admissions_at_once_leave_no_run_active_and_no_deadlock(
    retried: list[str],
) -> None:
    scene = Scene()
    runs = [scene.run, *(scene.admitted(f"more-{n}") for n in range(5))]
    steps = [scene.world.claimed(run) for run in runs]
    elsewhere = World()
    theirs = elsewhere.run("theirs")
    calls: list[Callable[[], Any]] = [partial(scene.stop, target_of(scene, kind)) for kind in KINDS]
    calls += [partial(scene.dispatch, f"charge:{n}", run) for n, run in enumerate(runs)]
    calls += [partial(scene.admit, f"new-{n}") for n in range(3)]
    calls += [partial(drain_run, run.pk) for run in runs[:3]]
    calls += [partial(scene.world.heartbeat, step.run, step.claim_token) for step in steps[3:]]
    calls += [partial(intents.dispatch, elsewhere.ask(theirs, step_key="pay"), intention())]
    answers = together(calls)
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    stops = [answer.stop for answer in answers[:3]]
    for stop in stops:
        reach(stop)
    assert "40P01" not in retried
    assert isinstance(answers[-1], Opened)  # another workspace
    assert look(answers[-1]) == "open"
    assert fresh(theirs).status == "ACTIVE"
    scene.shut_gates_hold()
