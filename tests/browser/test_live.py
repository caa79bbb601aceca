"""Pages that move by themselves: by the socket alone, by polling alone, and honestly when by neither."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, Visit

pytestmark = pytest.mark.invariant("I25")

NO_POLLING = "window.setInterval = () => 0;"
NO_SOCKET = """
window.WebSocket = class { constructor() { setTimeout(() => this.onclose({ code: 1006 }), 10); } close() {} };
"""


def press_stop(page: Page) -> None:
    page.get_by_role("link", name="Stop run…").click()
    page.get_by_role("button", name="Request stop of this run").click()
    expect(page.locator("#stop-said")).to_be_visible()


def watcher(site: Site, visit: Visit, path: str, script: str, who: str = "dana") -> Page:
    page = visit(who, "/help")
    page.add_init_script(script)
    page.goto(f"{site.url}{path}")
    return page


def test_a_change_arrives_by_the_socket_with_polling_switched_off(site: Site, visit: Visit) -> None:
    run = site.spare()
    dana = watcher(site, visit, f"/runs/{run}/", NO_POLLING)
    expect(dana.locator("#fresh")).to_have_text(re.compile(r"^Live\s*as of \d\d:\d\d:\d\d UTC$"))
    press_stop(visit("alice", f"/runs/{run}/"))
    expect(dana.locator(".head .st")).to_have_text("Stopping", timeout=4000)
    expect(dana).to_have_title(re.compile("Stopping"))


def test_a_change_arrives_by_polling_with_the_socket_cut_and_the_pill_says_so(
    site: Site, visit: Visit
) -> None:
    run = site.spare()
    dana = watcher(site, visit, f"/runs/{run}/", NO_SOCKET)
    expect(dana.locator("#fresh")).to_contain_text("Reconnecting…")
    expect(dana.locator("#fresh")).to_contain_text(
        "Not live. Checking every 10 s. Last check", timeout=10_000
    )
    alice = visit("alice", f"/runs/{run}/")
    press_stop(alice)
    expect(dana.locator(".head .st")).to_have_text("Stopping", timeout=13_000)


def test_a_list_moves_in_place_and_keeps_its_rows(site: Site, visit: Visit) -> None:
    run = site.spare()
    dana = watcher(site, visit, "/runs/?q=spare", NO_POLLING)
    expect(dana.locator("#fresh")).to_contain_text("Live")
    rows = dana.locator("tbody tr").count()
    place = dana.locator("tbody tr").evaluate_all("(rows, id) => rows.findIndex((row) => row.id === id)", run)
    press_stop(visit("alice", f"/runs/{run}/"))
    expect(dana.locator(f"#{run} .st")).to_have_text("Stopping", timeout=4000)
    assert dana.locator("tbody tr").count() == rows
    assert dana.locator("tbody tr").nth(place).get_attribute("id") == run


def test_what_a_reader_opened_stays_open_through_an_update(site: Site, visit: Visit) -> None:
    run = site.spare()
    dana = watcher(site, visit, f"/runs/{run}/", NO_POLLING)
    expect(dana.locator("#fresh")).to_contain_text("Live")
    dana.get_by_text("Same events as a table").click()
    before = dana.locator("details tbody tr").count()
    press_stop(visit("alice", f"/runs/{run}/"))
    expect(dana.locator(".head .st")).to_have_text("Stopping", timeout=4000)
    expect(dana.locator("details table")).to_be_visible()
    assert dana.locator("details tbody tr").count() > before


def test_paused_by_the_reader_the_page_holds_still_and_counts(site: Site, visit: Visit) -> None:
    run = site.spare()
    dana = visit("dana", f"/runs/{run}/")
    expect(dana.locator("#fresh")).to_contain_text("Live")
    dana.get_by_role("button", name="Pause live updates").click()
    expect(dana.locator("#fresh")).to_have_text("Paused by you — 0 changes waiting")
    press_stop(visit("alice", f"/runs/{run}/"))
    expect(dana.locator("#fresh")).to_have_text(re.compile("Paused by you — [1-9]"))
    expect(dana.locator(".head .st")).to_have_text("Running")
    dana.get_by_role("button", name="Pause live updates").click()
    expect(dana.locator(".head .st")).to_have_text("Stopping")


def test_a_server_that_dies_and_returns_is_told_and_caught_up_with(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    expect(page.locator("#fresh")).to_contain_text("Live")
    press_stop(page)
    port = int(site.url.rpartition(":")[2])
    site.web.kill()
    expect(page.locator("#fresh")).to_have_text(re.compile("^(Reconnecting…|Not live)"), timeout=10_000)
    site.web = site.processes.web(port=port)
    expect(page.locator("#fresh")).to_contain_text("Live", timeout=25_000)
    page.reload()
    expect(page.locator(".head .st")).to_have_text(re.compile("Stopping|Quiet"))
    assert site.stops_of(run) == 1


def test_someone_signed_out_elsewhere_is_told_within_seconds(site: Site, visit: Visit) -> None:
    dana = visit("bob", f"/runs/{site.rows['stopped']}/")
    expect(dana.locator("#fresh")).to_contain_text("Live")
    site.cookies.pop("bob")
    other = dana.context.new_page()
    other.goto(f"{site.url}/runs/")
    other.get_by_role("button", name="Sign out").click()
    expect(dana.locator("#fresh")).to_have_text("Signed out — reload", timeout=8000)
