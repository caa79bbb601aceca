"""Guessing passwords is slow, whoever guesses; it holds up nobody who is signed in, and no stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client

from tests.dashboard.scenes import browser, text_of
from tests.worlds import World

RIGHT = "a long password"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def world(db: None) -> World:
    return World()


def sign_in(who: str, said: str = "wrong", *, address: str = "192.0.2.1") -> Any:
    return Client(REMOTE_ADDR=address).post("/sign-in", {"login": who, "password": said})


def test_after_five_wrong_passwords_one_has_to_wait_from_wherever_one_tries(world: World) -> None:
    assert world.alice.user is not None
    email = world.alice.user.email
    for n in range(5):
        assert "not correct" in text_of(sign_in(email, address=f"192.0.2.{n}").content.decode())
    answer = sign_in(email, RIGHT, address="192.0.2.9")
    assert (answer.status_code, "sessionid" in answer.cookies) == (200, False)
    assert "Too many failed login attempts" in text_of(answer.content.decode())
    assert world.bob.user is not None
    assert sign_in(world.bob.user.email, RIGHT, address="192.0.2.9").status_code == 302


def test_an_address_that_tries_all_the_time_is_told_when_to_come_back(world: World) -> None:
    answers = [sign_in(f"nobody-{n}@example.org") for n in range(31)]
    assert [answer.status_code for answer in answers] == [200] * 30 + [429]
    assert answers[-1].headers["Retry-After"] == "60"
    assert "Too many sign-ins from here" in text_of(answers[-1].content.decode())
    assert sign_in("somebody@example.org", address="192.0.2.2").status_code == 200


def test_who_is_signed_in_stops_a_run_all_the_while(world: World) -> None:
    page, run = browser(world.alice), world.run()
    page.defaults["REMOTE_ADDR"] = "192.0.2.1"
    assert sign_in("nobody@example.org").status_code == 200
    assert [sign_in(f"nobody-{n}@example.org").status_code for n in range(31)][-1] == 429
    assert page.post(f"/runs/{run.pk}/stop", {"key": "k"}).status_code == 302
    run.refresh_from_db()
    assert run.cancel_version == 2


def test_what_is_counted_takes_bounded_room_and_a_flood_pushes_little_out() -> None:
    caches: Any = settings.CACHES
    assert caches["default"]["OPTIONS"]["MAX_ENTRIES"] == 20_000
