"""A review in a browser: a decision arrives on the pages of the others, and it works without scripts."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Site, Visit
from tests.browser.test_live import NO_POLLING


def test_a_decision_arrives_by_the_socket_and_the_form_works_without_scripts(
    site: Site, visit: Visit
) -> None:
    path = f"/reviews/{site.rows['review']}"
    erin = visit("erin", "/help")
    erin.add_init_script(NO_POLLING)
    erin.goto(site.url + path)
    expect(erin.locator("#fresh")).to_contain_text("Live")
    expect(erin.locator(".head .st")).to_have_text("Waiting, 0 of 2")
    erin.get_by_label("Comment").fill("half a sentence")
    bob = visit("bob", path, java_script_enabled=False)
    bob.get_by_label("Comment").fill("amount matches")
    bob.get_by_role("button", name="Approve Charge card").click()
    expect(bob.get_by_text("Your approval is recorded. 1 more needed")).to_be_visible()
    expect(bob.get_by_role("button", name="Revoke my approval")).to_be_visible()
    expect(erin.locator(".head .st")).to_have_text("Waiting, 1 of 2", timeout=4000)
    expect(erin.get_by_text("“amount matches”")).to_be_visible()
    expect(erin.get_by_label("Comment")).to_have_value("half a sentence")
