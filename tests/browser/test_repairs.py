"""Two reviewers in two browsers: each hears of the other, nobody decides about what was not shown."""

from __future__ import annotations

from hashlib import sha256

import pytest
from playwright.sync_api import Page, expect

from dashboard.pages.hiding import body_lines
from tests.browser.conftest import Site, Visit
from tests.browser.test_live import NO_POLLING


def live(visit: Visit, site: Site, who: str, path: str) -> Page:
    """A page that hears of changes by its socket alone."""
    page = visit(who, "/help")
    page.add_init_script(NO_POLLING)
    page.goto(site.url + path)
    expect(page.locator("#fresh")).to_contain_text("Live")
    return page


def test_two_reviewers_sign_and_one_takes_it_back(site: Site, visit: Visit) -> None:
    path = f"/reviews/{site.rows['repair_signed']}"
    bob, erin = live(visit, site, "bob", path), live(visit, site, "erin", path)
    other_tab = visit("bob", path)
    erin.get_by_label("Comment").fill("half a sentence")
    bob.get_by_role("button", name="Approve refund of €120.00 to Nordhaven AG").click()
    expect(bob.get_by_text("Your approval is recorded. 2 more needed")).to_be_visible()
    expect(erin.locator(".head .st")).to_have_text("Waiting, 1 of 3", timeout=4000)
    expect(erin.get_by_label("Comment")).to_have_value("half a sentence")
    erin.get_by_role("button", name="Approve refund of €120.00").click()
    expect(bob.locator(".head .st")).to_have_text("Waiting, 2 of 3", timeout=4000)
    other_tab.get_by_role("button", name="Approve refund of €120.00").click()
    expect(other_tab.get_by_text("You approved it already; another person has to.")).to_be_visible()
    other_tab.get_by_role("button", name="Revoke my approval").click()
    expect(other_tab.get_by_text("Your approval is taken back.")).to_be_visible()
    expect(erin.locator(".head .st")).to_have_text("Waiting, 1 of 3", timeout=4000)
    bob.get_by_role("button", name="Revoke my approval").click()
    expect(bob.get_by_text("You have no approval here that could be revoked.")).to_be_visible()


def test_who_decides_about_an_older_call_is_told_and_keeps_the_draft(site: Site, visit: Visit) -> None:
    path = f"/reviews/{site.rows['repair_changed']}"
    bob = live(visit, site, "bob", path)
    bob.get_by_label("Comment").fill("amount matches")
    erin, late = visit("erin", f"{path}/edit", java_script_enabled=False), visit("bob", f"{path}/edit")
    late.get_by_label("Amount").fill("€61.00")
    erin.get_by_label("Title").fill("Refund of half")
    erin.get_by_label("Amount").fill("€60.00")
    erin.get_by_role("button", name="Change the call").click()
    expect(erin.get_by_text("Every approval of the old one is void")).to_be_visible()
    expect(erin.get_by_text("You changed it last.")).to_be_visible()
    expect(bob.locator("h1")).to_have_text("Refund of half (€60.00, Südlicht SE)", timeout=4000)
    bob.get_by_role("button", name="Approve").click()
    expect(bob.get_by_text("What is asked changed since you opened it.")).to_be_visible()
    expect(bob.get_by_label("Comment")).to_have_value("amount matches")
    late.get_by_role("button", name="Change the call").click()
    expect(late.get_by_text("Your draft is kept below.")).to_be_visible()
    expect(late.get_by_label("Amount")).to_have_value("€61.00")


@pytest.mark.invariant("I14")
def test_what_two_reviewers_saw_and_approved_is_what_the_provider_gets(site: Site, visit: Visit) -> None:
    path = f"/reviews/{site.rows['repair_sent']}"
    seen = set()
    for who in ("bob", "erin"):
        page = visit(who, path)
        body = page.locator("dl.call .body dd").text_content()
        seen.add((body, page.locator("input[name=digest]").first.input_value()))
        assert site.bank.ledger.sends() == 0, "one yes of two sends nothing"
        page.get_by_role("button", name="Approve").click()
    [(shown, digest)] = seen
    [sent] = site.bank.ledger.wait_for("request")[:1]
    assert (sent["method"], sent["path"]) == ("POST", "/refunds")
    assert "\n".join(body_lines(sent["text"].encode())) == shown
    bytes_sent = sha256(sent["text"].encode()).hexdigest()
    consumed = "SELECT count(*) FROM effects_approval a JOIN effects_review r ON r.id = a.review_id"
    consumed += " JOIN effects_compensation c ON c.id = r.subject_id WHERE a.state = 'CONSUMED'"
    consumed += f" AND a.digest = '{digest}' AND c.body_digest = '{bytes_sent}'"
    assert site.database.value(consumed) == 2, "both said yes to these very bytes"
    expect(page.locator(".head .st")).to_have_text("Verified", timeout=15_000)
    assert site.bank.ledger.sends() == site.bank.ledger.applied() == 1
