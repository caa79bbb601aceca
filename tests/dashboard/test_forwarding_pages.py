"""What pages and reports say of jobs, of what can't be called back, and of whom a stop asked to cancel."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dashboard import reports
from dashboard.pages.facts import Facts
from dashboard.pages.preview import preview_of
from effects import forwards
from effects.intents import plan_bytes
from effects.models import Effect
from runs import gate
from runs.store import database_time
from tests.dashboard.scenes import browser
from tests.effects.job_site import JobSite
from tests.effects.test_forwarding import a_job, allow, errand_of, the_request
from tests.worlds import World, a_compensation, a_kind, an_effect, in_seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World()
    JobSite("https://render.example").kind(world.workspace)
    allow(world)
    return world


def told(run: object, mode: str) -> str:
    preview = preview_of(Facts(run, database_time()))  # type: ignore[arg-type]
    mine = [line.text for name, lines in preview.modes if name == mode for line in lines]
    return "\n".join([*mine, *(line.text for line in preview.lines)])


def test_no_cell_of_the_effects_runs_its_words_together(world: World) -> None:
    run = world.run()
    post = a_kind(world.workspace, "blog.post", reversible="public_post")
    later: dict[str, Any] = {"next_check_at": in_seconds(60), "check_until": in_seconds(600)}
    an_effect(world.claimed(run), "UNKNOWN", kind=post, plan=plan_bytes(none_because="it is read"), **later)
    html = browser(world.dana).get(f"/runs/{run.pk}/").content.decode()
    table = html[html.index('id="effects"') :].partition("</section>")[0]
    assert "It can’t be called back" in table
    assert "until <time" in table
    assert re.findall(r"\S+<span class=\"sub\">", table) == []


def test_the_dialog_says_what_stays_what_is_planned_and_whom_a_cancel_asks(world: World) -> None:
    run = world.run()
    post = a_kind(world.workspace, "blog.post", reversible="public_post")
    step = world.claimed(run)
    for number in (1, 2):
        an_effect(step, "CONFIRMED", key=f"post:{number}", kind=post)
    an_effect(step, "PARTIAL", key="charge:1", plan=plan_bytes("bank.refund"))
    a_compensation(an_effect(step, "CONFIRMED", key="charge:2", plan=plan_bytes("bank.refund")), "VERIFIED")
    an_effect(step, "CONFIRMED", key="note:1")
    a_job(world, run, job_at=in_seconds(-60))
    said = told(run, "cancel")
    assert "2 of what already happened can’t be called back: “post:1” and “post:2”." in said
    assert "1 has a declared compensation: “charge:1”. It would be a new action" in said
    assert "1 compensation was already proposed: of “charge:2”." in said
    assert "2 have no compensation declared: “note:1” and “render:1”." in said
    assert "“render:1”: running at the provider, as of " in said
    asks = "render.example will be asked to cancel “render:1”. Asked is not cancelled."
    assert asks in said
    assert asks not in told(run, "pause")
    assert asks not in told(run, "abandon")
    allow(world, yes=False)
    assert "Nobody is asked to cancel “render:1”: the rules forward no stop" in told(run, "cancel")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("applied", "asked; it took the request, which says nothing of what it then did ("),
        ("not_applied", "asked; it refused, or nothing was sent ("),
        ("unknown", "Dispatched "),
    ],
)
def test_a_report_says_asked_and_never_more(world: World, outcome: str, said: str) -> None:
    run = world.run()
    job = a_job(world, run, job_at=in_seconds(-60), next_check_at=in_seconds(60), check_until=in_seconds(900))
    world.stop(run)
    asking = the_request(job)
    opened = gate.forward(errand_of(asking), forwards.CancelErrand(asking))
    world.report(opened, outcome)  # type: ignore[arg-type]
    report = reports.build(run.pk)
    told = {one.key: " ".join(f"{c.lead} {c.text}" for c in one.claims) for one in report.sections}
    assert said in "\n".join(told.values())
    if outcome != "unknown":
        assert "Asking render.example to cancel “render:1”: asked; it" in told["completed"]
    assert "running at the provider, as of " in told["more"]
    assert "; next check " in told["more"]
    row = next(one for one in report.manifest.rows if one.id == asking.pk)
    assert row.asks_about == job.pk
    html = browser(world.dana).get(f"/runs/{run.pk}/").content.decode()
    assert "running at the provider, as of " in html
    assert "Ask render.example to cancel" in html
    assert ("whether it was asked is not known" in html) == (outcome == "unknown")
    assert Effect.objects.get(pk=job.pk).settlement == "CONFIRMED"
    for word in ("cancelled successfully", "was cancelled by"):
        assert word not in html
