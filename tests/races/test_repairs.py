"""What carries a compensation out meets people, stops, resumes and the clock: one way or the other, told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from effects import approvals
from effects.models import Approval, Compensation, Review
from effects.resume import NotResumed, Resumed, resume
from runs import compensating, gate, halts
from runs.access import Actor
from runs.guard import Known, Opened, Refusal, lock_run
from runs.models import Membership, Permit
from runs.models import Refusal as RefusalRow
from runs.scopes import Target, request_scope_stop
from runs.stops import Wish
from runs.store import database_time
from tests.effects.compensations import allow, approve, edit, review_of, said
from tests.effects.repairing import a_proposal, ask, with_refunds
from tests.races.sides import sides, together
from tests.races.test_decisions import meet
from tests.worlds import World, fresh, in_flight, in_seconds

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]
ACTS = ['INSERT INTO "runs_permit"', 'UPDATE "effects_approval"', 'UPDATE "effects_compensation"', "COMMIT"]


class Scene:
    """A refund that Alice proposed, of a charge of a run at rest; Bob approved it unless told otherwise."""

    def __init__(self, status: str = "COMPLETED", *, needed: int = 1, granted: bool = True) -> None:
        self.world = with_refunds(World())
        if needed > 1:
            allow(self.world, approvals=needed)
        self.made = a_proposal(self.world, status)
        if granted:
            assert said(self.approve()) == "granted"

    def approve(self, by: Actor | None = None, digest: str = "") -> Any:
        return approve(self.made, by or self.world.bob, digest)

    def edit(self) -> Any:
        return edit(self.made, self.world.carol)

    def revoke(self) -> Any:
        return approvals.revoke(actor=self.world.bob, review_id=review_of(self.made).pk)

    def dispatch(self) -> Any:
        return ask(Compensation.objects.select_related("effect").get(pk=self.made.pk))

    def resume(self) -> Any:
        return resume(actor=self.world.alice, run_id=self.made.run_id, reason="go on")

    def stop(self) -> Any:
        target = Target("workspace", self.world.workspace.pk)
        wish = Wish(mode="pause")
        return request_scope_stop(actor=self.world.alice, wish=wish, target=target).stop

    @property
    def state(self) -> str:
        return str(fresh(self.made).state)

    @property
    def approvals(self) -> list[str]:
        return list(Approval.objects.order_by("pk").values_list("state", flat=True))

    @property
    def permits(self) -> int:
        return Permit.objects.filter(guard="compensate").count()


# --- Approve and edit, approve and revoke -------------------------------------------------------------------


@pytest.mark.invariant("I14")
def test_an_edit_that_comes_second_to_a_yes_voids_it() -> None:
    scene = Scene(granted=False)
    granted, edited = meet(scene.approve, scene.edit)
    assert (said(granted), said(edited)) == ("granted", "PROPOSED")
    assert (scene.state, scene.approvals) == ("PROPOSED", ["VOID"])
    assert isinstance(scene.dispatch(), Known)
    assert scene.permits == 0


@pytest.mark.invariant("I14")
def test_a_yes_that_comes_second_to_an_edit_is_told_that_it_changed() -> None:
    scene = Scene(granted=False)
    shown = review_of(scene.made).digest
    edited, told = meet(scene.edit, lambda: scene.approve(digest=shown))
    assert (said(edited), said(told)) == ("PROPOSED", "changed")
    assert (scene.state, scene.approvals) == ("PROPOSED", [])


@pytest.mark.invariant("I16")
@pytest.mark.parametrize("first", ["approve", "revoke"])
def test_a_second_yes_and_the_revoke_of_the_first_never_add_up(first: str) -> None:
    scene = Scene(needed=2, granted=False)
    assert said(scene.approve()) == "approved"

    def second() -> Any:
        return scene.approve(scene.world.carol)

    if first == "approve":
        given, revoked = meet(second, scene.revoke)
        assert (said(given), said(revoked)) == ("granted", "revoked")
    else:
        revoked, given = meet(scene.revoke, second)
        assert (said(revoked), said(given)) == ("revoked", "approved")
    assert (scene.state, sorted(scene.approvals)) == ("PROPOSED", ["GIVEN", "REVOKED"])


# --- Revoke and dispatch ------------------------------------------------------------------------------------


@pytest.mark.invariant("I16")
@pytest.mark.parametrize("act", ACTS)
def test_a_revoke_that_comes_second_to_the_dispatch_is_told_that_it_was_used(act: str) -> None:
    scene = Scene()
    opened, told = meet(scene.dispatch, scene.revoke, act)
    assert isinstance(opened, Opened)
    assert (said(told), scene.approvals, scene.state) == ("used", ["CONSUMED"], "DISPATCHED")


@pytest.mark.invariant("I16")
def test_a_dispatch_that_comes_second_to_the_revoke_sends_nothing() -> None:
    scene = Scene()
    told, answer = meet(scene.revoke, scene.dispatch)
    assert said(told) == "revoked"
    assert isinstance(answer, Known)
    assert (scene.approvals, scene.state, scene.permits) == (["REVOKED"], "PROPOSED", 0)


@pytest.mark.invariant("I14")
def test_of_many_who_carry_it_out_at_once_one_gets_its_permit() -> None:
    scene = Scene(needed=2, granted=False)
    scene.approve()
    scene.approve(scene.world.carol)
    answers = together([scene.dispatch] * 3)
    assert sorted(type(one).__name__ for one in answers) == ["Known", "Known", "Opened"]
    assert (scene.permits, scene.approvals, fresh(scene.made).attempt) == (1, ["CONSUMED", "CONSUMED"], 1)


# --- The clock, and a role ----------------------------------------------------------------------------------


def late(scene: Scene, second: Callable[[], Any]) -> Any:
    """Who begins in time and waits for the run's lock until the review's time is over."""

    def hold_the_run() -> None:
        with transaction.atomic():
            lock_run(scene.made.run_id)

    end = in_seconds(0.4)
    Review.objects.filter(subject_id=scene.made.pk).update(expires_at=end)
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
def test_a_dispatch_that_waited_past_the_end_of_its_review_sends_nothing() -> None:
    scene = Scene()
    refused = late(scene, scene.dispatch)
    assert isinstance(refused, Refusal)
    assert (refused.reason, scene.approvals, scene.state) == ("not_approved", ["EXPIRED"], "EXPIRED")
    assert scene.permits == 0


@pytest.mark.invariant("I14")
def test_a_yes_that_waited_past_the_end_of_its_review_is_too_late() -> None:
    scene = Scene(granted=False)
    assert said(late(scene, scene.approve)) == "expired"
    assert (scene.approvals, scene.permits) == ([], 0)


@pytest.mark.invariant("I29")
@pytest.mark.only("postgresql")
@pytest.mark.invariant("I14")
def test_a_role_that_is_lost_between_the_gates_look_and_the_use_of_the_approval_counts() -> None:
    """No lock keeps a role: the use of an approval looks again, and what was begun is kept nowhere."""
    scene = Scene()
    assert scene.world.bob.user is not None
    with sides() as make:
        worker = make("dispatch", scene.dispatch, hold='INSERT INTO "runs_permit"')
        worker.stands()  # the gate has found the approval
        Membership.objects.filter(user=scene.world.bob.user).update(role="viewer")
        refused = worker.result()
    assert isinstance(refused, Refusal)
    assert (refused.reason, scene.approvals, scene.state) == ("not_approved", ["VOID"], "PROPOSED")
    assert scene.permits == 0


# --- A stop of the scope ------------------------------------------------------------------------------------


@pytest.mark.invariant("I18")
@pytest.mark.parametrize("act", ACTS)
def test_a_stop_that_comes_second_lists_the_compensation_and_shuts_its_second_look(act: str) -> None:
    scene = Scene()
    opened, stop = meet(scene.dispatch, scene.stop, act)
    assert isinstance(opened, Opened)
    assert in_flight(stop) == {opened.permit.pk}
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "shut"


@pytest.mark.invariant("I18")
def test_a_compensation_that_comes_second_to_a_stop_is_refused_and_told_which() -> None:
    scene = Scene()
    stop, refused = meet(scene.stop, scene.dispatch)
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.stop_id) == ("halted", stop.pk)
    assert (in_flight(stop), scene.permits, scene.approvals) == (set(), 0, ["GIVEN"])
    assert RefusalRow.objects.get(reason="halted").count == 1


@pytest.mark.invariant("I18")
def test_whoever_comes_first_each_compensation_is_listed_or_refused_and_none_is_missed() -> None:
    listed = refused = 0
    for first in ("stop", "dispatch") * 3:
        scene = Scene()
        calls: list[Callable[[], Any]] = [scene.stop, scene.dispatch]
        answers = together(calls if first == "stop" else calls[::-1])
        stop, told = answers if first == "stop" else answers[::-1]
        if isinstance(told, Opened):
            assert in_flight(stop) == {told.permit.pk}
            assert gate.look(told.permit.pk, told.permit.token).answer == "shut"
            listed += 1
        else:
            assert told.reason == "halted"
            refused += 1
    assert listed + refused == 6


@pytest.mark.only("postgresql")
def test_a_guard_that_locks_its_run_alone_misses_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the stop of a scope locks no run, so whoever locks nothing else comes between."""
    scene = Scene()
    monkeypatch.setattr(compensating, "_locked", lock_run)
    with sides() as make:
        stopper = make("stop", scene.stop, hold="COMMIT")
        stopper.stands()
        worker = make("dispatch", scene.dispatch)
        assert not worker.waits_for(stopper)
        opened, stop = worker.result(), stopper.result()
    assert isinstance(opened, Opened)
    assert in_flight(stop) == set(), "sent behind the stop, and in no list"


def test_a_halt_that_is_lifted_while_it_is_asked_comes_before_or_after() -> None:
    scene = Scene()
    scene.stop()
    (halt,) = halts.in_force(scene.world.workspace.pk)

    def lift() -> Any:
        return halts.lift(actor=scene.world.bob, halt_id=halt.pk, reason="checked")

    refused, _ = meet(scene.dispatch, lift)
    assert isinstance(refused, Refusal)
    assert isinstance(scene.dispatch(), Opened)


# --- A resume -----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I18")
def test_a_resume_that_comes_second_to_the_dispatch_must_wait() -> None:
    scene = Scene("PAUSED")
    opened, told = meet(scene.dispatch, scene.resume)
    assert isinstance(opened, Opened)
    assert isinstance(told, NotResumed)
    assert (told.reason, fresh(scene.made.run).status) == ("must wait", "PAUSED")


@pytest.mark.invariant("I18")
def test_a_dispatch_that_comes_second_to_a_resume_finds_it_void() -> None:
    scene = Scene("PAUSED")
    told, answer = meet(scene.resume, scene.dispatch)
    assert isinstance(told, Resumed)
    assert isinstance(answer, Known)
    assert (scene.state, scene.approvals, scene.permits) == ("VOID", ["VOID"], 0)
