"""Who may not approve a compensation, by every way in; and what an approval allows. Tables by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from effects import approvals, compensate, four_eyes, intents, proposals, review_lists, reviews
from effects.drain import drain_run
from effects.models import Approval, Compensation, Effect, Kind, Review
from effects.reviews import NotConsumed
from runs import access, bulk, children, fanout, schedules, scopes
from runs.access import Actor
from runs.evidence import record
from runs.guard import Opened, lock_run
from runs.models import Membership, Role, Run, Token
from runs.schedules import Moment, What
from runs.scopes import Target
from runs.stops import Wish
from tests.effects.compensations import (
    a_charge,
    allow,
    approve,
    brought_to,
    charged,
    edit,
    kinds,
    proposed,
    review_of,
    said,
)
from tests.worlds import World, a_permit, a_person, a_step, a_token, fresh, in_seconds, intention

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I14")]


class Scene:
    """A charge, and Erin: an admin of the workspace, who did one thing before it came to an approval."""

    def __init__(self, world: World) -> None:
        self.world = world
        kinds(world)
        allow(world)
        self.user = a_person("erin", world.workspace, Role.ADMIN)
        self.erin = access.person(self.user)
        parent = world.run("parent", session="nightly")
        self.parent = parent
        self.run = world.run(session="nightly", parent=parent.pk)
        self.effect = charged(world, self.run)

    def token(self) -> Actor:
        """A token that Erin made: a service account of hers."""
        made = a_token(self.world.workspace)
        assert made.token is not None
        Token.objects.filter(pk=made.token.pk).update(created_by=self.user)
        return made

    def at_rest(self, status: str = "COMPLETED") -> Effect:
        if fresh(self.run).status == "ACTIVE":
            brought_to(self.world, self.run, status)
        drain_run(self.run.pk)
        return fresh(self.effect)

    def proposed(self, by: Actor | None = None) -> Compensation:
        return proposed(self.at_rest(), by or self.world.agent)

    def scope(self, kind: str) -> Target:
        ids = {"workspace": self.world.workspace.pk, "session": str(self.run.session_id)}
        return Target(kind, ids[kind])

    def press_scope(self, kind: str, by: Actor, mode: str = "cancel") -> Compensation:
        made = scopes.request_scope_stop(actor=by, wish=Wish(mode=mode), target=self.scope(kind))
        fanout.carry_on(made.stop.pk)
        return self.proposed()


def _token_proposes(scene: Scene) -> Compensation:
    return scene.proposed(scene.token())


def _stops(scene: Scene) -> Compensation:
    scene.world.stop(scene.run, by=scene.erin)
    return scene.proposed()


def _stops_after_the_end(scene: Scene) -> Compensation:
    scene.at_rest()
    scene.world.stop(scene.run, by=scene.erin)
    return scene.proposed()


def _stops_by_token(scene: Scene) -> Compensation:
    scene.world.stop(scene.run, by=scene.token())
    return scene.proposed()


def _joins(scene: Scene) -> Compensation:
    scene.world.stop(scene.run)
    scene.world.stop(scene.run, by=scene.erin)
    return scene.proposed()


def _joins_a_scope(scene: Scene) -> Compensation:
    scene.press_scope("session", scene.world.alice, "pause")
    scopes.request_scope_stop(actor=scene.erin, wish=Wish(mode="pause"), target=scene.scope("session"))
    return Compensation.objects.get()


def _stops_the_parent(scene: Scene) -> Compensation:
    children.pass_on(scene.world.stop(scene.parent, by=scene.erin).stop.pk)
    assert fresh(scene.run).status == "CANCELLING"
    return scene.proposed()


def _stops_many(scene: Scene) -> Compensation:
    named: dict[str, Any] = {"workspace_id": scene.world.workspace.pk, "run_ids": [scene.run.pk]}
    bulk.request_bulk_stop(actor=scene.erin, wish=Wish(), **named)
    return scene.proposed()


def _plans_a_stop(scene: Scene) -> Compensation:
    made = schedules.schedule(
        actor=scene.erin,
        workspace_id=scene.world.workspace.pk,
        what=What("session", str(scene.run.session_id)),
        wish=Wish(mode="cancel"),
        when=Moment(in_seconds(60)),
    )
    type(made).objects.filter(pk=made.pk).update(at=in_seconds(-1))
    answer = schedules.press(made.pk)
    assert answer is not None
    fanout.carry_on(answer.stop.pk)
    return scene.proposed()


def _owns(scene: Scene) -> Compensation:
    Run.objects.filter(pk=scene.run.pk).update(owner=scene.user)
    return scene.proposed()


def _edits(scene: Scene) -> Compensation:
    made = scene.proposed()
    edit(made, scene.erin)
    return made


def _renamed(scene: Scene) -> Compensation:
    made = scene.proposed(scene.erin)
    scene.user.name = "Somebody Else"
    scene.user.email = "somebody@example.org"
    scene.user.save(update_fields=["name", "email"])
    return made


def _wants_it_early(scene: Scene) -> Compensation:
    made = scene.proposed()
    assert said(approve(made, scene.erin)) == "granted"
    approvals.revoke(actor=scene.erin, review_id=review_of(made).pk)
    allow(scene.world, approvals=2)
    Review.objects.update(needed=2)
    assert said(approve(made, scene.erin)) == "approved"
    return made


# What Erin did, and why her yes does not count; she is an admin in each of them.
BARRED: dict[str, tuple[Callable[[Scene], Compensation], str]] = {
    "she proposed it": (lambda scene: scene.proposed(scene.erin), "proposer"),
    "she proposed it under another name": (_renamed, "proposer"),
    "a token of hers proposed it": (_token_proposes, "proposer"),
    "she stopped the run": (_stops, "stopper"),
    "she stopped it when it had ended": (_stops_after_the_end, "stopper"),
    "a token of hers stopped it": (_stops_by_token, "stopper"),
    "she joined its stop": (_joins, "stopper"),
    "she stopped its session": (lambda scene: scene.press_scope("session", scene.erin), "stopper"),
    "she stopped its workspace": (lambda scene: scene.press_scope("workspace", scene.erin), "stopper"),
    "she joined the stop of its session": (_joins_a_scope, "stopper"),
    "she stopped its parent": (_stops_the_parent, "stopper"),
    "she stopped it among many": (_stops_many, "stopper"),
    "she planned the stop of its session": (_plans_a_stop, "stopper"),
    "she owns the run": (_owns, "owner"),
    "she edited it last": (_edits, "editor"),
    "she approved it already": (_wants_it_early, "already"),
}


@pytest.mark.parametrize("what", BARRED)
def test_whoever_had_a_hand_in_it_may_not_approve_it_admin_or_not(world: World, what: str) -> None:
    scene = Scene(world)
    did, reason = BARRED[what]
    made = did(scene)
    again = access.person(fresh_user(scene), "198.51.100.7")  # a second session, from elsewhere
    for session in (scene.erin, again):
        assert said(approve(made, session)) == reason
    assert review_lists.count_for(scene.user, world.workspace.pk) == 0
    assert world.bob.user is not None
    assert review_lists.count_for(world.bob.user, world.workspace.pk) == 1, "Bob had no hand in it"
    assert said(approve(made, world.bob)) == "granted"


def fresh_user(scene: Scene) -> Any:
    return type(scene.user).objects.get(pk=scene.user.pk)


@pytest.mark.parametrize(
    ("actor", "reason"),
    [
        (lambda world: Actor(world.bob.id, user=world.bob.user, via="api"), "token"),
        (lambda world: Actor(world.bob.id, user=world.bob.user, via="staff"), "refused"),
        (lambda world: world.agent, "refused"),
        (lambda world: access.SYSTEM, "refused"),
        (lambda world: access.SET_UP, "refused"),
        (lambda world: world.alice, "refused"),
        (lambda world: world.dana, "refused"),
        (lambda world: world.mallory, "refused"),
    ],
    ids=["over the api", "staff", "token", "system", "set-up", "operator", "viewer", "outsider"],
)
def test_only_a_reviewer_on_a_page_decides(
    world: World, actor: Callable[[World], Actor], reason: str
) -> None:
    made = proposed(a_charge(world), world.agent)
    who = actor(world)
    decisions: list[Callable[[], Any]] = [
        lambda: approve(made, who),
        lambda: approvals.reject(actor=who, review_id=review_of(made).pk, reason="no"),
        lambda: compensate.ask_for_changes(actor=who, compensation_id=made.pk, wish="half"),
        lambda: compensate.not_needed(actor=who, compensation_id=made.pk, reason="paid"),
    ]
    for decide in decisions:
        try:
            told = said(decide())
        except (access.NotAllowed, access.NotFound):
            told = "refused"
        assert told == reason
    assert (fresh(made).state, Approval.objects.count()) == ("PROPOSED", 0)


def test_an_editor_needs_the_right_and_a_page(world: World) -> None:
    made = proposed(a_charge(world), world.agent)
    with pytest.raises(access.NotAllowed):
        edit(made, world.dana)
    with pytest.raises(access.NotAllowed):
        edit(made, world.agent)
    assert said(edit(made, Actor(world.alice.id, user=world.alice.user, via="api"))) == "token"
    assert fresh(made).edits == 0


def test_the_drain_has_no_person_behind_it(world: World) -> None:
    kinds(world)
    allow(world, propose="drain")
    run = world.run()
    charged(world, run)
    brought_to(world, run, "CANCELLED")
    made = Compensation.objects.get()
    assert (made.proposer, review_of(made).proposer) == (None, None)
    assert said(approve(made, world.bob)) == "granted"


# --- What an approval allows ------------------------------------------------------------------------------


def withheld(made: Compensation) -> str:
    """What the gate is told, with what that changes."""
    with transaction.atomic():
        run = lock_run(made.run_id)
        why, lines = proposals.withheld(run, fresh(made))
        record(run, *lines)
    return why


def use(made: Compensation) -> Any:
    """As the dispatch does it: both or neither."""
    with transaction.atomic():
        run = lock_run(made.run_id)
        permit = a_permit(a_step(run))
        lines = reviews.use_for(run, fresh(made), permit)
        Compensation.dispatch(fresh(made), permit)
        record(run, *lines)
    return permit


def approved(world: World, by: Actor | None = None) -> Compensation:
    made = proposed(a_charge(world), world.agent)
    assert said(approve(made, by or world.bob)) == "granted"
    return made


def test_an_approval_is_used_once_and_by_this_dispatch_alone(world: World) -> None:
    made = approved(world)
    assert withheld(made) == ""
    permit = use(made)
    approval = Approval.objects.get()
    assert (approval.state, approval.permit) == ("CONSUMED", permit)
    assert (review_of(made).closed_as, fresh(made).state) == ("used", "DISPATCHED")
    with pytest.raises(NotConsumed):
        use(made)
    other = charged(world, world.run("other"), key="charge:8")
    brought_to(world, other.run, "COMPLETED")
    second = proposed(fresh(other), world.agent)
    Compensation.objects.filter(pk=second.pk).advance({"state": "APPROVED"})
    with pytest.raises(NotConsumed):
        use(second)
    assert said(approvals.revoke(actor=world.bob, review_id=review_of(made).pk)) == "used"


def _loses_the_role(world: World) -> None:
    Membership.objects.filter(user=world.bob.user).update(role=Role.OPERATOR)


def _is_switched_off(world: World) -> None:
    assert world.bob.user is not None
    type(world.bob.user).objects.filter(pk=world.bob.user.pk).update(is_active=False)


def _edits_it(world: World) -> None:
    edit(Compensation.objects.get(), world.alice)


def _moves_the_address(world: World) -> None:
    Kind.objects.filter(name="bank.refund").update(send={"url": "https://elsewhere.example/refunds"})


def _changes_the_account(world: World) -> None:
    Kind.objects.filter(name="bank.refund").update(account="other")


def _makes_it_stricter(world: World) -> None:
    allow(world, approvals=2)


def _forbids_it(world: World) -> None:
    allow(world, policy="never")


def _lets_the_time_pass(world: World) -> None:
    Review.objects.update(expires_at=in_seconds(-1))


def _becomes_the_owner(world: World) -> None:
    Run.objects.update(owner=world.bob.user)


def _stops_it(world: World) -> None:
    world.stop(Run.objects.get(), by=world.bob)


# What happens between the yes and the dispatch; what stands then, and what became of the yes.
BETWEEN: dict[str, tuple[Callable[[World], None], str, str]] = {
    "its giver lost the role": (_loses_the_role, "PROPOSED", "VOID"),
    "its giver was switched off": (_is_switched_off, "PROPOSED", "VOID"),
    "its giver came to own the run": (_becomes_the_owner, "PROPOSED", "VOID"),
    "its giver stopped the run": (_stops_it, "PROPOSED", "VOID"),
    "somebody edited it": (_edits_it, "PROPOSED", "VOID"),
    "its kind is sent elsewhere": (_moves_the_address, "PROPOSED", "VOID"),
    "its kind has another account": (_changes_the_account, "PROPOSED", "VOID"),
    "the rules want two now": (_makes_it_stricter, "PROPOSED", "GIVEN"),
    "the rules forbid it now": (_forbids_it, "PROPOSED", "VOID"),
    "its time is over": (_lets_the_time_pass, "EXPIRED", "EXPIRED"),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_what_is_not_as_it_was_approved_is_not_sent(world: World, what: str) -> None:
    happen, state, approval = BETWEEN[what]
    made = approved(world)
    happen(world)
    if fresh(made).state == "APPROVED":
        with pytest.raises(NotConsumed), transaction.atomic():
            use_blindly(made)
    assert withheld(made) == "not_approved"
    assert (fresh(made).state, Approval.objects.get().state) == (state, approval)
    assert fresh(made).queued_at is None


def use_blindly(made: Compensation) -> None:
    """As if nobody had looked: the use itself says no; a rule is looked at before it."""
    run = lock_run(made.run_id)
    reviews.use_for(run, fresh(made), a_permit(a_step(run)))
    raise NotConsumed("a rule is asked by the gate's look")


@pytest.mark.invariant("I15")
def test_the_first_version_approved_and_the_second_sent_is_no_way(world: World) -> None:
    made = approved(world)
    seen = review_of(made).digest
    edit(made, world.alice)
    assert said(approve(made, world.carol, digest=seen)) == "changed", "the digest of what was shown before"
    assert withheld(made) == "not_approved"
    assert said(approve(made, world.carol)) == "granted"
    assert withheld(made) == ""
    use(made)


@pytest.mark.invariant("I15")
@pytest.mark.parametrize(
    "new",
    [{"body": b'{"charge": "ch_1", "amount": 9999}'}, {"amount": "€1"}, {"target": "Eve"}, {"title": "Gift"}],
    ids=["body", "amount", "target", "title"],
)
def test_each_part_of_the_call_is_in_the_digest_by_itself(world: World, new: dict[str, Any]) -> None:
    made = proposed(a_charge(world), world.agent)
    seen = review_of(made).digest
    assert said(edit(made, world.alice, **{"amount": None, **new})) == "PROPOSED"
    assert said(approve(made, world.bob, digest=seen)) == "changed"
    assert said(approve(made, world.bob)) == "granted"


@pytest.mark.invariant("I16")
def test_a_revoked_approval_takes_it_out_of_the_queue(world: World) -> None:
    made = approved(world)
    assert said(approvals.revoke(actor=world.bob, review_id=review_of(made).pk)) == "revoked"
    assert (fresh(made).state, fresh(made).queued_at) == ("PROPOSED", None)
    assert withheld(made) == "not_approved"
    with pytest.raises(NotConsumed):
        use(made)


def test_one_no_is_enough_after_others_said_yes(world: World) -> None:
    made = approved(world)
    told = approvals.reject(actor=world.carol, review_id=review_of(made).pk, reason="wrong card")
    assert (said(told), fresh(made).state, fresh(made).reason) == ("rejected", "REJECTED", "wrong card")
    assert Approval.objects.get().state == "VOID"
    with pytest.raises(NotConsumed):
        use(made)


def test_an_unknown_original_is_approved_by_nobody(world: World) -> None:
    made = proposed(a_charge(world), world.agent)
    Effect.objects.filter(pk=made.effect_id).advance({"settlement": "UNKNOWN"})
    assert said(approve(made, world.bob)) == "unknown"


@pytest.mark.parametrize(("age", "answer"), [(None, "sign-in"), (601.0, "sign-in"), (599.0, "granted")])
def test_an_old_sign_in_does_not_approve(world: World, age: float | None, answer: str) -> None:
    made = proposed(a_charge(world), world.agent)
    assert said(approve(made, world.bob, signed_in_s=age)) == answer


@pytest.mark.parametrize(("ago", "answer"), [(0, "many"), (61, "granted")])
def test_nobody_approves_faster_than_people_read(world: World, ago: float, answer: str) -> None:
    made = proposed(a_charge(world), world.agent)
    given = {"review": review_of(made), "digest": "", "expires_at": in_seconds(60), "person": world.bob.user}
    moment = in_seconds(-ago)
    Approval.objects.bulk_create(Approval(**given, state="VOID", given_at=moment) for _ in range(20))
    assert said(approve(made, world.bob)) == answer
    if answer == "many":
        assert said(approve(made, world.carol)) == "granted", "each person has a minute of their own"


# --- A workspace in which nobody else could ---------------------------------------------------------------


def test_a_workspace_of_one_person_says_that_nobody_can_approve_there(world: World) -> None:
    effect = a_charge(world)
    run, bob = effect.run, world.bob
    assert not compensate.nobody_else(run, 1, bob), "Carol could"
    assert compensate.nobody_else(run, 2, bob), "but she is alone"
    Membership.objects.filter(user=world.carol.user).delete()
    assert compensate.nobody_else(run, 1, bob)
    assert not compensate.nobody_else(run, 1, world.alice), "Bob could, if Alice asked"
    assert four_eyes.nobody_left(run, 1, four_eyes.barred(review_of(proposed(effect, bob)), run))


def test_an_effect_before_it_is_sent_is_barred_by_the_same_function(world: World) -> None:
    """One function for both subjects: whoever pressed the stop of the scope may not, there neither."""
    run = world.run(session="nightly")
    asked = intents.dispatch(
        world.ask(run, step_key="charge:7"), intention("charge:7", approvals=1, kind="opaque")
    )
    assert not isinstance(asked, Opened)
    carol = world.carol
    stop = scopes.request_scope_stop(
        actor=carol, wish=Wish(mode="pause"), target=Target("session", str(run.session_id))
    )
    fanout.carry_on(stop.stop.pk)
    review = Review.objects.get()
    given: dict[str, Any] = {"review_id": review.pk, "digest": review.digest, "signed_in_s": 1.0}
    assert said(approvals.approve(actor=carol, **given)) == "stopper"
    assert said(approvals.approve(actor=world.bob, **given)) == "granted"
