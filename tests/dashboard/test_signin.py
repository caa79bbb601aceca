"""A one-time link: it shows whom it lets in, lets them in once, and leaves a line where they belong."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core import signing
from django.core.management import CommandError, call_command

from dashboard.management.commands import signin
from dashboard.management.commands.up import keep_address
from runs import links
from runs.models import Evidence, User
from tests.dashboard.scenes import browser, text_of
from tests.races.sides import together
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def path_for(email: str, **options: str) -> str:
    """The path of a new link, as the command prints it."""
    said = StringIO()
    call_command("signin", email, url="http://127.0.0.1:8000", stdout=said, **options)
    found = re.match(r"http://127\.0\.0\.1:8000(/sign-in/link/\S+)\n", said.getvalue())
    assert found, said.getvalue()
    assert "once, within ten minutes" in said.getvalue()
    return found[1]


def email_of(actor: Any) -> str:
    return str(actor.user.email)


def signed_in(client: Any) -> bool:
    return bool(client.get("/people").status_code == 200)


def test_a_link_lets_the_person_in_once_and_is_on_record(world: World) -> None:
    path, alice = path_for(email_of(world.alice).upper()), browser()
    for _ in range(3):  # whatever fetches links ahead
        shown = browser().get(path)
        assert shown.status_code == 200
        assert "Sign in as Alice?" in text_of(shown.content.decode())
        assert "no-store" in shown["Cache-Control"]
    assert not signed_in(alice)
    assert browser(strict=True).post(path).status_code == 403, "a form of another site"
    assert alice.post(path)["Location"] == "/"
    assert signed_in(alice)
    for again in (browser().get(path), browser().post(path)):
        assert again.status_code == 410
        assert "This link is over" in text_of(again.content.decode())
    lines = Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="link.").order_by("seq")
    assert list(lines.values_list("kind", "actor")) == [
        ("link.issued", "system:set-up"),
        ("link.used", world.alice.id),
    ]
    assert Evidence.objects.filter(stream=world.elsewhere.pk, kind__startswith="link.").count() == 0


def test_of_two_that_come_with_one_link_one_gets_in(world: World) -> None:
    text = path_for(email_of(world.alice)).rpartition("/")[2]
    came = together([lambda: links.use_link(text=text, address="")] * 4)
    assert [type(one) for one in came].count(User) == 1
    assert came.count(None) == 3
    assert Evidence.objects.filter(kind="link.used").count() == 1


def test_a_link_ends_with_time_with_another_sign_in_and_with_the_account(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, carol = (path_for(email_of(one)) for one in (world.alice, world.bob, world.carol))
    assert [browser().get(path).status_code for path in (alice, bob, carol)] == [200] * 3
    browser().post("/sign-in", {"login": email_of(world.alice), "password": "a long password"})
    User.objects.filter(email=email_of(world.bob)).update(is_active=False)
    monkeypatch.setattr(links, "LASTS_S", -1)
    assert [browser().post(path).status_code for path in (alice, bob, carol)] == [410] * 3


@pytest.mark.parametrize(
    "forged", ["x", "x:y:z", signing.dumps([1, ""]), signing.dumps([1, ""], salt="other")]
)
def test_a_forged_link_is_over(world: World, forged: str) -> None:
    assert browser().post(f"/sign-in/link/{forged}").status_code == 410
    assert Evidence.objects.filter(kind="link.used").count() == 0


def test_an_unknown_address_and_a_switched_off_account_get_none(world: World) -> None:
    User.objects.filter(email=email_of(world.bob)).update(is_active=False)
    for email in ("nobody@example.org", email_of(world.bob)):
        with pytest.raises(CommandError, match="Nobody here who may sign in"):
            path_for(email)
    assert Evidence.objects.filter(kind="link.issued").count() == 0


def test_who_came_by_a_link_chooses_a_password_without_the_old_one_and_only_then(world: World) -> None:
    form = {"new_password1": "a long one of her own", "new_password2": "a long one of her own"}
    assert browser(world.alice).post("/password", form).status_code == 422
    alice = browser()
    alice.post(path_for(email_of(world.alice)))
    assert alice.post("/password", form).status_code == 302
    assert User.objects.get(email=email_of(world.alice)).check_password(form["new_password1"])
    assert alice.post("/password", dict.fromkeys(form, "another long one")).status_code == 422


def test_a_person_without_a_workspace_is_let_in_too(world: World) -> None:
    frank, client = a_person("frank"), browser()
    assert client.post(path_for(frank.email)).status_code == 302
    assert client.get("/password").status_code == 200


def test_the_link_leads_to_where_up_serves_this_data_folder(
    world: World, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ALLSTOP_DATA, settings.ALLSTOP_ORIGINS = tmp_path, ["https://stop.example.org"]
    monkeypatch.delenv("ALLSTOP_ORIGINS", raising=False)
    assert signin.where() == "https://stop.example.org"
    keep_address(tmp_path, "http://127.0.0.1:8617")
    assert signin.where() == "http://127.0.0.1:8617"
    monkeypatch.setenv("ALLSTOP_ORIGINS", "https://stop.example.org")
    assert signin.where() == "https://stop.example.org"
