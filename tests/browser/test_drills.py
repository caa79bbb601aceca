"""A drill, started from its page: its steps are seen as they come, then its result, by everybody."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.test_live import NO_POLLING, watcher

DRILL = "stop-during-a-local-write"
TITLE = "Stop during a local write"


def test_an_admin_runs_a_drill_and_everybody_sees_its_steps_and_its_result(site: Site, visit: Visit) -> None:
    dana = watcher(site, visit, "/drills/", NO_POLLING)
    expect(dana.get_by_role("button", name="Run this")).to_have_count(0)
    expect(dana.locator("#fresh")).to_contain_text("Live")
    erin = visit("erin", "/drills/")
    erin.locator(f"#{DRILL}").get_by_role("button").click()
    expect(erin.get_by_text(f"“{TITLE}” is in line.")).to_be_visible()
    steps = dana.get_by_role("list", name="Steps so far")
    expect(steps).to_contain_text("the second is half written", timeout=20_000)
    expect(dana.get_by_role("heading", name=f"Running: {TITLE}")).to_be_visible()
    row = dana.locator(f"#{DRILL}")
    expect(row).to_contain_text("Passed", timeout=20_000)
    expect(dana.get_by_role("heading", name="No drill is running")).to_be_visible()
    dana.goto(f"{site.url}/drills/{DRILL}/")
    expect(dana.locator("#drill")).to_contain_text(
        re.compile(r"Passed \d+ \w+ on .*\. This shows the gates held in this drill; it is no promise")
    )
    expect(dana.locator(".checks tbody tr").filter(has_text="Bytes of the second file")).to_contain_text(
        "as expected"
    )
    dana.goto(f"{site.url}/runs/")
    expect(dana.get_by_text(f"DRILL: {TITLE}")).to_have_count(0)


def test_what_a_drill_left_wears_its_mark(site: Site, visit: Visit) -> None:
    """The run of the test before, for whoever started it."""
    erin = visit("erin", f"/drills/{DRILL}/")
    erin.get_by_role("link", name="The report of its run").click()
    expect(erin.locator(".stamp").first).to_have_text("DRILL")
    erin.goto(erin.url.replace("/report", "/"))
    expect(erin.locator(".head .stamp")).to_have_text("DRILL")
    erin.goto(f"{site.url}/runs/?workspace=drills")
    expect(erin.locator("tbody tr").filter(has_text=TITLE).locator(".stamp")).to_have_text("DRILL")
