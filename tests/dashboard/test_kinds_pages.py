"""The pages of kinds: the six answers, the provider's marked, who is asked until when, and its effects."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from effects import reconcile
from effects.reconcile import CANT_TELL, Answer
from runs.models import RulesRow
from tests.dashboard.scenes import browser
from tests.worlds import World, a_kind, an_effect, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def page_of(world: World, path: str) -> str:
    answer = browser(world.dana).get(f"{path}?workspace={world.workspace.slug}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def a_job_kind(world: World) -> None:
    job = {"path": "status", "running": ["busy"], "completed": ["done"]}
    a_kind(
        world.workspace,
        "render.video",
        op_class="external_job",
        provider="job",
        commits="",
        send={"url": "https://x.example/jobs?api_key=hush", "cancel": {"url": "https://x.example/{ref}"}},
        lookup={"url": "https://x.example/jobs?key={key}", "fence": True, "job": job},
        reversible="public_post",
        check_for_s=3600,
    )


def test_the_page_of_a_kind_shows_what_it_answered_and_what_its_provider_answers_for_it(world: World) -> None:
    a_job_kind(world)
    html = page_of(world, "/kinds/render.video")
    for said in (
        "When does it commit?",
        "When the provider accepts it.",
        "(its provider’s own answer)",
        "GET https://x.example/jobs?key={key}",
        "after 2 s, 4 s, 9 s, 24 s, 1 min 24 s, 6 min 24 s, then each 15 min 00 s; it ends 1 h 0 min after",
        "after that no retry",
        "it counts where the answer says so",
        "running: busy; completed: done",
        "can’t be called back, because people and machines may have read",
        "its provider can be asked to cancel: POST https://x.example/{ref}",
        "they forward no stop, so nobody asks it",
        "No effect of this kind was declared yet.",
    ):
        assert said in html, said
    assert html.count("(its provider’s own answer)") == 1
    assert "hush" not in html
    told = {"body": {"forward_stops": True}, "changed_by": "a", "changed_at": in_seconds(0)}
    RulesRow.objects.create(workspace=world.workspace, version=1, **told)
    assert "they forward a cancel to it" in page_of(world, "/kinds/render.video")


def test_a_look_up_that_compares_no_key_says_that_anothers_object_would_count(world: World) -> None:
    look = {"url": "https://x.example/?key={key}"}
    a_kind(world.workspace, "loose", lookup=look)
    a_kind(
        world.workspace, "strict", lookup={**look, "key_path": "data.key", "present_if": {"json_path": "ok"}}
    )
    assert "so another’s object would count" in page_of(world, "/kinds/loose")
    strict = page_of(world, "/kinds/strict")
    assert "what comes with 200; ok holds something; its key is at data.key" in strict
    assert "would count" not in strict


def test_its_effects_stand_by_settlement_with_look_ups_that_failed(world: World) -> None:
    kind = a_kind(world.workspace, lookup={"url": "https://x.example/{key}"})
    run = world.run()
    for number, answer in enumerate((Answer(CANT_TELL), Answer("present", count=2))):
        step = world.claimed(run, f"s-{number}")
        effect = an_effect(step, "UNKNOWN", key=f"charge:{number}", kind=kind, dispatched_at=in_seconds(-5))
        reconcile.apply_answer(effect.pk, answer)
    html = page_of(world, "/kinds/bank.charge")
    assert html.count('<span class="v">1 of 2</span>') == 3
    assert "Last look-up could not tell" in html
    assert "1 of 1 key counted at the provider had 2 objects or more" in html


def test_the_list_tells_registered_kinds_from_opaque_ones(world: World) -> None:
    a_job_kind(world)
    a_kind(world.workspace, "odd/name?")
    an_effect(world.claimed(world.run()))  # of bank.charge, which nobody registered
    html = page_of(world, "/kinds/")
    assert "2 registered" in html
    assert "can’t be called back" in html
    assert "never looked up, never compensated" in html
    assert "/kinds/odd/name%3F" in html
    assert "bank.charge" in html
    assert browser(world.dana).get("/kinds/odd/name%3F").status_code == 200
    assert browser(world.dana).get("/kinds/bank.charge").status_code == 404


def test_a_kind_with_many_effects_takes_no_more_queries(world: World) -> None:
    kind = a_kind(world.workspace, lookup={"url": "https://x.example/{key}"})
    dana, run = browser(world.dana), world.run()
    step = world.claimed(run)
    path, counts = f"/kinds/bank.charge?workspace={world.workspace.slug}", []
    for many in (1, 30):
        for number in range(many):
            an_effect(step, "CONFIRMED", key=f"k-{many}-{number}", kind=kind, checks=1)
        with CaptureQueriesContext(connection) as queries:
            dana.get(path)
        counts.append(len(queries))
    assert counts[0] == counts[1]
