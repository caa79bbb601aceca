"""Django's admin: what a machine moves is looked at and never changed; secrets are on no page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import models
from django.test import Client
from django.urls import reverse

from dashboard import reports
from dashboard.admin import site
from effects.models import Effect, Kind, Report
from runs import access, people
from runs.models import (
    Evidence,
    EvidencePayload,
    IdempotencyRecord,
    InFlight,
    Membership,
    Permit,
    Press,
    Refusal,
    Run,
    Seal,
    Session,
    Step,
    StopRequest,
    Token,
    User,
    Worker,
    Workspace,
)
from tests.dashboard.report_scenes import awaiting_verification
from tests.kept import kept
from tests.worlds import World, a_kind

pytestmark = pytest.mark.django_db

MOVED: list[type[models.Model]] = [
    *(Run, Step, Permit, Effect, StopRequest, Press, InFlight, Refusal, Report),
    *(Worker, Session, Kind),
]
MANAGED: list[type[models.Model]] = [User, Membership, Workspace, Token]


Scene = tuple[World, Run]


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: Any) -> Iterator[Callable[[], Scene]]:
    yield from kept(django_db_blocker, set_the_scene)


def set_the_scene() -> Scene:
    """A run with a row of everything."""
    w = World()
    a_kind(w.workspace)
    run = awaiting_verification(w)
    reports.issue(run.pk)
    Session.objects.create(workspace=w.workspace, key="night")
    return w, run


@pytest.fixture
def w() -> World:
    return World()


@pytest.fixture
def team(scene: Callable[[], Scene]) -> World:
    """Whose run that is."""
    return scene()[0]


@pytest.fixture
def run(scene: Callable[[], Scene]) -> Run:
    return scene()[1]


def staff(*, superuser: bool) -> Client:
    made = User.objects.create_user(f"root-{superuser}@example.org", "a long password", is_staff=True)
    if superuser:
        User.objects.filter(pk=made.pk).update(is_superuser=True)
    made.user_permissions.set(Permission.objects.all())
    client = Client()
    client.force_login(User.objects.get(pk=made.pk))
    return client


@pytest.fixture(params=[True, False], ids=["superuser", "staff"])
def client(request: pytest.FixtureRequest) -> Client:
    return staff(superuser=request.param)


def address(model: type[models.Model], what: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


def stands(model: type[models.Model]) -> list[dict[str, Any]]:
    rows = list(model._default_manager.order_by("pk").values())
    return [{name: bytes(v) if isinstance(v, memoryview) else v for name, v in row.items()} for row in rows]


def test_what_the_machine_moves_is_on_the_site_and_nothing_more_than_people_besides() -> None:
    assert set(site._registry) == {*MOVED, *MANAGED}


@pytest.mark.parametrize("model", [Evidence, EvidencePayload, Seal, IdempotencyRecord])
def test_evidence_is_not_on_the_site_at_all(model: type[models.Model]) -> None:
    assert not site.is_registered(model)


@pytest.mark.parametrize("model", MOVED, ids=lambda model: model.__name__)
def test_a_moved_row_can_be_looked_at_and_not_changed(
    run: Run, client: Client, model: type[models.Model]
) -> None:
    row = model._default_manager.first()
    assert row is not None
    before = stands(model)
    assert client.get(address(model, "changelist")).status_code == 200
    page = client.get(address(model, "change", row.pk))
    assert page.status_code == 200
    assert b'name="_save"' not in page.content
    for what, args in (("change", [row.pk]), ("add", []), ("delete", [row.pk])):
        data = {"status": "ACTIVE", "cancel_version": 1, "settlement": "CONFIRMED", "post": "yes"}
        assert client.post(address(model, what, *args), data).status_code in (403, 405)
    action = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    client.post(address(model, "changelist"), action)
    assert stands(model) == before


@pytest.mark.parametrize("model", [*MOVED, *MANAGED], ids=lambda model: model.__name__)
def test_no_page_shows_a_secret(run: Run, client: Client, model: type[models.Model]) -> None:
    secrets = {
        *Token.objects.values_list("digest", flat=True),
        *Permit.objects.values_list("token", flat=True),
        *Step.objects.exclude(claim_token="").values_list("claim_token", flat=True),
        *Press.objects.values_list("key", flat=True),
    }
    for row in model._default_manager.all():
        shown = client.get(address(model, "change", row.pk)).content.decode()
        shown += client.get(address(model, "changelist")).content.decode()
        assert not [secret for secret in secrets if secret in shown]


def test_lists_take_as_many_queries_for_many_rows_as_for_few(
    team: World, run: Run, django_assert_max_num_queries: Any
) -> None:
    client = staff(superuser=True)
    for number in range(40):
        team.run(f"more-{number}")
    with django_assert_max_num_queries(15):
        client.get(address(Run, "changelist"))


# --- Who gets in ----------------------------------------------------------------------------------------


def test_to_people_who_are_not_staff_the_site_does_not_exist(team: World, run: Run) -> None:
    for actor in (team.alice, team.mallory):
        client = Client()
        assert actor.user is not None
        client.force_login(actor.user)
        for path in (reverse("admin:index"), address(Run, "changelist"), address(Run, "change", run.pk)):
            assert client.get(path).status_code == 404
            assert client.post(path, {}).status_code == 404


def test_who_is_not_signed_in_is_led_to_the_one_sign_in() -> None:
    for path in (reverse("admin:index"), reverse("admin:login")):
        answer = Client().get(path)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith(reverse("account_login"))


def test_staff_without_permissions_sees_no_rows(run: Run) -> None:
    plain = User.objects.create_user("plain@example.org", "a long password", is_staff=True)
    client = Client()
    client.force_login(plain)
    assert client.get(address(Run, "changelist")).status_code == 403
    assert client.get(address(Token, "changelist")).status_code == 403


# --- People, teams, tokens ---------------------------------------------------------------------------------


def test_a_person_is_made_with_an_address_in_lower_case() -> None:
    client = staff(superuser=True)
    data = {"email": "Erin@Example.org", "name": "Erin", "usable_password": "true"}
    data |= {"password1": "quite a long one", "password2": "quite a long one"}
    assert client.post(address(User, "add"), data).status_code == 302
    made = User.objects.get(email="erin@example.org")
    assert made.check_password("quite a long one")
    assert not made.is_staff


def test_only_a_superuser_gives_powers(w: World) -> None:
    assert w.alice.user is not None
    alice = w.alice.user
    data = {"email": alice.email, "name": "Alice", "is_active": "on", "is_staff": "on", "is_superuser": "on"}
    assert staff(superuser=False).post(address(User, "change", alice.pk), data).status_code == 302
    assert not User.objects.get(pk=alice.pk).is_superuser
    assert staff(superuser=True).post(address(User, "change", alice.pk), data).status_code == 302
    assert User.objects.get(pk=alice.pk).is_superuser


def test_staff_can_not_change_a_superuser() -> None:
    staff(superuser=True)
    root = User.objects.get(is_superuser=True)
    client = staff(superuser=False)
    data = {"email": "mine@example.org", "is_active": "on"}
    assert client.post(address(User, "change", root.pk), data).status_code == 403
    password = reverse("admin:auth_user_password_change", args=[root.pk])
    assert client.post(password, {"password1": "x" * 20, "password2": "x" * 20}).status_code == 403
    root.refresh_from_db()
    assert root.check_password("a long password")


@pytest.mark.parametrize("model", [User, Workspace, Token], ids=lambda model: model.__name__)
def test_what_evidence_names_is_never_deleted(w: World, client: Client, model: type[models.Model]) -> None:
    row = model._default_manager.first()
    assert row is not None
    assert client.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert model._default_manager.filter(pk=row.pk).exists()


def recorded(w: World) -> list[str]:
    """The kinds of the workspace's lines since its own set-up."""
    lines = Evidence.objects.filter(stream=w.workspace.pk).exclude(actor=access.SET_UP.id)
    return list(lines.order_by("seq").values_list("kind", flat=True))


def test_a_role_is_given_changed_and_taken_on_record(w: World, client: Client) -> None:
    frank = User.objects.create_user("frank@example.org", "a long password")
    data = {"user": frank.pk, "workspace": w.workspace.pk, "role": "viewer"}
    assert client.post(address(Membership, "add"), data).status_code == 302
    member = Membership.objects.get(user=frank)
    data["role"] = "operator"
    assert client.post(address(Membership, "change", member.pk), data).status_code == 302
    member.refresh_from_db()
    assert member.role == "operator"
    assert client.post(address(Membership, "delete", member.pk), {"post": "yes"}).status_code == 302
    assert not Membership.objects.filter(pk=member.pk).exists()
    assert recorded(w) == ["member.added", "member.changed", "member.removed"]


def test_here_too_a_workspace_keeps_its_last_admin(w: World, client: Client) -> None:
    member = Membership.objects.get(workspace=w.elsewhere)  # Mallory
    data = {"user": member.user_id, "workspace": w.elsewhere.pk, "role": "viewer"}
    for path, form in (("change", data), ("delete", {"post": "yes"})):
        told = client.post(address(Membership, path, member.pk), form, follow=True).content.decode()
        assert "Nothing was changed. A workspace keeps at least one admin" in told
    member.refresh_from_db()
    assert member.role == "admin"


def test_a_workspace_is_renamed_and_its_gate_left_alone(w: World, client: Client) -> None:
    data = {"name": "Treasury", "slug": "treasury", "gate": "SHUT", "epoch": 9}
    assert client.post(address(Workspace, "change", w.workspace.pk), data).status_code == 302
    now = Workspace.objects.get(pk=w.workspace.pk)
    assert (now.name, now.gate, now.epoch) == ("Treasury", "OPEN", 1)


def test_a_token_is_renamed_but_keeps_scopes_and_digest(w: World, client: Client) -> None:
    token = Token.objects.filter(workspace=w.workspace).get()
    data = {"name": "night shift", "scopes": '["kinds:write"]', "digest": "0", "revoked_at_0": "2020-01-01"}
    assert client.post(address(Token, "change", token.pk), data).status_code == 302
    now = Token.objects.get(pk=token.pk)
    assert (now.name, now.scopes, now.digest, now.revoked_at) == (
        "night shift",
        token.scopes,
        token.digest,
        None,
    )
    assert client.post(address(Token, "add"), data).status_code == 403


def test_a_token_is_revoked_for_good(w: World, client: Client) -> None:
    token, text = people.issue_token(
        actor=access.SET_UP, workspace_id=w.workspace.pk, name="t", scopes=["runs:read"]
    )
    data = {"action": "revoke", "_selected_action": [token.pk]}
    assert client.post(address(Token, "changelist"), data).status_code == 302
    revoked = Token.objects.get(pk=token.pk).revoked_at
    assert revoked is not None
    assert access.token_of(text) is None
    client.post(address(Token, "changelist"), data)
    assert Token.objects.get(pk=token.pk).revoked_at == revoked
    assert recorded(w) == ["token.revoked"]
