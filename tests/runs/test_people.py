"""Who may come in: verbs for admins only, each on the workspace's record, and never without an admin."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from runs import access, people
from runs.access import SET_UP, Actor, NotAllowed, NotFound
from runs.models import Evidence, EvidencePayload, Membership, Role, Token, User
from runs.people import AlreadyMember, Inactive, LastAdmin, NoAddress, NoRole
from tests.wire import Wire
from tests.worlds import World, a_person, a_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def erin(world: World) -> Actor:
    """An admin of Finance; the only one."""
    return access.person(a_person("erin", world.workspace, Role.ADMIN))


def told(world: World) -> list[tuple[str, str, Any]]:
    """(kind, actor, body) of the workspace's lines, but for those of the world's own set-up."""
    lines = Evidence.objects.filter(stream=world.workspace.pk).exclude(actor=SET_UP.id).order_by("seq")
    bodies = dict(EvidencePayload.objects.filter(stream=world.workspace.pk).values_list("seq", "body"))
    return [(line.kind, line.actor, bodies[line.seq]) for line in lines]


# --- Tokens -----------------------------------------------------------------------------------------------


def test_an_admin_issues_a_token_and_the_record_holds_no_part_of_its_text(world: World, erin: Actor) -> None:
    token, text = people.issue_token(
        actor=erin, workspace_id=world.workspace.pk, name="nightly", scopes=["runs:write"], days=30
    )
    assert access.token_of(text) == token
    assert token.created_by == erin.user
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).days == 30
    [(kind, actor, body)] = told(world)
    assert (kind, actor) == ("token.issued", erin.id)
    assert token.pk in body
    assert not [part for part in text.split("_")[1:] if part in body]


def test_a_revoked_token_is_refused_at_its_next_call_and_the_line_is_left_once(
    world: World, erin: Actor
) -> None:
    given: dict[str, Any] = {"actor": erin, "workspace_id": world.workspace.pk}
    token, text = people.issue_token(**given, name="nightly", scopes=["runs:write", "stop:write"])
    agent = Wire(text)
    run = agent.run()
    first = people.revoke_token(**given, token_id=token.pk)
    for said in (agent.get("/runs"), agent.call("POST", f"/runs/{run['id']}/stops")):
        assert (said.status, said.problem) == (401, "token-refused")
    assert people.revoke_token(**given, token_id=token.pk).revoked_at == first.revoked_at
    assert [kind for kind, _, _ in told(world)] == ["token.issued", "token.revoked"]


@pytest.mark.parametrize("who", ["alice", "bob", "dana", "agent"])
def test_who_is_no_admin_neither_issues_nor_revokes_nor_adds_anyone(world: World, who: str) -> None:
    actor, mine = getattr(world, who), world.workspace.pk
    assert world.dana.user is not None
    dana, before = world.dana.user.pk, Token.objects.count()
    with pytest.raises(NotAllowed):
        people.issue_token(actor=actor, workspace_id=mine, name="x", scopes=["stop:write"])
    with pytest.raises(NotAllowed):
        people.revoke_token(actor=actor, workspace_id=mine, token_id=Token.objects.all()[0].pk)
    with pytest.raises(NotAllowed):
        people.add_member(actor=actor, workspace_id=mine, email="x@example.org", role="admin")
    with pytest.raises(NotAllowed):
        people.change_role(actor=actor, workspace_id=mine, user_id=dana, role="admin")
    with pytest.raises(NotAllowed):
        people.remove_member(actor=actor, workspace_id=mine, user_id=dana)
    assert Token.objects.count() == before
    assert told(world) == []


@pytest.mark.invariant("I28")
def test_for_mallory_who_administers_another_workspace_nothing_here_exists(world: World) -> None:
    assert world.dana.user is not None
    mine, elsewhere = world.workspace.pk, world.elsewhere.pk
    token = Token.objects.get(workspace=world.workspace)
    for workspace_id, token_id in ((mine, token.pk), (elsewhere, token.pk), (elsewhere, "tok_absent")):
        with pytest.raises(NotFound):
            people.revoke_token(actor=world.mallory, workspace_id=workspace_id, token_id=token_id)
    for workspace_id in (mine, elsewhere):
        with pytest.raises(NotFound):
            people.remove_member(actor=world.mallory, workspace_id=workspace_id, user_id=world.dana.user.pk)
    token.refresh_from_db()
    assert token.revoked_at is None


def test_a_token_of_one_run_is_bound_to_it(world: World, erin: Actor) -> None:
    run = a_run(workspace=world.workspace)
    token, _ = people.issue_token(
        actor=erin, workspace_id=world.workspace.pk, name="one", scopes=["stop:write"], run=run, days=None
    )
    assert (token.run_id, token.expires_at) == (run.pk, None)


# --- Members ----------------------------------------------------------------------------------------------


def add(world: World, erin: Actor, email: str = "Frank@Example.org", role: str = "operator") -> people.Added:
    return people.add_member(
        actor=erin, workspace_id=world.workspace.pk, email=email, role=role, name="Frank"
    )


def test_a_new_person_gets_a_first_password_and_the_record_an_id(world: World, erin: Actor) -> None:
    added = add(world, erin)
    user = added.member.user
    assert (user.email, user.name, added.member.role) == ("frank@example.org", "Frank", "operator")
    assert user.check_password(added.password)
    assert user.password_once
    assert told(world) == [
        ("member.added", erin.id, f'{{"member":"user:{user.pk}","role":"operator"}}'),
    ]


def test_an_account_of_another_workspace_keeps_its_password(world: World, erin: Actor) -> None:
    assert world.mallory.user is not None
    added = add(world, erin, world.mallory.user.email.upper())
    assert added.password == ""
    added.member.user.refresh_from_db()
    assert added.member.user.check_password("a long password")
    assert not added.member.user.password_once


def test_a_first_password_that_was_lost_is_replaced_by_removing_and_adding(world: World, erin: Actor) -> None:
    first = add(world, erin)
    people.remove_member(actor=erin, workspace_id=world.workspace.pk, user_id=first.member.user_id)
    second = add(world, erin)
    user = User.objects.get(pk=first.member.user_id)
    assert user.check_password(second.password)
    assert not user.check_password(first.password)


def test_an_account_that_opens_another_workspace_never_gets_a_new_password(world: World, erin: Actor) -> None:
    first = add(world, erin)
    other = people.add_member(
        actor=world.mallory, workspace_id=world.elsewhere.pk, email="frank@example.org", role="viewer"
    )
    assert other.password == ""
    assert User.objects.get(pk=first.member.user_id).check_password(first.password)


def test_what_can_not_be_is_a_sentence_and_changes_nothing(world: World, erin: Actor) -> None:
    assert world.dana.user is not None
    gone = a_person("gone")
    User.objects.filter(pk=gone.pk).update(is_active=False)
    before = (User.objects.count(), Membership.objects.count())
    for email, role, error in (
        ("no address", "viewer", NoAddress),
        ("new@example.org", "owner", NoRole),
        ("new@example.org", "", NoRole),
        (world.dana.user.email, "viewer", AlreadyMember),
        (gone.email, "viewer", Inactive),
    ):
        with pytest.raises(error) as caught:
            add(world, erin, email, role)
        assert str(caught.value).endswith(".")
    assert (User.objects.count(), Membership.objects.count()) == before
    assert told(world) == []


def test_a_role_is_changed_at_once_and_the_same_role_again_leaves_no_line(world: World, erin: Actor) -> None:
    assert world.dana.user is not None
    for _ in range(2):
        people.change_role(
            actor=erin, workspace_id=world.workspace.pk, user_id=world.dana.user.pk, role="operator"
        )
    assert access.rights(world.dana, world.workspace.pk) == access.ROLE_MAY["operator"]
    told_once = {"member": f"user:{world.dana.user.pk}", "role": "operator", "was": "viewer"}
    assert told(world) == [("member.changed", erin.id, str(told_once).replace("'", '"').replace(" ", ""))]


def test_who_is_removed_knows_of_nothing_and_the_account_stays(world: World, erin: Actor) -> None:
    assert world.dana.user is not None
    people.remove_member(actor=erin, workspace_id=world.workspace.pk, user_id=world.dana.user.pk)
    assert access.rights(world.dana, world.workspace.pk) == frozenset()
    assert User.objects.filter(pk=world.dana.user.pk).exists()
    [(kind, _, body)] = told(world)
    assert (kind, body) == ("member.removed", f'{{"member":"user:{world.dana.user.pk}","was":"viewer"}}')
    with pytest.raises(NotFound):
        people.remove_member(actor=erin, workspace_id=world.workspace.pk, user_id=world.dana.user.pk)


def test_the_last_admin_stays_admin_and_stays(world: World, erin: Actor) -> None:
    assert erin.user is not None
    frank = add(world, erin, role="admin").member.user
    User.objects.filter(pk=frank.pk).update(is_active=False)  # an admin who can't sign in is none
    mine: dict[str, Any] = {"actor": erin, "workspace_id": world.workspace.pk, "user_id": erin.user.pk}
    with pytest.raises(LastAdmin):
        people.change_role(**mine, role="reviewer")
    with pytest.raises(LastAdmin):
        people.remove_member(**mine)
    User.objects.filter(pk=frank.pk).update(is_active=True)
    people.remove_member(**mine)
    assert access.rights(erin, world.workspace.pk) == frozenset()


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_two_admins_who_remove_each_other_at_once_leave_one() -> None:
    world = World()
    pair = [access.person(a_person(name, world.workspace, Role.ADMIN)) for name in ("erin", "frank")]
    start, answers = threading.Barrier(2), []

    def remove(actor: Actor, other: Actor) -> None:
        assert other.user is not None
        start.wait()
        try:
            people.remove_member(actor=actor, workspace_id=world.workspace.pk, user_id=other.user.pk)
            answers.append("removed")
        except (NotFound, NotAllowed, LastAdmin):
            answers.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=remove, args=both) for both in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["refused", "removed"]
    assert Membership.objects.filter(workspace=world.workspace, role="admin").count() == 1


# --- Those who run the installation -----------------------------------------------------------------------


def test_staff_manage_who_comes_in_and_see_nothing_else(world: World) -> None:
    root = User.objects.create_user("root@example.org", "a long password", is_staff=True)
    assert access.rights(access.staff(root), world.workspace.pk) == {"admin"}
    assert access.rights(access.person(root), world.workspace.pk) == frozenset()
    assert world.alice.user is not None
    assert access.rights(access.staff(world.alice.user), world.workspace.pk) == frozenset()
    User.objects.filter(pk=root.pk).update(is_active=False)
    assert access.rights(access.staff(root), world.workspace.pk) == frozenset()


def test_a_first_password_opens_no_api(world: World, erin: Actor) -> None:
    user = add(world, erin).member.user
    client = Client()
    client.force_login(user)
    assert client.get("/api/v1/runs").status_code == 401
    User.objects.filter(pk=user.pk).update(password_once=False)
    assert client.get("/api/v1/runs").status_code == 200
