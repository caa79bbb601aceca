"""Policies: read by everybody in the workspace, created by whoever may stop, and never changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import policies, scopes
from runs.models import Policy, Run
from runs.policies import Match
from runs.scopes import Target
from runs.stops import Wish
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_kind

pytestmark = pytest.mark.django_db
FORM = {"name": "no-payments", "labels": "tag = payments\n\n team=Finance ", "kinds": "bank.charge"}


@pytest.fixture
def world() -> World:
    return World()


def address(world: World) -> str:
    return f"/policies/?workspace={world.workspace.slug}"


def made(world: World, name: str = "no-payments", **match: Any) -> Policy:
    new = Match(**(match or {"labels": {"tag": "payments"}}))
    return policies.create_policy(actor=world.alice, workspace_id=world.workspace.pk, name=name, match=new)


def seen(world: World, path: str) -> str:
    answer = browser(world.dana).get(path)
    assert answer.status_code == 200
    return text_of(answer.content.decode())


def test_an_operator_creates_one_and_it_withholds_nothing_yet(world: World) -> None:
    a_kind(world.workspace, "bank.charge")
    run = world.run("a", labels={"tag": "payments", "team": "Finance"})
    alice = browser(world.alice)
    assert "Registered: bank.charge" in text_of(alice.get(address(world)).content.decode())
    answer = alice.post(address(world), {**FORM, "classes": ["browser_action"]})
    policy = Policy.objects.get()
    assert answer["Location"] == f"/policies/{policy.pk}"
    said = text_of(alice.get(answer["Location"]).content.decode())
    assert "The policy is there. It withholds nothing until it is stopped." in said
    assert "Runs with tag = payments and team = Finance; effects of kind bank.charge" in said
    assert "1 run falls under it now" in said
    assert "It was never stopped." in said
    world.opened(run)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"name": "p"}, "Give labels, kinds or classes"),
        ({"name": " ", "labels": "a=b"}, "Give it a name."),
        ({"name": "p", "labels": "tag"}, "Write a label as name = value, not “tag”."),
        ({"name": "p", "classes": "nonsense"}, "Nothing was created."),
        ({"name": "taken", "labels": "a=c"}, "A policy never changes: give a new name."),
        ({"name": "p", "labels": "a\0=b"}, "Nothing was created."),
    ],
)
def test_what_no_policy_can_be_is_said_and_the_form_keeps_what_was_typed(
    world: World, form: dict[str, str], why: str
) -> None:
    made(world, "taken", labels={"a": "b"})
    answer = browser(world.alice).post(address(world), form)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert why in text_of(html)
    assert f'value="{form["name"].strip()}"' in html.replace(" autocomplete", "") or form["name"] == " "
    assert Policy.objects.count() == 1


def test_the_list_says_what_each_is_about_and_what_stands_on_it(world: World) -> None:
    assert "There is no policy." in seen(world, address(world))
    shut, watched = made(world, "shut"), made(world, "watched", classes=("external_write",))
    made(world, "open", labels={"a": "b"})
    for policy, wish in ((shut, Wish()), (watched, Wish(observe=True))):
        target = Target("policy", policy.pk)
        scopes.request_scope_stop(actor=world.alice, wish=wish, target=target)
    said = seen(world, address(world))
    assert "3 policies" in said
    assert "Shut by stop #1" in said
    assert "Observed by stop #2" in said
    assert "A stop of it withholds those effects; the runs go on." in said
    page = seen(world, f"/policies/{shut.pk}")
    assert "Its gate is shut" in page
    assert "#1 cancel" in page
    assert "Every run that is admitted later falls under it." in seen(world, f"/policies/{watched.pk}")


def test_a_viewer_reads_and_creates_none(world: World) -> None:
    assert "An operator of this workspace may create one." in seen(world, address(world))
    assert browser(world.dana).post(address(world), FORM).status_code == 403
    assert browser(world.mallory).post(address(world), FORM).status_code == 404
    assert not Policy.objects.exists()


def test_mallory_can_not_tell_one_from_one_that_is_not_there(world: World) -> None:
    policy = made(world)
    foreign = browser(world.mallory).get(f"/policies/{policy.pk}")
    absent = browser(world.mallory).get("/policies/pol_absent")
    assert (foreign.status_code, absent.status_code) == (404, 404)
    assert foreign.content.replace(policy.pk.encode(), b"") == absent.content.replace(b"pol_absent", b"")


def test_its_runs_are_a_link_away(world: World) -> None:
    policy = made(world)
    world.run("a", name="alpha", labels={"tag": "payments"})
    world.run("b", name="beta", labels={"tag": "other"})
    html = browser(world.dana).get(f"/runs/?policy={policy.pk}").content.decode()
    assert ">alpha</a>" in html
    assert ">beta</a>" not in html


def test_the_page_of_one_asks_as_often_for_many_runs_as_for_few(world: World) -> None:
    policy, asked, dana = made(world), [], browser(world.dana)
    for number in (10, 990):
        Run.objects.bulk_create(
            Run(workspace=world.workspace, key=f"{number}-{n}", name="r", parameters_digest="", labels=TAG)
            for n in range(number)
        )
        with CaptureQueriesContext(connection) as queries:
            assert dana.get(f"/policies/{policy.pk}").status_code == 200
        asked.append(len(queries))
    assert asked[0] == asked[1]
    assert asked[0] <= 18


TAG = {"tag": "payments"}
