"""Stops wider than a run, in a browser: from a phone, guarded against slips, seen live by somebody else."""

from __future__ import annotations

import re
import string

import pytest
from playwright.sync_api import expect

from dashboard.pages.scope_choice import slip_guard
from tests.browser.conftest import Site, Visit
from tests.browser.test_live import NO_POLLING, watcher

PHONE = {"width": 360, "height": 740}
ODD = f"no-payments {string.punctuation} “é”"
GUARDS = """([name, pattern]) => [name, name + "x"].map((value) =>
    Object.assign(document.createElement("input"), { pattern, value }).validity.patternMismatch)"""


def test_alice_stops_a_session_from_the_dialog_of_one_of_its_runs(site: Site, visit: Visit) -> None:
    page = visit("alice", f"/runs/{site.rows['spare_of_a_session']}/")
    page.get_by_role("link", name="Stop run…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Request stop of this run")).to_be_visible()
    expect(dialog.get_by_label("It ends")).not_to_be_visible()
    dialog.get_by_role("radio", name="Workspace").check()
    guard = dialog.get_by_label("Type its name")
    guard.fill("Finances")
    dialog.get_by_role("button", name="Request stop of this workspace").click()
    assert page.evaluate("document.querySelector('.guard:not([hidden]) input').validity.patternMismatch")
    assert page.evaluate(GUARDS, [ODD, slip_guard(ODD)]) == [False, True]
    dialog.get_by_role("radio", name="Session").check()
    expect(guard).not_to_be_visible()
    expect(dialog.get_by_label("It ends")).to_be_visible()
    expect(dialog.locator("#dlg-now")).to_contain_text("2 runs will be refused new work and asked to end.")
    dialog.get_by_role("button", name="Request stop of this session").click()
    expect(page.locator("#stop-said")).to_have_text(re.compile(r"Stop #\d+ of session “apart” recorded"))
    under = page.get_by_role("link", name=re.compile(r"stop #\d+ of session “apart”"))
    expect(under).to_be_visible()
    under.click()
    expect(page.locator("#runs")).to_contain_text("2 recorded")


@pytest.fixture
def elsewhere(site: Site) -> str:
    """The address of the form of a workspace that no other test works in."""
    return f"/stop?workspace={site.rows['treasury']}"


def test_a_workspace_is_stopped_from_a_phone_and_a_second_operator_sees_it_live(
    site: Site, visit: Visit, elsewhere: str
) -> None:
    bob = watcher(site, visit, f"/stops/?workspace={site.rows['treasury']}", NO_POLLING, who="bob")
    expect(bob.locator("#fresh")).to_contain_text("Live")
    expect(bob.locator("#stops")).to_contain_text("No stop is in force.")
    alice = visit("alice", elsewhere, viewport=PHONE)
    alice.get_by_role("link", name=re.compile("Workspace “Treasury”")).click()
    expect(alice.locator("#dlg-now")).to_contain_text("2 runs will be refused new work and asked to end.")
    assert alice.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    alice.get_by_role("button", name="Request stop of this workspace").click()
    expect(alice.get_by_role("heading", level=1)).to_have_text("Stop workspace “Treasury”?")  # no name typed
    alice.get_by_label("Type the workspace’s name").fill("Treasury")
    alice.get_by_role("button", name="Request stop of this workspace").click()
    expect(alice.get_by_role("heading", level=1)).to_have_text(
        re.compile(r"Stop #\d+ of workspace “Treasury”")
    )
    expect(alice.locator("#runs")).to_contain_text("2 recorded")
    expect(bob.locator("#stops")).to_contain_text(re.compile(r"#\d+ workspace “Treasury”"), timeout=4000)
    expect(bob.locator("#stops")).to_contain_text("In force", timeout=4000)
    bob.get_by_role("link", name=re.compile("workspace “Treasury”")).click()
    bob.get_by_role("link", name="Release…").first.click()
    bob.get_by_label("Why may work start again?").fill("checked")
    bob.get_by_role("button", name="Release workspace “Treasury”").click()
    expect(bob.locator(".head .st")).to_have_text("Released")


def test_without_scripts_a_session_is_stopped_by_a_form_on_a_page(site: Site, visit: Visit) -> None:
    page = visit("alice", f"/runs/{site.rows['spare_without_scripts']}/stop", java_script_enabled=False)
    expect(page.get_by_role("link", name=re.compile("workspace “Finance”"))).to_be_visible()
    page.get_by_role("radio", name="Session").check()
    page.get_by_role("button", name="Request this stop").click()
    expect(page.locator(".note").first).to_contain_text(re.compile(r"Stop #\d+ of session “quiet” recorded"))
