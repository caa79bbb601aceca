"""The unknowns desk in browsers: two people, one answer each; nothing typed is lost; no mouse is needed."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, Visit
from tests.browser.test_live import NO_POLLING

QUIET = "window.setInterval = () => 0; window.WebSocket = class { close() {} };"  # a page that hears nothing


def item(site: Site, visit: Visit, who: str, name: str, script: str = "") -> Page:
    page = visit(who, "/help")
    if script:
        page.add_init_script(script)
    page.goto(f"{site.url}/unknowns/{site.rows[name]}")
    return page


def test_check_now_answers_beside_what_is_being_typed(site: Site, visit: Visit) -> None:
    bob = item(site, visit, "bob", "unknown", NO_POLLING)
    expect(bob.locator("#fresh")).to_contain_text("Live")
    bob.get_by_label("Evidence (required)").fill("half a sentence")
    bob.get_by_role("button", name="Check now").click()
    expect(bob.locator("#said")).to_contain_text("still unknown.")
    expect(bob.locator("#status")).to_contain_text("still unknown.")
    expect(bob.locator(".answers").first).to_contain_text("asked by Bob", timeout=4000)
    expect(bob.get_by_label("Evidence (required)")).to_have_value("half a sentence")
    bob.get_by_role("button", name="Take").click()
    expect(bob.get_by_role("button", name="Release")).to_be_visible()
    expect(bob.locator(f"#u-{site.rows['unknown']}")).to_contain_text("taken by you", timeout=4000)


def test_of_two_people_at_once_the_second_compares_and_keeps_the_draft(site: Site, visit: Visit) -> None:
    dana = item(site, visit, "dana", "disputed", NO_POLLING)
    expect(dana.locator("#fresh")).to_contain_text("Live")
    erin, bob = item(site, visit, "erin", "disputed", QUIET), item(site, visit, "bob", "disputed")
    erin.get_by_label("It did not happen").check()
    erin.get_by_label("Evidence (required)").fill("their dashboard shows none")
    bob.get_by_label("It happened").check()
    bob.get_by_label("Evidence (required)").fill("charge ch_6Lk, paid")
    bob.get_by_role("button", name="Record: the charge happened").click()
    expect(bob.get_by_text("Recorded: it happened.", exact=True)).to_be_visible()
    expect(dana.locator("#item .st").first).to_have_text("Confirmed", timeout=4000)
    expect(dana.locator(f"#u-{site.rows['disputed']}")).to_contain_text("Confirmed, recorded by Bob")
    erin.get_by_role("button", name="Record: the charge did not happen").click()
    alert = erin.get_by_role("alert")
    expect(alert).to_contain_text(re.compile(r"Bob recorded it happened \d+ s ago"))
    expect(alert).to_contain_text("Your draft is kept.")
    expect(alert).to_be_focused()
    expect(erin.get_by_label("Evidence (required)")).to_have_value("their dashboard shows none")
    expect(erin.get_by_label("It did not happen")).to_be_checked()
    expect(erin.get_by_role("button", name="Correct: the charge did not happen")).to_be_visible()


def test_a_second_person_agrees_without_scripts_and_the_others_see_it(site: Site, visit: Visit) -> None:
    dana = item(site, visit, "dana", "undecidable", NO_POLLING)
    expect(dana.locator("#fresh")).to_contain_text("Live")
    bob = visit("bob", f"/unknowns/{site.rows['undecidable']}", java_script_enabled=False)
    bob.get_by_text("Attach evidence").click()
    bob.get_by_label("Evidence (required)").fill("ticket 4711: their log is gone")
    bob.get_by_label("Or a file").set_input_files(
        {"name": "ticket.txt", "mimeType": "text/plain", "buffer": b"gone"}
    )
    bob.get_by_role("button", name="Attach", exact=True).click()
    expect(bob.get_by_label("Evidence (required)")).to_have_value("ticket 4711: their log is gone")
    expect(bob.get_by_label("File of Bob: ticket.txt")).to_be_checked()
    bob.get_by_label("Cannot be determined").check()
    bob.get_by_role("button", name="Record: it cannot be determined").click()
    expect(bob.get_by_role("button", name="Withdraw")).to_be_visible()
    expect(dana.locator("#waits")).to_contain_text("Bob recorded: it cannot be determined.", timeout=4000)
    with bob.expect_download() as download:
        bob.get_by_role("link", name="ticket.txt").first.click()
    assert download.value.suggested_filename == "ticket.txt"
    erin = visit("erin", f"/unknowns/{site.rows['undecidable']}", java_script_enabled=False)
    erin.get_by_role("button", name="Agree: accept as unknown").click()
    expect(erin.locator("#item .st").first).to_have_text("Accepted as unknown")
    expect(dana.locator("#item .st").first).to_have_text("Accepted as unknown", timeout=4000)


def press_until(page: Page, key: str, selector: str, most: int = 60) -> None:
    """Press a key until what has the focus matches."""
    seen = []
    for _ in range(most):
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
        if page.evaluate("(s) => document.activeElement.matches(s)", selector):
            return
    raise AssertionError(f"{selector} can't be reached by {key}: {seen}")


def test_an_unknown_is_resolved_with_the_keyboard_alone(site: Site, visit: Visit) -> None:
    alice = visit("alice", f"/unknowns?workspace={site.rows['slug']}&kind=desk.charge")
    press_until(alice, "Tab", f"#u-{site.rows['by_keys']} a")
    alice.keyboard.press("Enter")
    alice.wait_for_url(re.compile(f"/unknowns/{site.rows['by_keys']}"))
    press_until(alice, "Tab", '[name="verdict"]')
    alice.keyboard.press("Space")
    alice.keyboard.press("ArrowRight")
    alice.keyboard.press("ArrowRight")
    press_until(alice, "Tab", "#r-items", 3)
    alice.keyboard.type("line 1")
    press_until(alice, "Tab", "#r-ev", 3)
    alice.keyboard.type("their export, line 7")
    press_until(alice, "Tab", "#resolve .btn-ink")
    alice.keyboard.press("Enter")
    expect(alice.get_by_text("Recorded: it partly happened.", exact=True)).to_be_visible()
    expect(alice.locator("#verdicts + .answers")).to_contain_text("part: line 1")


def test_on_a_phone_the_list_and_its_item_are_two_pages(site: Site, visit: Visit) -> None:
    page = visit("dana", "/unknowns", viewport={"width": 360, "height": 740})
    expect(page.locator(".desk").first).to_be_visible()
    expect(page.locator("#item")).to_be_hidden()
    page.locator(".desk a").first.click()
    expect(page.locator("#item")).to_be_visible()
    expect(page.locator(".desk").first).to_be_hidden()
    page.get_by_role("link", name="Unknowns", exact=True).first.click()
    expect(page.locator(".desk").first).to_be_visible()
