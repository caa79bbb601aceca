"""The report as a page and a file: draft or version, never changing under its reader."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard import reports
from effects import settle
from effects.drain import drain_run
from runs.evidence import canonical
from runs.models import Run
from tests.dashboard.scenes import browser, text_of
from tests.dashboard.test_run_page import HOSTILE, fill
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)
HEADINGS = [
    "What stopped",
    "What had already completed",
    "What is uncertain",
    "Will the system do anything more?",
    "What a person can do next",
]


@pytest.fixture
def world() -> World:
    return World()


def at_rest(world: World) -> Run:
    """Stopped with one charge confirmed and one unknown; version 1 is issued."""
    run = world.run()
    world.report(world.opened(run, "charge:1"))
    world.report(world.opened(run, "charge:2"), "unknown", detail="no answer")
    world.stop(run, note="wrong prices", reason="wrong input")
    drain_run(run.pk)
    assert reports.issue(run.pk) is not None
    return run


def html_of(world: World, run: Run, query: str = "", **headers: str) -> str:
    answer = browser(world.alice).get(f"/runs/{run.pk}/report{query}", headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def test_five_headings_in_their_order_and_none_is_empty(world: World) -> None:
    for run in (at_rest(world), world.run("untouched")):
        html = html_of(world, run)
        places = [html.index(f"</span>{heading}</h2>") for heading in HEADINGS]
        assert places == sorted(places)
        answers = [html[a:b] for a, b in zip(places, [*places[1:], html.index("Manifest</h2>")], strict=True)]
        assert all("</p>" in answer or "</li>" in answer for answer in answers)


def test_a_report_with_an_unknown_says_not_final_above_all_else(world: World) -> None:
    said = text_of(html_of(world, at_rest(world)))
    assert "Not final: 1 effect unknown" in said
    assert "Awaiting verification: We cannot yet say whether" in said
    assert "Version 1, issued" in said
    assert "This does not prove it failed." in said
    assert "Wrong input “wrong prices”" in said


def test_each_link_of_a_claim_leads_to_a_line_that_exists(world: World) -> None:
    run, alice = at_rest(world), browser(world.alice)
    html = html_of(world, run)
    links = {part.partition('"')[0] for part in html.split('class="ev" href="')[1:]}
    assert len(links) >= 5
    for link in links:
        path, _, anchor = link.partition("#")
        assert f'id="{anchor}"' in alice.get(path).content.decode()


def test_a_run_that_has_not_rested_has_a_draft_that_moves_with_it(world: World) -> None:
    run = world.run()
    html = html_of(world, run)
    assert "Draft, as of" in text_of(html)
    assert "A draft has no digest." in text_of(html)
    assert 'id="report" data-topic' in html
    region = html_of(world, run, **{"HX-Request": "true"})
    assert region.startswith("<title>")
    assert '<article class="doc"' in region


def article_of(html: str) -> str:
    """What is frozen: sign-offs stand beside it."""
    return html.partition('<dl class="grid-facts">')[2].partition('<section id="signatures"')[0]


def test_a_version_stays_as_it_was_and_points_at_the_newer_one(world: World) -> None:
    run = at_rest(world)
    before = html_of(world, run, "?version=1")
    permit = run.permits.get(effect_key="charge:2")
    told = settle.Told("applied")
    settle.report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=told)
    assert reports.issue(run.pk) is not None
    after = html_of(world, run, "?version=1")
    assert article_of(before) == article_of(after) != ""
    assert "This version was replaced." in after
    assert "New evidence: version 2 is available" in text_of(after)
    newest = text_of(html_of(world, run))
    assert "Version 2, issued" in newest
    assert "replaces v1" in newest
    assert "What changed since version 1" in newest
    assert "It was awaiting verification; it is confirmed. Reported by its worker" in newest
    region = html_of(world, run, "?version=1", **{"HX-Request": "true"})
    assert "<article" not in region
    assert "New evidence: version 2 is available" in region
    assert "Version 1 does not change under you." in region


def test_who_reads_a_draft_gets_the_first_version_and_stays_with_it(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "charge:1")
    assert f'hx-get="/runs/{run.pk}/report?draft=1"' in html_of(world, run)
    live = {"HX-Request": "true"}
    assert "Draft, as of" in html_of(world, run, "?draft=1", **live)
    world.stop(run, deadline_s=0)
    drain_run(run.pk)
    reports.issue(run.pk)
    first = html_of(world, run, "?draft=1", **live)
    assert "Version 1, issued" in first
    world.report(opened)
    assert reports.issue(run.pk) is not None
    still = html_of(world, run, "?draft=1", **live)
    assert article_of(first) == article_of(still) != ""
    assert "New evidence: version 2 is available" in still


def test_the_file_is_the_whole_document_with_a_digest_that_holds(world: World) -> None:
    run, alice = at_rest(world), browser(world.alice)
    answer = alice.get(f"/runs/{run.pk}/report.json?version=1")
    assert answer["Content-Type"].startswith("application/json")
    assert answer["Content-Disposition"].startswith("attachment")
    told = json.loads(answer.content)
    beside = told.pop("issue")
    assert hashlib.sha256(canonical(told).encode()).hexdigest() == beside["digest"]
    assert beside["digest"] in html_of(world, run)


@pytest.mark.parametrize("version", ["0", "2", "-1", "3.0", "x", "99999999999999999999", "\u0661", ""])
def test_a_version_that_does_not_exist_is_not_found(world: World, version: str) -> None:
    run, alice = at_rest(world), browser(world.alice)
    for path in ("report", "report.json"):
        assert alice.get(f"/runs/{run.pk}/{path}", {"version": version}).status_code == 404


def test_a_drill_wears_its_mark_and_a_stranger_s_text_is_only_text(world: World) -> None:
    run = world.run("k", name=HOSTILE.replace("\x00", ""), drill=True)
    world.report(world.opened(run, "<b>key</b>"), provider_ref="<i>ref</i>")
    world.stop(run, note=HOSTILE.replace("\x00", ""))
    html = html_of(world, run)
    assert '<b class="stamp">DRILL</b>' in html
    for markup in ("<img src=x", "\u202e", "\x1b", "<b>key", "<i>ref"):
        assert markup not in html


@pytest.mark.parametrize("issued", [False, True])
def test_the_page_asks_as_often_for_a_thousand_rows_as_for_ten(world: World, issued: bool) -> None:
    run = world.run() if not issued else at_rest(world)
    if not issued:
        world.stop(run)
        fill(run, 5)
    alice, counts = browser(world.alice), []
    for number in (10, 990):
        fill(run, number)
        with CaptureQueriesContext(connection) as asked:
            assert alice.get(f"/runs/{run.pk}/report").status_code == 200
        counts.append(len(asked))
    assert counts[0] == counts[1]
    assert counts[1] <= (18 if issued else 32)  # two of them: stops in force and unknowns, in the menu


def test_a_long_manifest_is_grouped_searched_and_paged_and_the_json_stays_whole(world: World) -> None:
    run = at_rest(world)
    fill(run, 448)
    world.stop(run, by=world.bob, mode="abandon")
    assert reports.issue(run.pk) is not None
    told = reports.read(run.pk)
    total, keys = told["manifest"]["total"], [row["key"] for row in told["manifest"]["rows"]]
    assert total == len(keys) == 450

    def shown(query: str) -> tuple[list[str], str]:
        html = html_of(world, run, f"?version=2{query}")
        table = html.partition('<h2 id="s-manifest">')[2].partition("</section>")[0]
        return [key for key in keys if f'mono">{key}</span>' in table], text_of(table)

    first, said = shown("")
    assert len(first) == 200
    assert "200 of 450 effects, those in doubt first." in said
    assert "charge:2" in first
    pages = [*first, *shown("&page=2")[0], *shown("&page=3")[0]]
    assert sorted(pages) == sorted(keys)
    assert "No effect matches here." in shown("&page=4")[1]
    assert shown("&q=CHARGE%3A2")[0] == ["charge:2"]
    one, said = shown("&state=UNKNOWN")
    assert one == ["charge:2"]
    assert "1 of 1 that match, of 450 effects" in said
    for odd in ("&page=0", "&page=x", "&state=NONE", "&page=99999999"):
        assert shown(odd)[0] == first
