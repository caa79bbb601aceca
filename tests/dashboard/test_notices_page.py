"""The pages of notices: my e-mail, the endpoints, their secrets once, their log; and what others see."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from dashboard.models import Endpoint, NoMail, Posting, Subscription
from dashboard.notices import outbox, sending
from runs import access, wake
from runs.models import Role
from tests.dashboard.scenes import browser
from tests.receiver import Receiver
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db
FORM = {"name": "ops", "events": ["stop.recorded", "stop.closed"]}


@pytest.fixture
def receiver(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(wake, "run_soon", lambda *message: None)
    with Receiver() as receiver:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [receiver.origin]
        yield receiver


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def root(world: World) -> Client:
    return browser(access.person(a_person("root", world.workspace, Role.ADMIN)))


def secret_in(html: str) -> str:
    found = re.search(r'<code id="secret">(whsec_[^<]+)</code>', html)
    return found.group(1) if found else ""


def added(root: Client, receiver: Receiver) -> Endpoint:
    page = root.post("/notices", FORM | {"url": receiver.url})
    assert page.status_code == 201
    receiver.state.secret = secret_in(page.content.decode())
    return Endpoint.objects.get()


def test_an_admin_adds_an_endpoint_and_sees_its_secret_once(root: Client, receiver: Receiver) -> None:
    endpoint = added(root, receiver)
    assert receiver.state.secret.startswith("whsec_")
    for path in ("/notices", f"/notices/{endpoint.pk}"):
        html = root.get(path).content.decode()
        assert receiver.state.secret not in html
        assert "s3cret-path" not in html, "the path of an address is often a secret"
        assert receiver.origin in html
    again = root.post("/notices", FORM | {"url": receiver.url})
    assert (again.status_code, Endpoint.objects.count()) == (422, 1)
    assert "is there already" in again.content.decode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"url": "http://example.org/"}, "https"),
        ({"url": "https://a:b@example.org/"}, "credentials"),
        ({"name": " "}, "a name"),
        ({"events": ["stop.everything"]}, "at least one event"),
    ],
)
def test_what_can_not_be_is_said_and_the_form_keeps_what_was_typed(
    change: dict[str, object], says: str, root: Client
) -> None:
    page = root.post("/notices", {**FORM, "url": "https://hooks.example.org/x", **change})
    assert page.status_code == 422
    assert says in page.content.decode()
    assert Endpoint.objects.count() == 0


def test_a_test_is_sent_and_the_log_shows_the_receivers_answer(root: Client, receiver: Receiver) -> None:
    endpoint = added(root, receiver)
    root.post(f"/notices/{endpoint.pk}", {"do": "test"})
    receiver.fault(("answer", 503))
    sending.send_due(endpoint.pk)
    html = root.get(f"/notices/{endpoint.pk}").content.decode()
    assert "answered 503" in html
    assert "waiting" in html
    root.post(f"/notices/log/{Posting.objects.get().pk}/redeliver")
    assert sending.send_due(endpoint.pk) == 1
    first, second = receiver.letters
    assert first.id == second.id
    assert second.genuine
    assert second.body["type"] == "allstop.test"
    assert "answered 204" in root.get(f"/notices/{endpoint.pk}").content.decode()


def test_a_rotation_shows_the_new_secret_once_and_says_that_two_are_in_force(
    root: Client, receiver: Receiver
) -> None:
    endpoint = added(root, receiver)
    page = root.post(f"/notices/{endpoint.pk}", {"do": "rotate"}).content.decode()
    new = secret_in(page)
    assert new not in ("", receiver.state.secret)
    later = root.get(f"/notices/{endpoint.pk}").content.decode()
    assert new not in later
    assert "an older one until" in later
    root.post(f"/notices/{endpoint.pk}", {"do": "end-old"})
    assert "an older one until" not in root.get(f"/notices/{endpoint.pk}").content.decode()


def test_an_endpoint_is_turned_off_and_on_and_removed(root: Client, receiver: Receiver) -> None:
    endpoint = added(root, receiver)
    root.post(f"/notices/{endpoint.pk}", {"do": "off"})
    assert "an admin turned it off" in root.get("/notices").content.decode()
    said = root.post(f"/notices/{endpoint.pk}", {"do": "test"}, follow=True).content.decode()
    assert "turn it on first" in said
    root.post(f"/notices/{endpoint.pk}", {"do": "on"})
    assert "Remove “ops”?" in root.get(f"/notices/{endpoint.pk}/remove").content.decode()
    root.post(f"/notices/{endpoint.pk}/remove")
    assert Endpoint.objects.count() == 0
    assert root.post(f"/notices/{endpoint.pk}", {"do": "on"}).status_code == 404


def test_a_member_chooses_their_own_e_mail_and_nobody_elses(world: World, receiver: Receiver) -> None:
    dana = browser(world.dana)
    dana.post("/notices/mail", {"events": ["stop.recorded", "nonsense"], "off": "1"})
    asked = Subscription.objects.get()
    assert (asked.user, asked.events) == (world.dana.user, ["stop.recorded"])
    assert NoMail.objects.get().user == world.dana.user
    dana.post("/notices/mail", {"events": []})
    assert (Subscription.objects.get().events, NoMail.objects.count()) == ([], 0)


def test_who_is_no_admin_reads_the_list_and_changes_nothing(
    world: World, root: Client, receiver: Receiver
) -> None:
    endpoint = added(root, receiver)
    world.stop(world.run())
    outbox.fan_out(outbox.untold()[0])
    posting = Posting.objects.get()
    bob = browser(world.bob)
    assert "Only an admin" in bob.get("/notices").content.decode()
    paths = [f"/notices/{endpoint.pk}", f"/notices/{endpoint.pk}/remove"]
    assert {bob.get(path).status_code for path in paths} == {403}
    posts = [*paths, "/notices", f"/notices/log/{posting.pk}/redeliver"]
    assert {bob.post(path, {"do": "rotate"}).status_code for path in posts} == {403}


def test_an_admin_of_another_workspace_finds_nothing_here(
    world: World, root: Client, receiver: Receiver
) -> None:
    endpoint = added(root, receiver)
    world.stop(world.run())
    outbox.fan_out(outbox.untold()[0])
    mallory, posting = browser(world.mallory), Posting.objects.get()
    for path in (f"/notices/{endpoint.pk}", f"/notices/{endpoint.pk}/remove"):
        absent = path.replace(endpoint.pk, "end_absent")
        assert mallory.get(path).status_code == mallory.get(absent).status_code == 404
        assert mallory.post(path, {"do": "rotate"}).status_code == 404
    assert mallory.post(f"/notices/log/{posting.pk}/redeliver").status_code == 404
    assert endpoint.pk not in mallory.get("/notices").content.decode()
    assert sending.send_due(endpoint.pk) == 1
    assert receiver.letters[0].genuine
