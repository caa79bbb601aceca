"""A compensation until it is sent: what may be proposed, the exact call, what voids it. Tables by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from effects import approvals, compensate, plans, proposals, reconcile, reviews
from effects.compensate import NotProposed
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Approval, Compensation, Effect, Kind, Review
from effects.plans import CannotFill
from effects.reconcile import Answer
from effects.restore import Before, put_to_rest
from effects.resume import Resumed, resume
from runs import fanout, scopes
from runs.access import NotAllowed, NotFound
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import Evidence, EvidencePayload, Restore, Run
from runs.stops import Wish
from tests.effects.compensations import (
    REFUND,
    a_charge,
    allow,
    approve,
    body_of,
    brought_to,
    charged,
    edit,
    kinds,
    proposed,
    review_of,
    said,
)
from tests.worlds import (
    World,
    a_kind,
    a_permit,
    a_run,
    a_step,
    a_token,
    an_effect,
    fresh,
    in_seconds,
    kinds_of,
)

pytestmark = pytest.mark.django_db

LINES_IN_PARTS = 10  # SQLite takes some sixty lines of evidence a statement


# --- What is proposed -------------------------------------------------------------------------------------


def test_what_was_declared_becomes_the_exact_call_and_people_are_asked(world: World) -> None:
    effect = a_charge(world)
    made = compensate.propose(actor=world.alice, effect_id=effect.pk, wish="Ada was charged twice")
    assert isinstance(made, Compensation)
    assert body_of(made) == {"charge": "ch_1", "amount": 100}
    assert (made.key, made.number, made.state, made.queued_at) == (made.pk, 1, "PROPOSED", None)
    assert (made.kind_name, made.title, made.target, made.amount) == (
        "bank.refund",
        "Refund Ada",
        "Ada",
        "€100.00",
    )
    assert (made.run_version, made.proposer) == (1, world.alice.user)
    review = review_of(made)
    assert (review.subject, review.effect, review.effect_key, review.step) == (
        "compensation",
        effect,
        "charge:7",
        None,
    )
    assert (review.needed, review.proposer, review.closed_at) == (1, world.alice.user, None)
    assert kinds_of(effect.run)[-2:] == ["compensation.proposed", "review.waiting"]
    assert compensate.wish_of(made) == "Ada was charged twice"


def test_the_nth_yes_approves_it_and_queues_it_for_our_executor(world: World) -> None:
    effect = a_charge(world, "CANCELLED")
    allow(world, approvals=2)
    made = proposed(effect, world.alice)
    assert said(approve(made, world.bob)) == "approved"
    assert (fresh(made).state, fresh(made).queued_at) == ("PROPOSED", None)
    told = approve(made, world.carol)
    assert (said(told), getattr(told, "started", None)) == ("granted", True)
    stands = fresh(made)
    assert (stands.state, stands.queued_at is not None) == ("APPROVED", True)
    assert kinds_of(effect.run)[-3:] == ["approval.given", "review.granted", "compensation.approved"]


NONE = plan_bytes(none_because="a mail can't be called back")
KIND_ONLY = plan_bytes(kind="bank.refund")
# What stands in the way, each alone: run's status, effect's settlement, plan, and the answer.
IN_THE_WAY = [
    ("ACTIVE", "CONFIRMED", REFUND, "active"),
    ("PAUSING", "CONFIRMED", REFUND, "active"),
    ("CANCELLING", "CONFIRMED", REFUND, "active"),
    ("CANCELLING_TIMEOUT", "CONFIRMED", REFUND, "active"),
    ("ABANDONED", "CONFIRMED", REFUND, "abandoned"),
    ("PAUSED", "CONFIRMED", REFUND, ""),
    ("CANCELLED", "CONFIRMED", REFUND, ""),
    ("UNKNOWN", "CONFIRMED", REFUND, ""),
    ("COMPLETED", "CONFIRMED", REFUND, ""),
    ("FAILED", "CONFIRMED", REFUND, ""),
    ("COMPLETED", "PARTIAL", REFUND, ""),
    ("COMPLETED", "UNKNOWN", REFUND, "unknown"),
    ("COMPLETED", "DISPATCHED", REFUND, "unknown"),
    ("COMPLETED", "ACCEPTED_UNKNOWN", REFUND, "unknown"),
    ("COMPLETED", "NOT_APPLIED", REFUND, "nothing"),
    ("COMPLETED", "NOT_STARTED", REFUND, "nothing"),
    ("COMPLETED", "DECLARED", REFUND, "nothing"),
    ("COMPLETED", "CONFIRMED", NONE, "none"),
    ("COMPLETED", "CONFIRMED", KIND_ONLY, "undeclared"),
    ("COMPLETED", "CONFIRMED", b"", "undeclared"),
    ("COMPLETED", "CONFIRMED", b"[1", "undeclared"),
    ("COMPLETED", "CONFIRMED", plan_bytes(kind="restore_files"), "undeclared"),
    ("COMPLETED", "CONFIRMED", plan_bytes(kind="bank.gone", body="{}"), "kind"),
    ("COMPLETED", "CONFIRMED", plan_bytes(kind="mail.sent", body="{}"), "outside"),
    ("COMPLETED", "CONFIRMED", plan_bytes(kind="bank.charge", body="{}"), "rule"),
    ("COMPLETED", "CONFIRMED", plan_bytes(kind="bank.refund", body='"{result.nothing}"'), "unfilled"),
]


@pytest.mark.parametrize(("status", "settlement", "plan", "reason"), IN_THE_WAY)
def test_what_may_be_proposed(world: World, status: str, settlement: str, plan: bytes, reason: str) -> None:
    kinds(world)
    a_kind(world.workspace, "mail.sent")
    allow(world)
    kind = Kind.objects.get(name="bank.charge")
    step = a_step(a_run(status, workspace=world.workspace), "SUCCEEDED")
    effect = an_effect(step, settlement, kind=kind, plan=plan, provider_ref="ch_1")
    assert compensate.proposable(effect) == reason
    told = compensate.propose(actor=world.alice, effect_id=effect.pk)
    assert said(told) == (reason or "PROPOSED")
    assert Compensation.objects.count() == Review.objects.count() == (0 if reason else 1)
    if isinstance(told, NotProposed):
        assert told.sentence.startswith(proposals.WHY_NOT[reason])


def test_what_no_kind_or_no_rule_speaks_for_is_never_compensated(world: World) -> None:
    effect = a_charge(world, "CANCELLED")
    for rule, reason in (
        ({"policy": "never"}, "rule"),
        ({"after_a_stop": False}, "stopped"),
        ({}, ""),
    ):
        allow(world, **rule)
        assert compensate.proposable(effect) == reason
    Effect.objects.filter(pk=effect.pk).update(kind=None)
    assert compensate.proposable(fresh(effect)) == "opaque"


def test_a_rule_without_after_a_stop_holds_for_a_run_that_completed(world: World) -> None:
    effect = a_charge(world, "COMPLETED")
    allow(world, after_a_stop=False)
    made = proposed(effect, world.bob)
    assert said(approve(made, world.carol)) == "granted"
    world.stop(effect.run, by=world.alice)  # it had ended; whoever presses Stop wants nothing more
    with transaction.atomic():
        why, lines = proposals.withheld(lock_run(made.run_id), fresh(made))
        record(effect.run, *lines)
    assert (why, fresh(made).state, Approval.objects.get().state) == ("not_approved", "PROPOSED", "VOID")


def test_a_template_counts_only_as_it_stood_when_the_effect_was_declared(world: World) -> None:
    template = {"kind": "bank.refund", "body": '{"charge": "{ref}"}', "expected": "one refund of {amount}"}
    kinds(world, compensate=template)
    allow(world)
    run = world.run()
    effect = charged(world, run, KIND_ONLY)
    brought_to(world, run, "COMPLETED")
    assert compensate.proposable(effect) == ""
    plan = compensate.declared(effect)
    assert (plan.from_template, plans.call_of(effect, plan).expected) == (True, "one refund of €100.00")
    Kind.objects.filter(name="bank.charge").update(
        compensate=template | {"body": '{"all": true}'}, updated_at=in_seconds(1)
    )
    later = Effect.objects.select_related("kind").get(pk=effect.pk)
    assert compensate.proposable(later) == "changed"
    assert said(compensate.propose(actor=world.alice, effect_id=effect.pk)) == "changed"


def test_people_with_the_right_and_tokens_of_the_run_propose_and_nobody_else(world: World) -> None:
    effect = a_charge(world)
    other = world.run("another")
    with pytest.raises(NotAllowed):
        compensate.propose(actor=world.dana, effect_id=effect.pk)
    with pytest.raises(NotAllowed):
        compensate.propose(actor=a_token(world.workspace, "runs:read"), effect_id=effect.pk)
    for stranger in (world.mallory, world.foreign_agent, a_token(world.workspace, run=other)):
        with pytest.raises(NotFound):
            compensate.propose(actor=stranger, effect_id=effect.pk)
    assert not Compensation.objects.exists()
    assert proposed(effect, a_token(world.workspace, run=effect.run)).proposer is None


def test_one_is_open_at_a_time_and_a_second_try_is_a_new_row(world: World) -> None:
    effect = a_charge(world)
    first = proposed(effect, world.alice)
    again = compensate.propose(actor=world.bob, effect_id=effect.pk)
    assert isinstance(again, NotProposed)
    assert (again.reason, again.open) == ("open", first)
    for state, reason in {
        "APPROVED": "open",
        "DISPATCHED": "open",
        "UNKNOWN": "open",
        "VERIFIED": "done",
        "ACCEPTED_UNKNOWN": "accepted",
        "FAILED": "",
        "EXPIRED": "",
        "VOID": "",
        "REJECTED": "",
        "NOT_NEEDED": "",
    }.items():
        Compensation.objects.filter(pk=first.pk).advance({"state": state})
        assert compensate.proposable(effect) == reason, state
    Review.objects.update(closed_at=in_seconds(0), closed_as="not_needed")
    assert said(compensate.propose(actor=world.agent, effect_id=effect.pk)) == "decided"
    second = proposed(effect, world.alice)
    assert (second.number, second.key != first.key) == (2, True)


def test_a_compensation_is_not_compensated(world: World) -> None:
    made = proposed(a_charge(world), world.alice)
    assert said(compensate.propose(actor=world.alice, effect_id=made.pk)) == "itself"
    with pytest.raises(NotFound):
        compensate.propose(actor=world.mallory, effect_id=made.pk)


# --- The call ---------------------------------------------------------------------------------------------

FILLED = [
    ('{"charge": "{ref}"}', {"charge": "ch_1"}),
    ('{"note": "of {target}: {amount}"}', {"note": 'of A"da\\: €100.00'}),
    ('{"net": "{result.net}", "text": "{result.net} back"}', {"net": 97.5, "text": "97.5 back"}),
    ('{"of": "{body.amount}", "k": ["{key}"]}', {"of": 100, "k": ["charge:7"]}),
    ('{"who": "{result.who}"}', {"who": 'A"da", "amount": "9999'}),
    ('{"{ref}": "{unknown}", "{": "{ref"}', {"{ref}": "{unknown}", "{": "{ref"}),
    ('{"as": "written",  "amount": 1}', {"as": "written", "amount": 1}),
]


def an_answered_effect(**fields: Any) -> Effect:
    given = {"result": {"net": 97.5, "who": 'A"da", "amount": "9999'}, "provider_ref": "ch_1"}
    told = {"target": 'A"da\\', "amount": "€100.00", "body": b'{"amount": 100}', "key": "charge:7"}
    return an_effect(settlement="CONFIRMED", **{**given, **told, **fields})


@pytest.mark.parametrize(("text", "call"), FILLED)
def test_a_template_of_json_is_filled_value_by_value(text: str, call: Any) -> None:
    effect = an_answered_effect(plan=plan_bytes(kind="bank.refund", body=text))
    assert json.loads(plans.call_of(effect, compensate.declared(effect)).body) == call


@pytest.mark.parametrize(
    "text", ["{result.gone}", "{body.amount.more}", '{"a": "{result.who.0}"}', "{body}x{ref} {target}"]
)
def test_what_has_no_value_or_could_break_out_is_not_filled(text: str) -> None:
    effect = an_answered_effect(plan=plan_bytes(kind="bank.refund", body=text))
    with pytest.raises(CannotFill):
        plans.call_of(effect, compensate.declared(effect))


def test_text_that_is_no_json_takes_harmless_values_and_a_hidden_one_is_none() -> None:
    effect = an_answered_effect(plan=plan_bytes(kind="bank.refund", body="charge {ref} of {key}"))
    assert plans.call_of(effect, compensate.declared(effect)).body == b"charge ch_1 of charge:7"
    hidden = an_answered_effect(
        plan=plan_bytes(kind="bank.refund", body='{"t": "{result.token}"}'),
        result={"token": "[redacted field 0123abcd]"},
    )
    with pytest.raises(CannotFill):
        plans.call_of(hidden, compensate.declared(hidden))


def test_of_two_values_under_one_name_none_is_filled_in() -> None:
    """Which of them its provider took nobody knows; a refund of the other would be another one."""
    told = plan_bytes(kind="bank.refund", body='{"minor": "{body.minor}"}')
    effect = an_answered_effect(plan=told, body=b'{"minor": 9900, "minor": 100}')
    with pytest.raises(CannotFill):
        plans.call_of(effect, compensate.declared(effect))


def test_what_stands_around_a_value_is_sent_as_it_was_declared_to_the_byte() -> None:
    text = '{"eur":  10.00, "n": 12345678901234567.89, "ref": "{ref}", "net": "{body.net}"}'
    effect = an_answered_effect(
        plan=plan_bytes(kind="bank.refund", body=text), body=b'{"net": 98765432109876543.10}'
    )
    sent = b'{"eur":  10.00, "n": 12345678901234567.89, "ref": "ch_1", "net": 98765432109876543.10}'
    assert plans.call_of(effect, compensate.declared(effect)).body == sent


@pytest.mark.parametrize("ref", ["1,999", "1;x", "a+b", "it's", "a\\", "a}", "[a", "a\u2028b", "a\x85b"])
def test_a_value_that_means_something_to_other_text_is_not_filled(ref: str) -> None:
    effect = an_answered_effect(plan=plan_bytes(kind="bank.refund", body="a: {ref}"), provider_ref=ref)
    with pytest.raises(CannotFill):
        plans.call_of(effect, compensate.declared(effect))


# --- Edit, wishes, not needed -----------------------------------------------------------------------------


@pytest.mark.invariant("I15")
def test_an_edit_voids_every_yes_and_asks_for_another_digest(world: World) -> None:
    effect = a_charge(world)
    made = proposed(effect, world.alice)
    seen = review_of(made).digest
    approve(made, world.bob)
    assert fresh(made).state == "APPROVED"
    edited = edit(made, world.alice, body=b'{"charge": "ch_1", "amount": 50}')
    assert isinstance(edited, Compensation)
    assert (edited.state, edited.queued_at, edited.edits, edited.editor) == (
        "PROPOSED",
        None,
        1,
        world.alice.user,
    )
    assert (body_of(edited), edited.amount) == ({"charge": "ch_1", "amount": 50}, "€50.00")
    assert Approval.objects.get().state == "VOID"
    assert review_of(made).digest != seen
    declared = compensate.as_declared(edited)
    assert declared is not None
    assert (declared.amount, declared.kind) == ("€100.00", edited.kind_name)
    assert said(approve(made, world.carol, digest=seen)) == "changed"
    assert said(approve(made, world.carol)) == "granted"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"digest": "0" * 64}, "changed"),
        ({"amount": "€100.00"}, "same"),
        ({"title": " "}, "empty"),
        ({"title": "\u3164"}, "empty"),
        ({"title": "x" * 301}, "size"),
        ({"body": b"x" * 65_537}, "size"),
    ],
)
def test_an_edit_that_can_not_stand_changes_nothing(world: World, new: dict[str, Any], reason: str) -> None:
    made = proposed(a_charge(world), world.alice)
    approve(made, world.bob)
    assert said(edit(made, world.carol, **new)) == reason
    assert (fresh(made).state, fresh(made).edits, Approval.objects.get().state) == ("APPROVED", 0, "GIVEN")


def test_a_reviewer_asks_for_changes_and_what_was_allowed_is_void(world: World) -> None:
    made = proposed(a_charge(world), world.alice)
    approve(made, world.bob)
    with pytest.raises(NotAllowed):
        compensate.ask_for_changes(actor=world.alice, compensation_id=made.pk, wish="half of it")
    for wish in (" ", "…", "\u3164"):
        told = compensate.ask_for_changes(actor=world.carol, compensation_id=made.pk, wish=wish)
        assert said(told) == "wish"
    asked = compensate.ask_for_changes(actor=world.carol, compensation_id=made.pk, wish="half of it")
    assert (said(asked), fresh(made).wishes, Approval.objects.get().state) == (
        "PROPOSED",
        "half of it",
        "VOID",
    )
    assert said(approve(made, world.bob)) == "granted", "people may decide differently; nothing was changed"


@pytest.mark.parametrize("state", ["PROPOSED", "APPROVED", "FAILED"])
def test_a_reviewer_decides_with_a_reason_that_none_is_needed(world: World, state: str) -> None:
    made = proposed(a_charge(world), world.alice)
    if state == "APPROVED":
        approve(made, world.bob)
    if state == "FAILED":
        Review.objects.update(closed_at=in_seconds(0), closed_as="used")
        Compensation.objects.filter(pk=made.pk).advance({"state": "FAILED"})
    with pytest.raises(NotAllowed):
        compensate.not_needed(actor=world.alice, compensation_id=made.pk, reason="paid in cash")
    for reason in ("\n", ".", "\u3164"):
        told = compensate.not_needed(actor=world.carol, compensation_id=made.pk, reason=reason)
        assert said(told) == "reason"
    done = compensate.not_needed(actor=world.carol, compensation_id=made.pk, reason="paid in cash")
    assert isinstance(done, Compensation)
    assert (done.state, done.reason, done.decided_by) == ("NOT_NEEDED", "paid in cash", world.carol.id)
    assert kinds_of(made.run)[-1] == "compensation.not_needed"
    again = compensate.not_needed(actor=world.carol, compensation_id=made.pk, reason="paid in cash")
    assert said(again) == "state"


# --- What voids it ----------------------------------------------------------------------------------------


def _resume(world: World, run_id: str) -> None:
    assert isinstance(resume(actor=world.alice, run_id=run_id, reason="go on"), Resumed)


def _stop_its_workspace(world: World, run: Run) -> None:
    target = scopes.Target("workspace", world.workspace.pk)
    stop = scopes.request_scope_stop(actor=world.alice, wish=Wish(mode="cancel"), target=target).stop
    fanout.carry_on(stop.pk)


VOIDED: dict[str, tuple[str, Callable[[World, Run], Any], str]] = {
    "a resume": ("PAUSED", lambda world, run: _resume(world, run.pk), "the run was resumed"),
    "a cancel of a pause": ("PAUSED", lambda world, run: world.stop(run, mode="cancel"), "stop #2"),
    "a cancel of its workspace": ("PAUSED", _stop_its_workspace, "stop #3"),
    "an abandon of a pause": ("PAUSED", lambda world, run: world.stop(run, mode="abandon"), "stop #2"),
    "an abandon of an unknown": ("UNKNOWN", lambda world, run: world.stop(run, mode="abandon"), "stop #2"),
}
KEPT: dict[str, tuple[str, Callable[[World, Run], Any]]] = {
    "a second pause": ("PAUSED", lambda world, run: world.stop(run, mode="pause")),
    "a stop of a finished run": ("CANCELLED", lambda world, run: world.stop(run, mode="cancel")),
    "an abandon of a completed run": ("COMPLETED", lambda world, run: world.stop(run, mode="abandon")),
}


def _at_rest(world: World, status: str) -> tuple[Effect, Compensation]:
    kinds(world)
    allow(world)
    run = world.run()
    effect = charged(world, run)
    if status == "UNKNOWN":
        charged(world, run, outcome="unknown", key="charge:8")
    brought_to(world, run, status)
    made = proposed(effect, world.alice)
    return effect, made


@pytest.mark.parametrize("approved", [False, True], ids=["proposed", "approved"])
@pytest.mark.parametrize("name", VOIDED)
def test_what_voids_it(world: World, name: str, approved: bool) -> None:
    status, happen, reason = VOIDED[name]
    _, made = _at_rest(world, status)
    if approved:
        assert said(approve(made, world.bob)) == "granted"
    happen(world, fresh(made.run))
    void, review = fresh(made), review_of(made)
    assert (void.state, void.queued_at, void.reason) == ("VOID", None, reason)
    assert (review.closed_as, review.reason) == ("void", reason)
    assert [one.state for one in Approval.objects.all()] == (["VOID"] if approved else [])
    told = approve(made, world.carol)
    assert said(told) == ("late" if reason.startswith("stop") else "closed")
    assert fresh(made).state == "VOID"


@pytest.mark.parametrize("name", KEPT)
def test_what_does_not_void_it(world: World, name: str) -> None:
    status, happen = KEPT[name]
    _, made = _at_rest(world, status)
    assert said(approve(made, world.bob)) == "granted"
    happen(world, fresh(made.run))
    assert (fresh(made).state, review_of(made).closed_at) == ("APPROVED", None)


@pytest.mark.parametrize("approved", [False, True], ids=["proposed", "approved"])
def test_a_contradiction_of_its_effect_voids_it(world: World, approved: bool) -> None:
    effect, made = _at_rest(world, "COMPLETED")
    if approved:
        approve(made, world.bob)
    reconcile.apply_answer(effect.pk, Answer("partial", items={"booked": ["1 of 2"]}))
    assert (fresh(effect).settlement, fresh(effect).contradicted) == ("UNKNOWN", True)
    assert (fresh(made).state, review_of(made).closed_as) == ("VOID", "void")
    assert compensate.proposable(fresh(effect)) == "unknown"


@pytest.mark.invariant("I15")
def test_new_evidence_of_its_effect_takes_the_approvals_back(world: World) -> None:
    effect, made = _at_rest(world, "COMPLETED")
    approve(made, world.bob)
    with transaction.atomic():
        record(lock_run(effect.run_id), Line("effect.looked_up", "system", effect_key=effect.key))
    with transaction.atomic():
        run = lock_run(effect.run_id)
        why, lines = proposals.withheld(run, fresh(made))
        record(run, *lines)
    assert (why, fresh(made).state, Approval.objects.get().state) == ("not_approved", "PROPOSED", "VOID")
    assert review_of(made).closed_at is None, "people are asked anew"


@pytest.mark.parametrize("status", ["PAUSED", "COMPLETED"])
def test_after_a_restore_it_waits_for_people_again_under_the_same_key(world: World, status: str) -> None:
    _, made = _at_rest(world, status)
    approve(made, world.bob)
    restored = Restore.objects.create(taken_at=in_seconds(-60), digest="d", release="")
    with transaction.atomic():
        put_to_rest(restored, Before())
    stands, run = fresh(made), fresh(made.run)
    assert (stands.state, stands.key, Approval.objects.get().state) == ("PROPOSED", made.key, "VOID")
    assert stands.run_version == run.cancel_version
    if status == "PAUSED":
        assert run.cancel_version > 1_000_000
        assert said(approve(made, world.carol)) == "changed", "shown as it was before"
    assert said(approve(made, world.carol)) == "granted"


# --- Time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [False, True], ids=["proposed", "approved"])
def test_what_is_not_decided_or_not_sent_in_time_expires(world: World, approved: bool) -> None:
    _, made = _at_rest(world, "COMPLETED")
    if approved:
        approve(made, world.bob)
    Review.objects.update(expires_at=in_seconds(-1))
    if not approved:
        assert said(approve(made, world.bob)) == "expired"
        assert said(edit(made, world.alice)) == "expired"
    assert approvals.over() == [review_of(made).pk]
    assert approvals.expire(review_of(made).pk)
    assert (fresh(made).state, review_of(made).closed_as) == ("EXPIRED", "expired")
    assert fresh(made).reason.startswith("approved, and not" if approved else "nobody decided")


# --- The drain, and the rules alone -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "found"), [("CANCELLED", 2), ("FAILED", 2), ("COMPLETED", 0), ("PAUSED", 0)]
)
def test_the_drain_proposes_what_the_rules_say_when_a_run_comes_to_rest(
    world: World, status: str, found: int
) -> None:
    kinds(world)
    allow(world, propose="drain")
    run = world.run()
    for key in ("charge:7", "charge:8"):
        charged(world, run, key=key)
    charged(world, run, NONE, key="mail:1")
    brought_to(world, run, status)
    made = list(Compensation.objects.all())
    assert len(made) == found
    assert {(one.proposed_by, one.proposer) for one in made} == ({("system", None)} if made else set())
    if made:
        drain_run(run.pk)
        assert Compensation.objects.count() == found
        assert said(approve(made[0], world.bob)) == "granted"


def test_what_becomes_known_after_the_end_is_proposed_then(world: World) -> None:
    kinds(world)
    allow(world, propose="drain")
    run = world.run()
    effect = charged(world, run, outcome="unknown")
    brought_to(world, run, "UNKNOWN")
    assert not Compensation.objects.exists()
    reconcile.apply_answer(effect.pk, Answer("present", provider_ref="ch_1"))
    made = Compensation.objects.get()
    assert (fresh(run).status, made.proposed_by, made.state) == ("CANCELLED", "system", "PROPOSED")


HOSTILE = [
    ({"body": '{"a": "{ref}", "b": ' + "[" * 600 + "]" * 600 + "}"}, "open"),
    ({"body": '{"a": "\\ud800 {ref}"}'}, "unfilled"),
    ({"body": '{"a": "{body.list.' + "9" * 5000 + '}"}'}, "unfilled"),
    ({"title": "\0", "body": "{}"}, "unfilled"),
]


@pytest.mark.parametrize(("plan", "why"), HOSTILE)
def test_no_plan_that_an_agent_wrote_holds_up_the_end_of_its_run(
    world: World, plan: dict[str, str], why: str
) -> None:
    kinds(world)
    allow(world, propose="drain")
    run = world.run()
    effect = charged(world, run, plan_bytes(kind="bank.refund", **plan), body=b'{"list": [1]}')
    brought_to(world, run, "CANCELLED")
    assert compensate.proposable(fresh(effect)) == why


def test_what_a_plan_keeps_the_drain_from_proposing_is_said_once(world: World) -> None:
    kinds(world)
    allow(world, propose="drain")
    run = world.run()
    effect = charged(world, run, plan_bytes(kind="bank.refund", body='{"a": "{body.gone}"}'))
    charged(world, run, NONE, key="mail:1")
    brought_to(world, run, "CANCELLED")
    with transaction.atomic():
        assert [proposals.by_drain(lock_run(run.pk)) for _ in range(2)] == [False, False]
    line = Evidence.objects.get(stream=run.pk, kind="compensation.not_proposed")
    told = json.loads(EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body)
    assert (line.effect_key, line.actor, told["reason"]) == (effect.key, "system", "unfilled")
    assert told["why"].endswith("{body.gone}")


def test_a_pass_of_the_drain_asks_as_much_for_one_effect_as_for_many(world: World) -> None:
    kinds(world)
    a_kind(world.workspace, "files", provider="workspace", op_class="workspace_change")
    allow(world, propose="drain")
    hopeless = plan_bytes(kind="bank.refund", body='{"a": "{body.gone}"}')
    asked: dict[str, list[int]] = {"first": [], "again": []}
    for number in (1, 30):
        run = world.run(f"of-{number}")
        for place in range(number):
            charged(world, run, key=f"charge:{place}")
            charged(world, run, hopeless, key=f"hopeless:{place}")
        Run.objects.filter(pk=run.pk).advance({"status": "FAILED"})
        for turn in asked:
            with transaction.atomic(), CaptureQueriesContext(connection) as queries:
                assert proposals.by_drain(lock_run(run.pk)) == (turn == "first")
            asked[turn].append(len(queries))
        assert Compensation.objects.filter(run=run, state="PROPOSED").count() == number
        assert Review.objects.filter(run=run, closed_at__isnull=True).count() == number
        assert kinds_of(run).count("compensation.not_proposed") == number
    assert asked["first"][1] <= asked["first"][0] + LINES_IN_PARTS
    assert asked["again"][1] == asked["again"][0] <= 10


def test_without_that_rule_the_drain_proposes_nothing(world: World) -> None:
    a_charge(world, "CANCELLED")
    assert not Compensation.objects.exists()


def _written(world: World, status: str, policy: str = "automatic") -> Effect:
    a_kind(world.workspace, "files", provider="workspace", op_class="workspace_change")
    allow(world, "restore_files", policy=policy)
    run = world.run()
    effect = charged(world, run, plan_bytes(kind="restore_files"), kind="files")
    brought_to(world, run, status)
    return effect


def test_the_rules_alone_let_files_be_put_back_where_nobody_stopped(world: World) -> None:
    made = proposed(_written(world, "FAILED"), world.alice)
    assert (made.state, made.kind, made.op_class) == ("APPROVED", None, "workspace_change")
    assert made.queued_at is not None
    assert not Review.objects.exists()
    with transaction.atomic():
        run = lock_run(made.run_id)
        assert proposals.withheld(run, made) == ("", [])
        assert reviews.use_for(run, made, a_permit(a_step(run))) == []


@pytest.mark.parametrize("status", ["CANCELLED", "PAUSED"])
def test_a_stop_never_makes_anything_run_by_itself(world: World, status: str) -> None:
    made = proposed(_written(world, status), world.bob)
    assert (made.state, review_of(made).needed) == ("PROPOSED", 1)


def test_automatic_holds_for_local_files_alone(world: World) -> None:
    effect = a_charge(world)
    allow(world, policy="automatic")
    assert proposed(effect, world.alice).state == "PROPOSED"


@pytest.mark.parametrize("change", ["a stop", "the rules"])
def test_what_the_rules_alone_allowed_asks_people_when_they_do_not_any_more(
    world: World, change: str
) -> None:
    made = proposed(_written(world, "FAILED"), world.alice)
    if change == "a stop":
        world.stop(made.run, mode="cancel")
    else:
        allow(world, "restore_files", policy="approve", approvals=2)
    with transaction.atomic():
        run = lock_run(made.run_id)
        with pytest.raises(reviews.NotConsumed):
            reviews.use_for(run, fresh(made), a_permit(a_step(run)))
        why, lines = proposals.withheld(run, fresh(made))
        record(run, *lines)
    assert (why, fresh(made).state) == ("not_approved", "PROPOSED")
    assert review_of(made).needed == (1 if change == "a stop" else 2)


# --- Every state, every decision --------------------------------------------------------------------------

STATES = [
    *("PROPOSED", "APPROVED", "REJECTED", "EXPIRED", "VOID", "NOT_NEEDED"),
    *("DISPATCHED", "VERIFIED", "FAILED", "UNKNOWN", "ACCEPTED_UNKNOWN"),
]
# What each decision leads to from where it is allowed; from all other states nothing moves.
LEADS = {
    "reject": {"PROPOSED": "REJECTED", "APPROVED": "REJECTED"},
    "edit": {"APPROVED": "PROPOSED"},
    "ask": {"APPROVED": "PROPOSED"},
    "not needed": {"PROPOSED": "NOT_NEEDED", "APPROVED": "NOT_NEEDED", "FAILED": "NOT_NEEDED"},
    "revoke": {"APPROVED": "PROPOSED"},
    "approve": {"PROPOSED": "APPROVED"},
    "expire": {"PROPOSED": "EXPIRED", "APPROVED": "EXPIRED"},
    "abandon": {"PROPOSED": "VOID", "APPROVED": "VOID", "DISPATCHED": "UNKNOWN"},
}
CLOSES = {
    "REJECTED": "rejected",
    "EXPIRED": "expired",
    "VOID": "void",
    "NOT_NEEDED": "not_needed",
}


def _decide(world: World, made: Compensation, what: str) -> None:
    review, one = review_of(made), {"compensation_id": made.pk}
    if what == "reject":
        approvals.reject(actor=world.carol, review_id=review.pk, reason="no")
    elif what == "edit":
        edit(made, world.alice)
    elif what == "ask":
        compensate.ask_for_changes(actor=world.carol, wish="half", **one)
    elif what == "not needed":
        compensate.not_needed(actor=world.carol, reason="paid in cash", **one)
    elif what == "revoke":
        approvals.revoke(actor=world.bob, review_id=review.pk)
    elif what == "approve":
        approve(made, world.carol)
    elif what == "expire":
        Review.objects.filter(pk=review.pk).update(expires_at=in_seconds(-1))
        approvals.expire(review.pk)
    else:
        world.stop(fresh(made.run), mode="abandon")


def _in_each_state(world: World) -> dict[str, Compensation]:
    """Of one paused run, one in each state, with its review and approval as they are then."""
    kinds(world)
    allow(world)
    run = world.run()
    effects = {state: charged(world, run, key=f"charge:{state}") for state in STATES}
    brought_to(world, run, "PAUSED")
    made = {state: proposed(effect, world.alice) for state, effect in effects.items()}
    for state, one in made.items():
        if state != "PROPOSED":
            approve(one, world.bob)
        if state not in ("PROPOSED", "APPROVED"):
            Approval.objects.filter(review=review_of(one)).advance({"state": "CONSUMED"})
            closed = {"closed_at": in_seconds(0), "closed_as": CLOSES.get(state, "used")}
            Review.objects.filter(subject_id=one.pk).update(**closed)
            Compensation.objects.filter(pk=one.pk).advance({"state": state})
    return made


@pytest.mark.parametrize("what", LEADS)
def test_each_decision_moves_only_from_where_it_may(world: World, what: str) -> None:
    made = _in_each_state(world)
    for one in made.values():
        _decide(world, one, what)
    came = {state: str(fresh(one).state) for state, one in made.items()}
    assert came == {state: LEADS[what].get(state, state) for state in STATES}
