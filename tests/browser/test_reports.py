"""A reader of an issued report: new evidence is a banner, and what they read stays; then they sign it."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, Visit


def frozen(page: Page) -> str:
    """The document down to the signatures, which stand beside it."""
    sections = page.locator("#doc > :not(#signatures):not(.doc-foot):not(.note)")
    return "\n".join(sections.all_inner_texts())


def abandon(page: Page) -> None:
    """Ends the run at once, with what was in flight unknown."""
    page.locator("input[name=mode][value=abandon]").check()
    page.get_by_role("button", name=re.compile("Request stop")).click()
    page.wait_for_url(lambda url: "/stop" not in url)


def test_a_version_stays_under_its_reader_while_evidence_arrives(site: Site, visit: Visit) -> None:
    run = site.spare()
    alice = visit("alice", f"/runs/{run}/stop?key=first")
    abandon(alice)
    reader = visit("bob", f"/runs/{run}/report?version=1")
    for _ in range(40):  # it is issued within a second or so
        if reader.locator("#doc").count():
            break
        reader.wait_for_timeout(250)
        reader.reload()
    before = frozen(reader)
    assert "Version 1, issued" in before
    assert reader.locator(".news").count() == 0
    alice.goto(f"{site.url}/runs/{run}/report?version=1")
    alice.locator("#uncertain-1 a").first.click()
    alice.locator("#resolve input[name=verdict][value=happened]").check()
    alice.get_by_label("Evidence (required)").fill("It stands in the bank's own statement of that day.")
    alice.locator("#resolve button.btn-ink").click()
    expect(reader.locator(".news")).to_contain_text("New evidence: version 2 is available", timeout=15_000)
    assert frozen(reader) == before
    reader.get_by_label("Note (optional)").fill("read on the train")
    reader.get_by_role("button", name="I have read this").click()
    expect(reader.locator("#signatures")).to_contain_text(
        "Version 2 was the newest when version 1 was signed."
    )
    expect(reader.locator("#signatures")).to_contain_text("read on the train")
    assert frozen(reader) == before
    reader.get_by_role("link", name="Read version 2").first.click()
    expect(reader.locator("#changed")).to_contain_text("it is confirmed")
