"""What people decide meets dispatches, stops, clocks and each other. One way or the other, all are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from effects import approvals, intents
from effects.approvals import Decided, NotDecided
from effects.models import Approval, Effect, Review
from runs.access import Actor
from runs.guard import Opened, Refusal, Waiting, lock_run
from runs.models import Membership, Permit, Step
from runs.store import database_time
from tests.races import unsafe
from tests.races.sides import Side, sides
from tests.worlds import World, fresh, in_flight, in_seconds, intention, kinds_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]
CONSUME = 'UPDATE "effects_approval"'


class Scene:
    """A run in which a charge waits for people."""

    def __init__(self, needed: int = 1) -> None:
        self.world = World()
        self.run = self.world.run()
        self.needed = needed
        answer = self.dispatch()
        assert isinstance(answer, Waiting)
        self.review = Review.objects.get(pk=answer.review.pk)

    def dispatch(self) -> Any:
        ask = self.world.ask(self.run, step_key="charge:7")
        return intents.dispatch(ask, intention(approvals=self.needed))

    def approve(self, by: Actor | None = None) -> Any:
        who = by or self.world.bob
        digest = self.review.digest
        return approvals.approve(actor=who, review_id=self.review.pk, digest=digest, signed_in_s=1)

    def revoke(self) -> Any:
        return approvals.revoke(actor=self.world.bob, review_id=self.review.pk)

    def stop(self) -> Any:
        return self.world.stop(self.run)

    def granted(self) -> Scene:
        assert said(self.approve()) == "granted"
        return self

    @property
    def states(self) -> list[str]:
        return list(Approval.objects.order_by("pk").values_list("state", flat=True))

    @property
    def permits(self) -> int:
        return Permit.objects.count()


def said(told: Decided | NotDecided) -> str:
    return told.answer if isinstance(told, Decided) else told.reason


def meet(first: Callable[[], Any], second: Callable[[], Any], hold: str = "COMMIT") -> tuple[Any, Any]:
    """`first` stands at `hold`; `second` has to wait for it."""
    with sides() as make:
        one: Side[Any] = make("first", first, hold=hold)
        one.stands()
        two: Side[Any] = make("second", second)
        assert two.waits_for(one)
        return one.result(), two.result()


# --- Revoke and use ---------------------------------------------------------------------------------------


@pytest.mark.invariant("I16")
def test_a_revoke_that_comes_second_is_told_that_the_approval_was_used() -> None:
    scene = Scene().granted()
    opened, revoked = meet(scene.dispatch, scene.revoke)
    assert isinstance(opened, Opened)
    assert (said(revoked), scene.states, scene.permits) == ("used", ["CONSUMED"], 1)


@pytest.mark.invariant("I16")
def test_a_dispatch_that_comes_second_to_a_revoke_waits_for_people() -> None:
    scene = Scene().granted()
    revoked, answer = meet(scene.revoke, scene.dispatch)
    assert said(revoked) == "revoked"
    assert isinstance(answer, Waiting)
    assert (scene.states, scene.permits) == (["REVOKED"], 0)


@pytest.mark.only("postgresql")
def test_asking_whether_an_approval_exists_tells_both_that_they_came_first() -> None:
    """The control: a dispatch that only looks does not wait for the revoke, and sends what was revoked."""
    scene = Scene().granted()
    effect = Effect.objects.get()
    with sides() as make:
        revoke = make("revoke", lambda: unsafe.revoke(scene.review), hold="COMMIT")
        revoke.stands()
        looked = make("dispatch", lambda: unsafe.dispatch_if_approved(effect))
        assert not looked.waits_for(revoke)
        assert (looked.result(), revoke.result()) == (1, 1), "revoked, and sent"
    assert scene.states == ["REVOKED"]
    assert fresh(effect).settlement == "DISPATCHED"


# --- A stop -----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I17")
def test_a_stop_between_the_grant_and_the_dispatch_uses_nothing_up() -> None:
    scene = Scene().granted()
    stopped, refused = meet(scene.stop, scene.dispatch)
    assert isinstance(refused, Refusal)
    assert refused.reason == "stopped"
    assert (scene.states, scene.permits) == (["VOID"], 0)
    assert fresh(scene.review).stop_id == stopped.stop.pk
    assert Step.objects.get().status == "WITHHELD"


@pytest.mark.invariant("I17")
@pytest.mark.parametrize("hold", ["COMMIT", CONSUME])
def test_a_stop_that_comes_while_an_approval_is_used_lists_what_it_allowed(hold: str) -> None:
    scene = Scene().granted()
    opened, stopped = meet(scene.dispatch, scene.stop, hold)
    assert isinstance(opened, Opened)
    assert in_flight(stopped.stop) == {opened.permit.pk}
    assert scene.states == ["CONSUMED"]
    assert fresh(scene.review).closed_as == "used", "a stop closes only what was still to be decided"


@pytest.mark.invariant("I17")
def test_a_yes_that_comes_second_to_a_stop_is_evidence_and_starts_nothing() -> None:
    scene = Scene()
    _stopped, told = meet(scene.stop, scene.approve)
    assert (said(told), scene.states) == ("late", [])
    assert Step.objects.get().status == "WITHHELD"
    assert kinds_of(scene.run).count("approval.late") == 1


@pytest.mark.invariant("I17")
def test_a_stop_that_comes_second_to_a_yes_withholds_what_it_queued() -> None:
    scene = Scene()
    told, _stopped = meet(scene.approve, scene.stop)
    assert isinstance(told, Decided)
    assert (told.answer, told.started) == ("granted", True)
    assert (scene.states, Step.objects.get().status) == (["VOID"], "WITHHELD")
    assert isinstance(scene.dispatch(), Refusal)
    assert scene.permits == 0


# --- People -----------------------------------------------------------------------------------------------


def test_of_two_who_approve_at_once_where_one_is_needed_one_does() -> None:
    scene = Scene()
    first, second = meet(scene.approve, lambda: scene.approve(scene.world.carol))
    assert [said(first), said(second)] == ["granted", "granted"]
    assert isinstance(second, NotDecided), "told that it has all it needs"
    assert scene.states == ["GIVEN"]
    assert kinds_of(scene.run).count("step.pending") == 1


def test_of_two_who_approve_at_once_where_two_are_needed_both_do() -> None:
    scene = Scene(needed=2)
    first, second = meet(scene.approve, lambda: scene.approve(scene.world.carol))
    assert [said(first), said(second)] == ["approved", "granted"]
    assert scene.states == ["GIVEN", "GIVEN"]


@pytest.mark.invariant("I14")
def test_one_person_in_two_sessions_counts_once() -> None:
    scene = Scene(needed=2)
    first, second = meet(scene.approve, scene.approve)
    assert [said(first), said(second)] == ["approved", "already"]
    assert scene.states == ["GIVEN"]


# --- A role -----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I29")
@pytest.mark.invariant("I14")
@pytest.mark.only("postgresql")
@pytest.mark.parametrize("lost", [{"role": "viewer"}, None], ids=["lowered", "left"])
def test_a_role_that_is_lost_between_the_gates_look_and_the_use_of_the_yes_counts(lost: Any) -> None:
    """No lock keeps a role: the use of an approval looks again, and what was begun is kept nowhere."""
    scene = Scene().granted()
    rows = Membership.objects.filter(user=scene.world.bob.user)
    with sides() as make:
        worker = make("dispatch", scene.dispatch, hold='INSERT INTO "runs_permit"')
        worker.stands()  # the gate has found the approval
        rows.update(**lost) if lost else rows.delete()
        answer = worker.result()
    assert isinstance(answer, Waiting), "people have to decide again"
    assert (scene.states, scene.permits, Effect.objects.get().settlement) == (["VOID"], 0, "DECLARED")
    assert said(scene.approve(scene.world.carol)) == "granted"
    assert isinstance(scene.dispatch(), Opened), "the control: of another it is sent"


@pytest.mark.invariant("I29")
def test_a_role_that_is_lost_before_the_dispatch_asks_is_lost_at_the_gate() -> None:
    scene = Scene().granted()
    Membership.objects.filter(user=scene.world.bob.user).update(role="viewer")
    assert isinstance(scene.dispatch(), Waiting)
    assert (scene.states, scene.permits) == (["VOID"], 0)


# --- The clock --------------------------------------------------------------------------------------------


def late(scene: Scene, second: Callable[[], Any]) -> Any:
    """Who begins in time and waits for the run's lock until the review's time is over."""

    def hold_the_run() -> None:
        with transaction.atomic():
            lock_run(scene.run.pk)

    end = in_seconds(0.4)
    Review.objects.filter(pk=scene.review.pk).update(expires_at=end)
    with sides() as make:
        holder = make("holder", hold_the_run, hold="COMMIT")
        holder.stands()
        two = make("second", second)
        assert two.waits_for(holder)
        assert database_time() < end, "it began in time"
        while database_time() <= end:
            time.sleep(0.02)
        holder.result()
        return two.result()


@pytest.mark.invariant("I14")
def test_a_yes_that_waited_past_the_end_is_too_late() -> None:
    scene = Scene()
    assert said(late(scene, scene.approve)) == "expired"
    assert scene.states == []


@pytest.mark.invariant("I14")
def test_a_dispatch_that_waited_past_the_end_of_its_approval_sends_nothing() -> None:
    scene = Scene().granted()
    refused = late(scene, scene.dispatch)
    assert isinstance(refused, Refusal)
    assert refused.reason == "not_approved"
    assert (scene.states, scene.permits) == (["EXPIRED"], 0)


@pytest.mark.only("postgresql")
def test_the_clock_of_the_transactions_start_would_let_it_through() -> None:
    """The control: `now()` stands still while a lock is waited for."""
    end = in_seconds(0.2)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT now() < %s, clock_timestamp() < %s", [end, end])
        assert cursor.fetchone() == (True, True)
        time.sleep(0.25)
        cursor.execute("SELECT now() < %s, clock_timestamp() < %s", [end, end])
        assert cursor.fetchone() == (True, False)
