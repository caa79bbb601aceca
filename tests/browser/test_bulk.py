"""A stop of two hundred filtered runs at once, pressed by somebody who may stop most of them."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.bulk_rows import MINE, OVER, STOPPING, THEIRS
from tests.browser.conftest import Site, Visit

ALL = MINE + OVER + STOPPING + THEIRS
TALLY = f"{MINE} recorded · {STOPPING} already stopping · {OVER} finished before · {THEIRS} not permitted"


def test_two_hundred_filtered_runs_are_stopped_with_one_press_and_the_result_stays(
    site: Site, visit: Visit
) -> None:
    page = visit("dana", f"/runs/?workspace={site.rows['ledger']}&session=nightly")
    ticks, stop = page.locator('input[name="run"]'), page.locator("[data-selected-stop]")
    expect(page.locator("[data-selected]")).to_have_text("Select runs to stop several at once.")
    expect(stop).not_to_be_visible()
    page.get_by_label("Select 25 shown").check()
    expect(page.locator("[data-selected]")).to_have_text("25 runs selected.")
    expect(page.locator("#status")).to_have_text("25 runs selected")
    ticks.nth(3).uncheck()
    expect(stop).to_have_text("Stop 24 selected runs…")
    page.evaluate(
        "htmx.trigger(document.body, 'live:' + document.querySelector('[data-topic]').dataset.topic)"
    )
    expect(page.locator("[data-as-of]")).to_be_visible()
    assert ticks.nth(3).is_checked() is False
    page.get_by_role("link", name=f"Select all {ALL} matching").click()
    page.get_by_role("button", name=f"Stop {ALL} selected runs…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Stop {ALL} selected runs?")
    expect(page.locator(".dlg-page")).to_contain_text(f"{THEIRS} of them you may not stop")
    expect(page.locator(".dlg-page")).to_contain_text(f"{OVER} of them have finished")
    page.get_by_role("radio", name="Pause").check()
    page.get_by_role("button", name=f"Request stop of {ALL} runs").click()
    result = page.locator("#bulk-result")
    expect(result.get_by_role("heading")).to_have_text(re.compile(rf"Stop #\d+: {re.escape(TALLY)}"))
    expect(result).to_contain_text("each run had its turn")
    expect(page.locator("[data-selected]")).to_have_text("25 runs selected.")  # the newest: not permitted
    page.get_by_label("Status", exact=True).select_option("running")
    expect(page.locator("#runs h2").last).to_have_text(f"25 of {THEIRS} runs")


def test_without_scripts_ticked_runs_are_stopped_by_forms(site: Site, visit: Visit) -> None:
    page = visit("alice", f"/runs/?workspace={site.rows['ledger']}&q=apart", java_script_enabled=False)
    page.get_by_label("Select apart-4").check()
    page.get_by_label("Select apart-3").check()
    page.get_by_role("button", name="Stop selected runs…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Stop 2 selected runs?")
    page.get_by_role("button", name="Request stop of 2 runs").click()
    expect(page.locator("#bulk-result h2")).to_contain_text("2 recorded")
