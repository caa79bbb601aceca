"""Approval before an effect: who is asked, who may decide, what a yes starts. Tables from the contract."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from effects import approvals, ends, four_eyes, intents
from effects.approvals import Decided, NotDecided
from effects.drain import drain_run
from effects.models import Approval, Effect, Review
from effects.restore import Before, put_to_rest
from effects.resume import Resumed, resume
from runs import access, fanout, gate, gates, rules, scopes
from runs.access import Actor, NotAllowed, NotFound
from runs.evidence import Line, record
from runs.guard import Known, Opened, Refusal, Waiting, lock_run
from runs.models import Evidence, EvidencePayload, Membership, Permit, Restore, Role, Run, Step
from runs.rules import ApprovalRule, Rules
from runs.scopes import Target
from runs.stops import Wish
from tests.worlds import (
    World,
    a_kind,
    a_permit,
    a_person,
    a_review,
    a_step,
    a_token,
    an_approval,
    an_effect,
    fresh,
    in_seconds,
    intention,
    kinds_of,
)

pytestmark = pytest.mark.django_db


def in_the_past() -> datetime:
    return in_seconds(-1)


def ask_gate(world: World, run: Run, needed: int = 1, key: str = "charge:7", **ask: Any) -> Any:
    """The agent asks to send, and wants so many people to decide first."""
    named = ask if "step_id" in ask else {"step_key": key, **ask}
    return intents.dispatch(world.ask(run, **named), intention(key, approvals=needed))


def waiting(world: World, run: Run, needed: int = 1, key: str = "charge:7") -> Review:
    answer = ask_gate(world, run, needed, key)
    assert isinstance(answer, Waiting)
    review: Review = answer.review
    return Review.objects.get(pk=review.pk)


def approve(review: Review, by: Actor, digest: str = "", **more: Any) -> Decided | NotDecided:
    given = {"digest": digest or fresh(review).digest, "signed_in_s": 5.0, **more}
    return approvals.approve(actor=by, review_id=review.pk, **given)


def reject(review: Review, by: Actor, reason: str = "the amount is wrong") -> Decided | NotDecided:
    return approvals.reject(actor=by, review_id=review.pk, reason=reason)


def answer_of(told: Decided | NotDecided) -> str:
    return told.answer if isinstance(told, Decided) else told.reason


def states(review: Review) -> list[str]:
    return list(Approval.objects.filter(review=review).order_by("pk").values_list("state", flat=True))


# --- The gate asks people first ---------------------------------------------------------------------------


def test_an_effect_that_wants_a_person_waits_with_its_intent_committed(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    effect, step = Effect.objects.get(run=run), Step.objects.get(run=run)
    assert (effect.settlement, effect.permit, effect.body) == ("DECLARED", None, b'{"amount": 100}')
    assert (step.status, step.claim_token) == ("WAITING_APPROVAL", "")
    assert not Permit.objects.exists()
    assert (review.needed, review.asked_because, review.asked_by) == (1, "agent", world.agent.id)
    assert kinds_of(run)[-3:] == ["effect.declared", "review.waiting", "step.waiting_approval"]
    lines = kinds_of(run)
    again = ask_gate(world, run)
    assert isinstance(again, Waiting)
    assert (again.review.pk, kinds_of(run)) == (review.pk, lines), "asked again, it is the same question"


def test_a_yes_queues_the_step_and_the_dispatch_uses_it_up(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    decided = approve(review, world.bob, comment="amount matches")
    assert isinstance(decided, Decided)
    assert (decided.answer, decided.started, Step.objects.get(run=run).status) == ("granted", True, "PENDING")
    opened = ask_gate(world, run)
    assert isinstance(opened, Opened)
    approval = Approval.objects.get()
    assert (approval.state, approval.permit) == ("CONSUMED", opened.permit)
    assert fresh(review).closed_as == "used"
    world.report(opened)
    assert Effect.objects.get().settlement == "CONFIRMED"
    assert answer_of(reject(review, world.carol)) == "used"
    again = ask_gate(world, run)
    assert isinstance(again, Known)
    assert again.answer == "settled", "one approval is one dispatch"


def test_a_step_that_was_claimed_waits_and_is_claimed_again(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    held: dict[str, Any] = {"step_id": step.pk, "claim_token": step.claim_token}
    first = ask_gate(world, run, **held)
    assert isinstance(first, Waiting)
    assert fresh(step).status == "WAITING_APPROVAL"
    taken = gate.claim(world.ask(run, step_id=step.pk))
    assert isinstance(taken, Refusal)
    assert taken.reason == "lost_claim"
    approve(first.review, world.bob)
    claimed = gate.claim(world.ask(run, step_id=step.pk, worker="w-2"))
    assert isinstance(claimed, Step)
    assert isinstance(ask_gate(world, run, step_id=step.pk, claim_token=claimed.claim_token), Opened)


def test_a_step_with_a_call_under_way_stays_with_its_worker(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    held: dict[str, Any] = {"step_id": step.pk, "claim_token": step.claim_token}
    flying = world.opened(run, "charge:1", **held)
    second = ask_gate(world, run, key="charge:2", **held)
    assert isinstance(second, Waiting)
    assert (fresh(step).status, fresh(step).claim_token) == ("DISPATCHED", step.claim_token)
    world.report(flying)
    assert isinstance(ask_gate(world, run, key="charge:2", **held), Waiting)
    assert fresh(step).status == "WAITING_APPROVAL", "its call is over: now it waits"
    approve(second.review, world.bob)
    assert fresh(step).status == "PENDING"


def test_the_rules_of_a_workspace_ask_for_more_than_the_agent(world: World) -> None:
    wanted = Rules(approvals=(ApprovalRule(kind="bank.charge", approvals=2, expires_s=600),))
    rules.change_rules(actor=access.SET_UP, workspace_id=world.workspace.pk, version=0, rules=wanted)
    run = world.run()
    review = waiting(world, run, 0)
    assert (review.needed, review.asked_because) == (2, "rules")
    assert (review.expires_at - review.asked_at).total_seconds() == pytest.approx(600, abs=2)
    assert answer_of(approve(review, world.bob)) == "approved"
    assert isinstance(ask_gate(world, run, 0), Waiting)
    assert answer_of(approve(review, world.carol)) == "granted"
    assert isinstance(ask_gate(world, run, 0), Opened)
    assert states(review) == ["CONSUMED", "CONSUMED"]
    assert isinstance(ask_gate(world, run, 0, key="mail:1", step_key="mail:1"), Waiting)


def test_rules_that_became_stricter_hold_for_what_waits_already(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    wanted = Rules(approvals=(ApprovalRule(kind="bank.charge", approvals=2),))
    rules.change_rules(actor=access.SET_UP, workspace_id=world.workspace.pk, version=0, rules=wanted)
    assert isinstance(ask_gate(world, run), Waiting)
    assert (fresh(review).needed, states(review)) == (2, ["GIVEN"])
    assert Step.objects.get(run=run).status == "WAITING_APPROVAL"
    assert answer_of(approve(review, world.carol)) == "granted"
    assert isinstance(ask_gate(world, run), Opened)


def test_without_rules_and_without_a_wish_nobody_is_asked(world: World) -> None:
    assert isinstance(ask_gate(world, world.run(), 0), Opened)
    assert not Review.objects.exists()


# --- Who may not ------------------------------------------------------------------------------------------


def test_owner_proposer_and_stopper_may_not_approve_though_they_are_admins(world: World) -> None:
    erin, frank, grace = (
        access.person(a_person(name, world.workspace, Role.ADMIN)) for name in ("erin", "frank", "grace")
    )
    token = a_token(world.workspace)
    assert token.token is not None
    type(token.token).objects.filter(pk=token.token.pk).update(created_by=frank.user)
    run = world.run()
    Run.objects.filter(pk=run.pk).update(owner=erin.user)
    world.stop(run, by=grace, mode="pause")
    drain_run(run.pk)
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="go on"), Resumed)
    run = fresh(run)
    asked = intents.dispatch(
        world.ask(run, actor=token, step_key="charge:7"), intention("charge:7", approvals=1)
    )
    assert isinstance(asked, Waiting)
    said = {
        name: answer_of(approve(asked.review, who))
        for name, who in {"owner": erin, "proposer": frank, "stopper": grace}.items()
    }
    assert said == {"owner": "owner", "proposer": "proposer", "stopper": "stopper"}
    assert not Approval.objects.exists()
    assert answer_of(approve(asked.review, world.bob)) == "granted"


def test_tokens_viewers_operators_and_strangers_have_no_way_in(world: World) -> None:
    review = waiting(world, world.run())
    for actor in (world.agent, world.alice, world.dana):
        for decide in (approve, reject):
            with pytest.raises(NotAllowed):
                decide(review, actor)
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            approve(review, actor)
    assert world.bob.user is not None
    elsewhere = access.Actor(world.bob.id, user=world.bob.user, via="api")
    assert answer_of(approve(review, elsewhere)) == "token", "a person's id over another way is no person"
    assert not Approval.objects.exists()


def test_the_same_person_counts_once_also_in_a_second_session_and_under_a_new_name(world: World) -> None:
    review = waiting(world, world.run(), 2)
    assert answer_of(approve(review, world.bob)) == "approved"
    assert world.bob.user is not None
    world.bob.user.name = "Robert"
    world.bob.user.save(update_fields=["name"])
    assert answer_of(approve(review, access.person(world.bob.user, "198.51.100.7"))) == "already"
    assert answer_of(approve(review, world.carol)) == "granted"
    assert answer_of(approve(review, world.bob)) == "already"


@pytest.mark.parametrize(("age", "answer"), [(None, "sign-in"), (601.0, "sign-in"), (599.0, "granted")])
def test_an_old_sign_in_does_not_approve(world: World, age: float | None, answer: str) -> None:
    assert answer_of(approve(waiting(world, world.run()), world.bob, signed_in_s=age)) == answer


def test_the_schema_forbids_what_the_rule_forbids() -> None:
    person = a_person("bob")
    review = a_review(proposer=person)
    with pytest.raises(IntegrityError), transaction.atomic():
        an_approval(review, person=person, proposer=person)
    an_approval(review, person=a_person("carol"))
    other = Approval.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        an_approval(review, person=other.person)
    with pytest.raises(IntegrityError), transaction.atomic():
        a_review(review.effect)


@pytest.mark.invariant("I14")
@pytest.mark.parametrize(
    ("changed", "counts"),
    [({}, 1), ({"digest": "other bytes"}, 0), ({"expires_at": in_the_past}, 0)],
    ids=["as approved", "other bytes", "over"],
)
def test_each_guard_holds_alone(world: World, changed: dict[str, Any], counts: int) -> None:
    """Digest and clock are asked twice on the way to a send; here each is asked with the others away."""
    review = a_review(an_effect(a_step(world.run(), "WAITING_APPROVAL")))
    made = {name: value() if callable(value) else value for name, value in changed.items()}
    given = {"digest": review.digest, "expires_at": in_seconds(60), "person": world.bob.user, **made}
    approval = Approval.objects.create(review=review, **given)
    assert len(four_eyes.counting(review, review.run)) == counts
    rows = Approval.objects.filter(pk=approval.pk)
    assert Approval.consume(rows, a_permit(), review.digest) == counts


# --- When a yes does not hold -----------------------------------------------------------------------------


@pytest.mark.invariant("I15")
def test_a_yes_names_the_digest_that_was_shown(world: World) -> None:
    review = waiting(world, world.run())
    assert answer_of(approve(review, world.bob, digest="0" * 64)) == "changed"
    assert not Approval.objects.exists()


@pytest.mark.invariant("I15")
def test_new_evidence_voids_every_yes_and_people_are_asked_again(world: World) -> None:
    run = world.run()
    review = waiting(world, run, 2)
    approve(review, world.bob)
    seen = fresh(review).digest
    with transaction.atomic():
        record(lock_run(run.pk), Line("effect.looked_up", "system", effect_key="charge:7"))
    assert answer_of(approve(review, world.carol, digest=seen)) == "changed"
    assert (states(review), fresh(review).digest != seen) == (["VOID"], True)
    assert {"approval.voided", "review.changed"} <= set(kinds_of(run))
    assert answer_of(approve(review, world.carol)) == "approved"
    assert answer_of(approve(review, world.bob)) == "granted"
    assert isinstance(ask_gate(world, run, 2), Opened)


@pytest.mark.invariant("I15")
@pytest.mark.parametrize(
    "new",
    [{"send": {"url": "https://elsewhere.example/charges"}}, {"account": "another"}, {"provider": "job"}],
)
def test_where_a_kind_sends_to_and_as_whom_is_part_of_what_was_approved(
    world: World, new: dict[str, Any]
) -> None:
    kind = a_kind(world.workspace, send={"url": "https://bank.example/charges"})
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    type(kind).objects.filter(pk=kind.pk).update(**new)
    assert isinstance(ask_gate(world, run), Waiting)
    assert states(review) == ["VOID"]


def test_a_reviewer_who_lost_the_role_does_not_count_at_the_dispatch(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    Membership.objects.filter(user=world.bob.user).update(role=Role.OPERATOR)
    assert isinstance(ask_gate(world, run), Waiting)
    assert (states(review), Step.objects.get(run=run).status) == (["VOID"], "WAITING_APPROVAL")
    assert not Permit.objects.exists()


@pytest.mark.invariant("I16")
def test_a_revoked_yes_sends_the_step_back_to_wait(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    revoked = approvals.revoke(actor=world.bob, review_id=review.pk, reason="I misread it")
    assert (answer_of(revoked), states(review)) == ("revoked", ["REVOKED"])
    assert Step.objects.get(run=run).status == "WAITING_APPROVAL"
    assert isinstance(ask_gate(world, run), Waiting)
    assert answer_of(approvals.revoke(actor=world.carol, review_id=review.pk)) == "none"
    assert answer_of(approve(review, world.bob)) == "granted", "a new yes is a new row"


@pytest.mark.invariant("I16")
def test_a_yes_that_was_used_can_not_be_revoked_and_its_giver_is_told(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    assert isinstance(ask_gate(world, run), Opened)
    assert answer_of(approvals.revoke(actor=world.bob, review_id=review.pk)) == "used"
    assert states(review) == ["CONSUMED"]


def test_a_call_that_was_not_sent_needs_a_new_yes(world: World) -> None:
    run = world.run()
    first = waiting(world, run)
    approve(first, world.bob)
    opened = ask_gate(world, run)
    assert isinstance(opened, Opened)
    world.report(opened, "not_sent")
    second = waiting(world, run)
    assert second.pk != first.pk
    assert Effect.objects.get().settlement == "DECLARED"


# --- No ---------------------------------------------------------------------------------------------------


def test_one_no_withholds_the_step_with_who_and_why(world: World) -> None:
    run = world.run()
    review = waiting(world, run, 2)
    approve(review, world.bob)
    for reason in (" ", ".", "\u3164"):
        assert answer_of(reject(review, world.carol, reason)) == "reason"
    assert answer_of(reject(review, world.carol)) == "rejected"
    closed = fresh(review)
    assert (closed.closed_as, closed.closed_by, closed.reason) == (
        "rejected",
        world.carol.id,
        "the amount is wrong",
    )
    assert (states(review), Step.objects.get(run=run).status) == (["VOID"], "WITHHELD")
    refused = ask_gate(world, run, 2)
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.run_status) == ("not_approved", "ACTIVE")
    claim = gate.claim(world.ask(run, step_id=Step.objects.get(run=run).pk))
    assert isinstance(claim, Refusal)
    assert claim.reason == "not_approved", "its run is not stopped, and nobody is told that it is"
    assert answer_of(approve(review, world.bob)) == "closed"
    assert isinstance(ask_gate(world, run, 0, key="mail:1"), Opened), "the run goes on"


def test_a_step_of_which_an_effect_happened_is_partial_after_a_no(world: World) -> None:
    run = world.run()
    step = world.claimed(run)
    held: dict[str, Any] = {"step_id": step.pk, "claim_token": step.claim_token}
    world.report(world.opened(run, "charge:1", **held))
    second = ask_gate(world, run, key="charge:2", **held)
    assert isinstance(second, Waiting)
    reject(second.review, world.bob)
    assert fresh(step).status == "PARTIAL"


def test_a_review_whose_time_is_over_starts_nothing_whoever_comes_first(world: World) -> None:
    run = world.run()
    reviews_ = [waiting(world, run, key=f"charge:{n}") for n in range(3)]
    approve(reviews_[0], world.bob)
    Review.objects.filter(run=run).update(expires_at=in_seconds(-1))
    assert answer_of(approve(reviews_[1], world.bob)) == "expired"
    refused = ask_gate(world, run, key="charge:2")
    assert isinstance(refused, Refusal)
    assert refused.reason == "not_approved"
    assert sorted(approvals.over()) == sorted(review.pk for review in reviews_[:2])
    for review_id in approvals.over():
        assert approvals.expire(review_id)
        assert not approvals.expire(review_id)
    assert set(Review.objects.filter(run=run).values_list("closed_as", flat=True)) == {"expired"}
    assert states(reviews_[0]) == ["EXPIRED"]
    assert set(Step.objects.filter(run=run).values_list("status", flat=True)) == {"WITHHELD"}
    assert fresh(reviews_[2]).closed_by == "system"


# --- A stop, an end, a pause ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["cancel", "abandon"])
@pytest.mark.parametrize("granted", [False, True])
def test_a_stop_closes_what_waits_and_a_late_yes_is_evidence_only(
    world: World, mode: str, granted: bool
) -> None:
    run = world.run()
    review = waiting(world, run)
    if granted:
        approve(review, world.bob)
    stop = world.stop(run, mode=mode).stop
    closed = fresh(review)
    assert (closed.closed_as, closed.closed_by, closed.stop_id) == ("cancelled", world.alice.id, stop.pk)
    assert (closed.reason, states(review)) == (f"stop #{stop.number}", ["VOID"] if granted else [])
    assert Step.objects.get(run=run).status == "WITHHELD"
    for _ in range(2):
        assert answer_of(approve(review, world.carol)) == "late"
    assert kinds_of(run).count("approval.late") == 1
    said = ask_gate(world, fresh(run))
    if mode == "cancel":
        assert isinstance(said, Refusal)
        assert said.reason == "stopped"
    else:
        assert isinstance(said, Known)
        assert said.answer == "settled", "never started, and never will be"
    assert not Permit.objects.exists()


@pytest.mark.invariant("I17")
@pytest.mark.parametrize("mode", ["pause", "cancel"])
def test_a_yes_between_a_scope_s_acknowledgement_and_its_runs_starts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    run = world.run()
    review = waiting(world, run)
    target = Target("workspace", world.workspace.pk)
    with monkeypatch.context() as dies:
        dies.setattr(scopes, "_fence", lambda stop_id: False)
        stop = scopes.request_scope_stop(actor=world.alice, wish=Wish(mode=mode), target=target).stop
    assert fresh(run).status == "ACTIVE", "acknowledged, and no run was reached"
    decided = approve(review, world.bob)
    assert isinstance(decided, Decided)
    assert (decided.answer, decided.started) == ("granted", False)
    assert Step.objects.get(run=run).status == "WAITING_APPROVAL"
    fanout.fence(stop.pk)
    drain_run(run.pk)
    if mode == "cancel":
        assert states(review) == ["VOID"]
        return
    gates.release(actor=world.bob, workspace_id=world.workspace.pk, reason="go on")
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="go on"), Resumed)
    assert Step.objects.get(run=run).status == "PENDING"


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_the_end_of_a_run_closes_what_waits(world: World, end: str) -> None:
    run = world.run()
    review = waiting(world, run)
    if end == "complete":
        ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    else:
        ends.fail(actor=world.agent, run_id=run.pk)
    assert (fresh(review).closed_as, Step.objects.get(run=run).status) == ("ended", "WITHHELD")
    assert Effect.objects.get().settlement == "NOT_STARTED"
    assert answer_of(approve(review, world.bob)) == "closed"


def test_a_pause_keeps_the_question_and_a_yes_in_it_starts_nothing_before_the_resume(
    world: World,
) -> None:
    run = world.run()
    review = waiting(world, run)
    world.stop(run, mode="pause")
    drain_run(run.pk)
    assert (fresh(run).status, fresh(review).closed_at) == ("PAUSED", None)
    decided = approve(review, world.bob)
    assert isinstance(decided, Decided)
    assert (decided.answer, decided.started) == ("granted", False)
    assert Step.objects.get(run=run).status == "WAITING_APPROVAL"
    assert isinstance(ask_gate(world, run), Refusal)
    assert states(review) == ["GIVEN"], "a refusal uses nothing up"
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="go on"), Resumed)
    assert Step.objects.get(run=run).status == "PENDING"
    assert isinstance(ask_gate(world, fresh(run)), Opened)
    assert states(review) == ["CONSUMED"]


@pytest.mark.invariant("I15")
def test_after_a_resume_a_yes_holds_only_for_unchanged_evidence(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    world.stop(run, mode="pause")
    drain_run(run.pk)
    approve(review, world.bob)
    with transaction.atomic():
        record(lock_run(run.pk), Line("effect.looked_up", "system", effect_key="charge:7"))
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="go on"), Resumed)
    assert (states(review), Step.objects.get(run=run).status) == (["VOID"], "WAITING_APPROVAL")
    assert isinstance(ask_gate(world, fresh(run)), Waiting)


def test_a_yes_of_somebody_who_then_stopped_the_run_does_not_count_after_the_resume(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    world.stop(run, by=world.bob, mode="pause")
    drain_run(run.pk)
    assert isinstance(resume(actor=world.alice, run_id=run.pk, reason="go on"), Resumed)
    assert states(review) == ["VOID"]
    assert isinstance(ask_gate(world, fresh(run)), Waiting)


def test_a_restore_asks_people_again(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob)
    restored = Restore.objects.create(taken_at=in_seconds(-60), digest="d", release="")
    with transaction.atomic():
        put_to_rest(restored, Before())
    assert (fresh(run).status, states(review), fresh(review).closed_at) == ("PAUSED", ["VOID"], None)
    assert Step.objects.get(run=run).status == "WAITING_APPROVAL"
    assert answer_of(approve(review, world.carol)) == "granted", "kept, and starts nothing before the resume"


def test_every_decision_leaves_its_line_with_who(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    approve(review, world.bob, comment="amount matches")
    line = Evidence.objects.get(stream=run.pk, kind="approval.given")
    body = EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body
    assert (line.actor, line.effect_key) == (world.bob.id, "charge:7")
    assert "amount matches" in body
    assert review.digest in body
