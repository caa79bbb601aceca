"""Who may do what: a person by role, an agent by scope, a run's token only its run, Mallory nothing."""

from __future__ import annotations

import binascii
import itertools
from collections.abc import Callable

import pytest

from effects import intents
from runs import access, gate, people
from runs.access import EXECUTOR, SET_UP, SYSTEM, Actor, NotAllowed, NotFound
from runs.guard import Ask
from runs.models import Evidence, Membership, Permit, Step, Token, User, Workspace
from runs.store import database_time
from tests.worlds import World, a_person, a_run, a_token, a_workspace, in_seconds, intention

pytestmark = pytest.mark.django_db

ACTIONS = [
    *("read", "write", "stop", "resume", "resolve", "approve"),
    *("release", "admin", "kinds", "rules", "demo"),
]
# Written from the list of roles: viewer reads · operator stops, escalates, resumes, resolves with evidence ·
# reviewer approves, rejects, releases too · admin has members, tokens, policies, kinds as well.
ROLES = {
    "viewer": "read",
    "operator": "read stop resume resolve demo",
    "reviewer": "read stop resume resolve demo approve release",
    "admin": "read stop resume resolve demo approve release admin kinds rules",
}
SCOPES = {
    "runs:read": "read",
    "runs:write": "read write",
    "stop:write": "read stop",
    "kinds:write": "read kinds",
    "rules:write": "read rules",
    "gate:write": "read stop release",
}


def allowed(actor: Actor, workspace: Workspace, owner: User | None = None) -> set[str]:
    """The actions that the actor may do to a run of this workspace."""
    run = a_run(workspace=workspace, owner=owner)
    return {action for action in ACTIONS if access.may(actor, action, run)}


# --- People -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "actions"), ROLES.items())
def test_a_person_may_do_what_the_role_says_and_nothing_else(world: World, role: str, actions: str) -> None:
    person = access.person(a_person("pat", world.workspace, role))
    assert allowed(person, world.workspace) == set(actions.split())
    for action in ACTIONS:
        if action in actions.split():
            access.demand_workspace(person, action, world.workspace.pk)
        else:
            with pytest.raises(NotAllowed):
                access.demand_workspace(person, action, world.workspace.pk)


def test_the_owner_of_a_run_may_stop_it_and_no_more_than_the_role_says(world: World) -> None:
    dana = world.dana.user
    assert allowed(world.dana, world.workspace, dana) == {"read", "stop"}
    assert allowed(world.dana, world.workspace) == {"read"}


@pytest.mark.invariant("I29")
def test_a_role_that_is_lost_or_changed_counts_at_the_next_question(world: World) -> None:
    run = a_run(workspace=world.workspace)
    assert access.may(world.alice, "stop", run)
    Membership.objects.filter(user=world.alice.user).update(role="viewer")
    assert not access.may(world.alice, "stop", run)
    Membership.objects.filter(user=world.alice.user).delete()
    with pytest.raises(NotFound):
        access.may(world.alice, "read", run)


@pytest.mark.invariant("I29")
def test_a_person_who_was_deactivated_may_nothing_at_once(world: World) -> None:
    assert world.alice.user is not None
    world.alice.user.is_active = False
    world.alice.user.save()
    with pytest.raises(NotFound):
        allowed(world.alice, world.workspace)
    assert not access.can_read_workspace(world.alice.user, world.workspace.pk)


@pytest.mark.invariant("I28")
def test_for_mallory_nothing_here_exists(world: World) -> None:
    run = a_run(workspace=world.workspace)
    assert world.mallory.user is not None
    for action, actor in itertools.product(ACTIONS, (world.mallory, world.foreign_agent, Actor("nobody"))):
        with pytest.raises(NotFound):
            access.may(actor, action, run)
        with pytest.raises(NotFound):
            access.demand_workspace(actor, action, world.workspace.pk)
        with pytest.raises(NotFound):
            access.find_run(actor, run.pk, action)
    assert not access.can_read_run(world.mallory.user, run.pk)
    assert access.workspaces_of(world.mallory.user) == [world.elsewhere]


def test_a_run_that_is_not_there_and_one_that_is_foreign_get_the_same_answer(world: World) -> None:
    foreign = a_run(workspace=world.elsewhere)
    told = []
    for run_id in (foreign.pk, "run_absent"):
        with pytest.raises(NotFound) as caught:
            access.find_run(world.alice, run_id)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_super_user_has_no_rights_without_a_membership(world: World) -> None:
    root = User.objects.create_superuser("root@example.org", "a long password")
    with pytest.raises(NotFound):
        allowed(access.person(root), world.workspace)


# --- Tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(1, 5))
def test_a_token_may_do_what_its_scopes_say_together(world: World, count: int) -> None:
    for scopes in itertools.combinations(SCOPES, count):
        expected = {action for scope in scopes for action in SCOPES[scope].split()}
        assert allowed(a_token(world.workspace, *scopes), world.workspace) == expected


def test_no_scope_lets_a_token_approve_resume_or_administer(world: World) -> None:
    assert allowed(a_token(world.workspace), world.workspace) == {"read", "write", "stop", "kinds"}
    for scope in ("approve", "admin", "resume", "runs:approve", "*", ""):
        with pytest.raises(ValueError, match="scopes are"):
            a_token(world.workspace, scope)
    assert not Token.objects.filter(scopes__icontains="approve").exists()


def test_a_token_of_one_run_does_not_know_of_any_other(world: World) -> None:
    mine, other = a_run(workspace=world.workspace), a_run(workspace=world.workspace)
    bound = a_token(world.workspace, run=mine)
    assert access.may(bound, "stop", mine)
    assert access.may(bound, "write", mine)
    for action in ACTIONS:
        with pytest.raises(NotFound):
            access.may(bound, action, other)
    for action in ("write", "stop", "kinds"):
        with pytest.raises(NotAllowed):
            access.demand_workspace(bound, action, world.workspace.pk)


@pytest.mark.invariant("I29")
def test_a_token_that_was_revoked_or_has_expired_may_nothing_at_once(world: World) -> None:
    revoked, expired, living = (a_token(world.workspace) for _ in range(3))
    for actor, changes in (
        (revoked, {"revoked_at": in_seconds(0)}),
        (expired, {"expires_at": in_seconds(-1)}),
    ):
        assert actor.token is not None
        Token.objects.filter(pk=actor.token.pk).update(created_at=in_seconds(-60), **changes)
        with pytest.raises(NotFound):
            allowed(actor, world.workspace)
    assert "write" in allowed(living, world.workspace)


def test_a_token_is_found_by_its_text_which_is_kept_nowhere(world: World) -> None:
    token, text = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="agent", scopes=["runs:read"]
    )
    assert access.token_of(text) == token
    head, lookup, secret, check = text.split("_")
    assert (head, len(lookup), len(secret)) == ("als", 8, 64)
    kept = " ".join(str(value) for value in Token.objects.filter(pk=token.pk).values().get().values())
    assert secret not in kept
    assert access.token_of(f"als_{lookup}_{secret[::-1]}_{check}") is None


@pytest.mark.parametrize(
    "text",
    ["", "als", "als___", "als_12345678_secret_00000000", "Bearer x", "als_a_b_c_d", "_" * 500, "ä_ö_ü_ß"],
)
def test_a_text_that_is_no_token_is_nobodys(text: str) -> None:
    assert access.token_of(text) is None


def test_a_token_with_a_wrong_secret_and_a_right_checksum_is_nobodys(world: World) -> None:
    _, text = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="agent", scopes=["runs:read"]
    )
    lookup, secret = text.split("_")[1], "0" * 64
    check = f"{binascii.crc32((lookup + secret).encode()):08x}"
    assert access.token_of(f"als_{lookup}_{secret}_{check}") is None


@pytest.mark.invariant("I29")
def test_a_revoked_or_expired_text_opens_nothing(world: World) -> None:
    for changes in (
        {"revoked_at": in_seconds(0)},
        {"expires_at": in_seconds(-1), "created_at": in_seconds(-9)},
    ):
        token, text = people.issue_token(
            actor=access.SET_UP, workspace_id=world.workspace.pk, name="agent", scopes=["runs:read"]
        )
        assert access.token_of(text) == token
        Token.objects.filter(pk=token.pk).update(**changes)
        assert access.token_of(text) is None


def test_a_token_notes_its_last_use_once_a_minute(world: World) -> None:
    token, _ = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="agent", scopes=["runs:read"]
    )
    access.note_use(token)
    first = Token.objects.get(pk=token.pk).last_used_at
    access.note_use(token)
    assert first is not None
    assert Token.objects.get(pk=token.pk).last_used_at == first


# --- At the gate ------------------------------------------------------------------------------------------

GATES: dict[str, Callable[[Ask], object]] = {
    "claim": gate.claim,
    "register": gate.register,
    "release": gate.release,
    "dispatch": gate.dispatch,
    "retry": lambda ask: gate.retry(ask, due_in_s=1, allowed=intents.may_retry()),
    "fall_due": gate.fall_due,
    "declare": lambda ask: intents.declare(ask, intention()),
}


@pytest.mark.invariant("I29")
@pytest.mark.parametrize("verb", GATES)
@pytest.mark.parametrize("named", ["key", "id"])
def test_the_gate_asks_for_the_right_itself_whatever_was_asked_before(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, named: str
) -> None:
    """A token may be revoked, or a worker be paused, between the first look at it and the lock."""
    run = world.run()
    step = world.claimed(run, "held")
    names = {"step_key": "pay"} if named == "key" else {"step_id": step.pk, "claim_token": step.claim_token}
    monkeypatch.setattr(intents, "find_run", lambda actor, run_id, action: run)
    reader, bound = a_token(world.workspace, "runs:read"), a_token(world.workspace, run=a_run())
    before = [list(model.objects.order_by("pk").values()) for model in (Step, Permit, Evidence)]
    for actor, error in (
        (reader, NotAllowed),
        (bound, NotFound),
        (world.foreign_agent, NotFound),
        (world.mallory, NotFound),
        (world.alice, NotAllowed),
    ):
        with pytest.raises(error):
            GATES[verb](world.ask(run, actor=actor, **names))
    Token.objects.update(revoked_at=database_time())
    with pytest.raises(NotFound):
        GATES[verb](world.ask(run, **names))
    assert [list(model.objects.order_by("pk").values()) for model in (Step, Permit, Evidence)] == before


# --- Ourselves --------------------------------------------------------------------------------------------


def test_only_our_own_three_actors_are_trusted_without_rows(world: World) -> None:
    for actor in (SYSTEM, EXECUTOR):
        assert allowed(actor, world.workspace) == {"read", "write", "stop"}
    assert allowed(SET_UP, world.workspace) == {"admin", "kinds", "rules"}
    for actor in (SYSTEM, EXECUTOR, SET_UP):
        forged = Actor(actor.id, via="system")
        with pytest.raises(NotFound):
            allowed(forged, world.workspace)
    assert access.rights(world.alice, a_workspace().pk) == frozenset()
