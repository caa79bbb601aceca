"""The whole way: from the printed sign-in to the issued report, and the bank's own ledger agrees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.processes import Process, Processes

PRINTED = r"Sign in as (\S+) \(admin\).*, password: (\S+)"


@pytest.fixture
def web(processes: Processes) -> Process:
    return processes.web(demo=True)


@pytest.fixture
def page(browser: Browser, web: Process) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def booked(folder: Path) -> set[str]:
    """The keys that the bank's own ledger holds, whatever Allstop says."""
    lines = [json.loads(line) for line in (folder / "demo" / "bank.jsonl").read_text().splitlines()]
    assert all(line["event"] != "repeated" for line in lines)
    return {line["key"] for line in lines if line["event"] == "entered"}


def test_a_newcomer_presses_stop_and_reads_a_report_that_the_bank_confirms(
    web: Process, processes: Processes, page: Page
) -> None:
    email, password = web.wait_for(PRINTED).groups()
    page.goto(web.url)
    page.fill("#id_login", email)
    page.fill("#id_password", password)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Your first honest report, in about five minutes"
    )
    page.get_by_role("button", name="Start the demo run").click()
    page.get_by_role("link", name="Open the demo run").click(timeout=20_000)

    charge = page.locator("tr", has_text="bank").or_(page.locator("tr", has_text="Charge"))
    expect(charge.locator(".st", has_text="In flight").first).to_be_visible(timeout=40_000)
    page.get_by_role("link", name="Stop run…").click()
    expect(page.locator("#dlg-now")).to_contain_text(re.compile("1 action is in flight, Charge"))
    page.get_by_role("button", name="Request stop of this run").click()
    expect(page.locator("#stop-said")).to_contain_text("New work is refused from version 2.")

    chip = page.locator(".head .st")
    expect(chip).to_have_text(re.compile("Partially completed|Stopped"), timeout=60_000)
    page.get_by_role("link", name="Report", exact=True).click()
    expect(page.locator(".doc-top")).to_contain_text("Version", timeout=60_000)
    expect(page.locator(".doc h2")).to_have_count(13)
    expect(page.locator(".stamp")).to_have_text("Final")

    manifest = page.locator("section", has=page.get_by_role("heading", name="Manifest")).locator("tbody tr")
    charges = manifest.filter(has_text="Charge")
    confirmed = charges.filter(has_text="Confirmed")
    keys = {text.split()[-1] for text in confirmed.locator(".key").all_inner_texts()}
    assert keys
    assert keys == booked(processes.folder / "data")
