"""Tokens: everybody sees which there are, an admin makes them and ends them, a text is shown once."""

from __future__ import annotations

import re

import pytest

from dashboard.pages.tokens import SCOPES
from runs import access
from runs.models import Evidence, Token
from tests.dashboard.scenes import an_admin, browser, secret_in, text_of
from tests.wire import Wire
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def test_every_scope_that_a_token_can_have_can_be_given_on_the_page() -> None:
    assert set(SCOPES) == set(access.SCOPE_MAY)


@pytest.mark.invariant("I29")
def test_a_token_is_shown_once_and_works_until_it_is_revoked(world: World) -> None:
    erin = browser(an_admin(world))
    form = {"name": "nightly", "scopes": ["runs:write", "stop:write"], "days": "30"}
    answer = erin.post("/tokens", form)
    assert answer.status_code == 201
    assert "no-store" in answer["Cache-Control"]
    text = secret_in(answer.content.decode())
    token = access.token_of(text)
    assert token is not None
    assert (token.name, token.scopes, token.workspace_id) == (
        "nightly",
        ["runs:write", "stop:write"],
        world.workspace.pk,
    )
    again = erin.get("/tokens").content.decode()
    assert text not in again
    assert text.split("_")[2] not in again
    assert "nightly" in again
    revoke = f"/tokens/{token.pk}/revoke"
    assert Wire(text).get("/runs").status == 200
    said = text_of(erin.get(revoke).content.decode())
    assert re.search(r"Last used \d+ s ago", said)
    assert "They fail closed" in said
    assert access.token_of(text) is not None  # reading it revokes nothing
    told = text_of(erin.post(revoke, follow=True).content.decode())
    assert "Token “nightly” is revoked." in told
    assert Wire(text).get("/runs").status == 401
    assert "It is revoked already; it opens nothing." in text_of(erin.get(revoke).content.decode())
    kinds = Evidence.objects.filter(stream=world.workspace.pk).order_by("seq").values_list("kind", flat=True)
    assert list(kinds)[-2:] == ["token.issued", "token.revoked"]


def test_the_same_form_sent_again_makes_no_second_token(world: World) -> None:
    erin = browser(an_admin(world))
    form = {"name": "nightly", "scopes": ["runs:write"], "days": "30"}
    assert erin.post("/tokens", form).status_code == 201
    again = erin.post("/tokens", form)
    assert again.status_code == 422
    assert "A token of this name is in force" in text_of(again.content.decode())
    assert Token.objects.filter(name="nightly").count() == 1


def test_a_form_that_makes_no_token_says_why_and_keeps_what_was_typed(world: World) -> None:
    erin = browser(an_admin(world))
    before = Token.objects.count()
    answer = erin.post("/tokens", {"name": "<b>x</b>", "scopes": ["approve"]})
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "Choose at least one thing that the token may do." in html
    assert 'value="&lt;b&gt;x&lt;/b&gt;"' in html
    assert "Give the token a name" in erin.post("/tokens", {"name": "\u202e"}).content.decode()
    assert Token.objects.count() == before


@pytest.mark.parametrize("who", ["alice", "bob", "dana"])
def test_who_is_no_admin_sees_the_tokens_without_a_button(world: World, who: str) -> None:
    before, client = Token.objects.count(), browser(getattr(world, who))
    html = client.get("/tokens").content.decode()
    assert "Only an admin of this workspace creates and revokes tokens." in html
    assert ">agent<" in html
    assert "Create the token" not in html
    assert "Revoke" not in html
    token = Token.objects.get(workspace=world.workspace)
    assert client.post("/tokens", {"name": "x", "scopes": ["stop:write"]}).status_code == 403
    for method in (client.get, client.post):
        assert method(f"/tokens/{token.pk}/revoke").status_code == 403
    assert Token.objects.count() == before
    assert access.live_tokens().filter(pk=token.pk).exists()


def test_a_foreign_token_is_as_absent_as_one_that_never_was(world: World) -> None:
    token = Token.objects.get(workspace=world.workspace)
    mallory = browser(world.mallory)
    for query in ("", f"?workspace={world.workspace.slug}"):
        for token_id in (token.pk, "tok_absent"):
            for method in (mallory.get, mallory.post):
                assert method(f"/tokens/{token_id}/revoke{query}").status_code == 404
    assert access.live_tokens().filter(pk=token.pk).exists()


def test_many_tokens_are_counted_and_found_by_name(world: World) -> None:
    Token.objects.bulk_create(
        Token(workspace=world.workspace, name=f"batch {n}", lookup=f"{n:08}", scopes=["runs:read"])
        for n in range(150)
    )
    alice = browser(world.alice)
    said = text_of(alice.get("/tokens").content.decode())
    assert "100 of 151 tokens" in said
    assert "batch 7 " not in said
    found = text_of(alice.get("/tokens?q=batch 7").content.decode())
    assert "batch 7 " in found
    assert "batch 100" not in found
