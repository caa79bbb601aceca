"""A person is erased: nothing names them, and everything that they did still stands and still counts."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from dashboard import erasing
from dashboard.verify import verify_all
from effects.models import Approval, Effect, Report
from runs import access
from runs.access import SET_UP
from runs.evidence import seal_stream
from runs.models import Evidence, Press, StopRequest, Token, User
from tests.dashboard.scenes import browser
from tests.dashboard.test_canaries import texts_of_the_database
from tests.wire import token_text
from tests.worlds import World, a_review, an_approval, an_effect, fresh

pytestmark = pytest.mark.django_db(transaction=True)
NAME, EMAIL = "Alicia Wonder-Land", "alicia@wonder.example"


@pytest.fixture
def world() -> World:
    world = World()
    assert world.alice.user is not None
    User.objects.filter(pk=world.alice.user.pk).update(name=NAME, email=EMAIL)
    world.alice.user.refresh_from_db()
    return world


def person(world: World) -> User:
    assert world.alice.user is not None
    return User.objects.get(pk=world.alice.user.pk)


def test_nothing_names_them_any_more_and_the_chain_is_whole(world: World) -> None:
    run = world.run(name=f"Books of {NAME}")
    world.stop(run, note=f"{NAME} asked for it; ask {EMAIL.upper()}")
    reports = list(Report.objects.values_list("body", flat=True))
    lines = list(Evidence.objects.filter(stream=run.pk).values())
    seal_stream(run.pk)
    assert named() != set()  # the control
    told = erasing.erase(actor=SET_UP, user_id=person(world).pk)
    assert told.bodies > 0
    assert named() == set()
    assert list(Evidence.objects.filter(stream=run.pk).values()) == lines
    assert list(Report.objects.values_list("body", flat=True)) == reports
    assert StopRequest.objects.get().note == erasing.REMOVED
    assert Press.objects.get().actor == f"user:{person(world).pk}"
    (line,) = Evidence.objects.filter(kind="person.erased")
    assert line.stream == world.workspace.pk
    for stream in (run.pk, world.workspace.pk):
        seal_stream(stream)
    assert all(verdict.intact for verdict in verify_all())
    assert str(person(world)) == "a person who was erased"


def named() -> set[str]:
    """Where the database names them, letters of any case."""
    found = (NAME.lower(), EMAIL.lower())
    return {place for place, text in texts_of_the_database() if any(one in text.lower() for one in found)}


def test_their_sessions_and_tokens_end(world: World) -> None:
    page = browser(world.alice)
    text = token_text(world.workspace, by=person(world))
    assert page.get("/runs/").status_code == 200
    assert access.token_of(text) is not None
    erasing.erase(actor=SET_UP, user_id=person(world).pk)
    assert page.get("/runs/").status_code == 302
    assert access.token_of(text) is None
    assert Token.objects.filter(revoked_at__isnull=True, created_by=person(world)).count() == 0
    assert not Client().login(username=EMAIL, password="anything")


def test_their_approval_stays_and_counts_as_another_person(world: World) -> None:
    review = a_review(an_effect())
    given = an_approval(review, person=person(world))
    erasing.erase(actor=SET_UP, user_id=person(world).pk)
    kept: Any = fresh(given)
    assert (kept.person_id, str(kept.person)) == (person(world).pk, "a person who was erased")
    assert Approval.objects.exclude(person=kept.person).count() == 0


def test_only_a_superuser_erases_after_a_second_look_and_never_themselves(world: World) -> None:
    assert world.bob.user is not None
    path = f"/people/{person(world).pk}/erase"
    for actor in (world.bob, world.dana, world.mallory):
        assert browser(actor).get(path).status_code == 404
        assert browser(actor).post(path, {"address": EMAIL}).status_code == 404
    assert f'href="{path}"' not in browser(world.bob).get("/people").content.decode()
    User.objects.filter(pk=world.bob.user.pk).update(is_superuser=True)
    page = browser(world.bob)
    people = page.get("/people").content.decode()
    assert f'href="{path}"' in people
    assert f'href="/people/{world.bob.user.pk}/erase"' not in people
    html = page.get(path).content.decode()
    assert NAME in html
    assert "can’t be taken back" in html
    page.post(path, {"address": "another@example.org"})
    assert person(world).name == NAME
    with pytest.raises(erasing.CannotErase):
        erasing.erase(actor=world.bob, user_id=world.bob.user.pk)


def test_a_superuser_s_press_goes_to_the_end_after_a_fresh_password(world: World) -> None:
    assert world.bob.user is not None
    User.objects.filter(pk=world.bob.user.pk).update(is_superuser=True)
    page, path = browser(world.bob), f"/people/{person(world).pk}/erase"
    asked = page.post(path, {"address": EMAIL})
    assert asked["Location"].startswith("/sign-in/again?next=")
    assert person(world).name == NAME
    back = page.post(asked["Location"], {"password": "a long password"})
    assert back["Location"] == path
    wrong = page.post(path, {"address": "another@example.org"})
    assert (wrong.status_code, person(world).name) == (422, NAME)
    done = page.post(path, {"address": f" {EMAIL.upper()} "})
    assert (done.status_code, done["Location"]) == (302, "/people")
    assert erasing.is_erased(person(world))
    assert "They are a person who was erased." in page.get("/people").content.decode()
    assert "Nothing of them is left but the number" in page.get(path).content.decode()
    again = page.post(path, {"address": EMAIL})
    assert again.status_code == 422, "nobody has that address any more"
    assert Evidence.objects.filter(kind="person.erased").count() == 1


def test_the_command_counts_and_erases_once(world: World) -> None:
    said = io.StringIO()
    call_command("erase", EMAIL, dry_run=True, stdout=said)
    assert "1 memberships" in said.getvalue()
    assert person(world).name == NAME
    call_command("erase", EMAIL, yes=True, stdout=said)
    call_command("erase", str(person(world).pk), yes=True, stdout=said)
    assert erasing.is_erased(person(world))
    assert Evidence.objects.filter(kind="person.erased").count() == 1


@pytest.mark.parametrize("settlement", ["DECLARED", "UNKNOWN"])
def test_what_is_still_to_be_approved_sent_or_found_out_is_settled_first(
    world: World, settlement: str
) -> None:
    settled = an_effect(settlement="CONFIRMED", target=f"pay {NAME}")
    effect = an_effect(settlement=settlement, target=f"pay {NAME}")
    with pytest.raises(erasing.StillOpen):
        erasing.erase(actor=SET_UP, user_id=person(world).pk)
    assert {fresh(one).target for one in (effect, settled)} == {f"pay {NAME}"}
    assert person(world).name == NAME
    Effect.objects.filter(pk=effect.pk).update(target="pay somebody else")
    erasing.erase(actor=SET_UP, user_id=person(world).pk)
    assert fresh(settled).target == erasing.REMOVED


def test_a_person_who_is_called_like_a_word_of_ours_takes_none_with_them(world: World) -> None:
    run = world.run()
    world.stop(run, mode="cancel")
    StopRequest.objects.update(requested_mode="cancel")
    User.objects.filter(pk=person(world).pk).update(name="Cancel")
    erasing.erase(actor=SET_UP, user_id=person(world).pk)
    assert StopRequest.objects.get().requested_mode == "cancel"
