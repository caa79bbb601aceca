"""Stop, pressed in a real browser on a real run, when all goes well and when it does not."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, Request, Route, expect

from tests.browser.conftest import PASSWORD, Site, Visit

RECORDED = re.compile(r"Stop #\d+ recorded \d\d:\d\d:\d\d\.\d{3} UTC\. New work is refused from version 2\.")


def open_dialog(page: Page) -> None:
    page.get_by_role("link", name="Stop run…").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def request_stop(page: Page) -> None:
    page.get_by_role("button", name="Request stop of this run").click()


def test_alice_presses_stop_and_reads_what_it_came_to(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 action is in flight")
    expect(dialog).to_contain_text("2 queued steps will be refused.")
    expect(dialog.get_by_role("radio", name="This run")).to_be_focused()  # the scope, never the red button
    page.fill("#note", "wrong prices")
    request_stop(page)
    expect(page.locator("#stop-said")).to_have_text(RECORDED)
    expect(dialog).not_to_be_visible()
    expect(page.locator(".stages")).to_contain_text("Acknowledge")
    expect(page.locator(".tl-flag-t").first).to_contain_text("Stop effective")
    expect(page.get_by_role("link", name="Stop run…")).to_have_count(0)
    assert site.stops_of(run) == 1


def test_a_double_click_is_one_stop(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    page.get_by_role("button", name="Request stop of this run").dblclick()
    expect(page.locator("#stop-said")).to_have_text(RECORDED)
    assert site.stops_of(run) == 1


def test_stop_works_by_keyboard_alone_and_escape_gives_the_focus_back(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    opener = page.get_by_role("link", name="Stop run…")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    assert site.stops_of(run) == 0
    page.keyboard.press("s")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert site.stops_of(run) == 0  # the key opens, it never submits
    page.keyboard.press("Control+Enter")
    expect(page.locator("#stop-said")).to_have_text(RECORDED)
    expect(page.locator("#stop-said")).to_be_focused()


def test_a_key_works_in_the_instant_after_a_dialog_shut(site: Site, visit: Visit) -> None:
    """Until a frame is drawn the focus stays in the field of the dialog that is gone."""
    page = visit("alice", f"/runs/{site.rows['spare'][-1]}/")
    page.keyboard.press("s")
    page.get_by_role("dialog").wait_for()
    still_there = page.evaluate(
        """() => {
            const dialog = document.querySelector("dialog[open]");
            dialog.querySelector("input:not([type=hidden])").focus();
            dialog.close();
            const field = document.activeElement;
            field.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true }));
            return dialog.contains(field);
        }"""
    )
    assert still_there, "the situation that this is about"
    expect(page.locator("#help")).to_be_visible()


def test_keys_can_be_switched_off(site: Site, visit: Visit) -> None:
    page = visit("alice", f"/runs/{site.rows['spare'][-1]}/")
    page.keyboard.press("?")
    page.get_by_label("Single keys are on").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("s")
    page.wait_for_timeout(200)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_without_scripts_stop_is_a_form_on_a_page(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/", java_script_enabled=False)
    page.get_by_role("link", name="Stop run…").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Stop “")
    expect(page.locator("#dlg-now")).to_contain_text("1 action is in flight")
    page.get_by_role("button", name="Request this stop").click()
    expect(page.locator(".note").first).to_have_text(RECORDED)
    expect(page.locator(".stages")).to_be_visible()
    assert site.stops_of(run) == 1


class LostAnswers:
    """Lets a POST reach the server and loses the answer, `times` times."""

    def __init__(self, page: Page, times: int) -> None:
        self.left, self.seen = times, 0
        page.route("**/stop", self.handle)

    def handle(self, route: Route, request: Request) -> None:
        if request.method != "POST":
            return route.continue_()
        self.seen += 1
        if self.left:
            self.left -= 1
            route.fetch()
            return route.abort("connectionreset")
        return route.continue_()


def test_a_lost_answer_is_told_as_unknown_and_the_same_key_finds_out(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    lost = LostAnswers(page, times=2)
    open_dialog(page)
    request_stop(page)
    answer = page.locator("[data-answer]")
    expect(answer).to_contain_text("We do not know whether it was recorded. Checking with the same key…")
    expect(page.get_by_role("alert")).to_have_count(0)  # nobody knows that it was not recorded
    expect(page.locator("#stop-said")).to_have_text(RECORDED, timeout=15_000)
    assert lost.seen == 3
    assert (site.stops_of(run), site.presses_of(run)) == (1, 1)


def test_offline_between_press_and_answer_converges_when_the_line_is_back(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    page.context.set_offline(True)
    request_stop(page)
    expect(page.locator("[data-answer]")).to_contain_text("We do not know whether it was recorded.")
    page.get_by_role("button", name="Hide this").click()
    expect(page.locator("#stop-said")).to_contain_text(
        "We do not know whether it was recorded.", timeout=10_000
    )
    page.context.set_offline(False)
    expect(page.locator("#stop-said")).to_have_text(RECORDED, timeout=20_000)
    assert (site.stops_of(run), site.presses_of(run)) == (1, 1)


def test_a_stop_that_was_not_recorded_is_an_alert_and_can_be_tried_again(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    told: dict[str, Any] = {"recorded": False, "sentence": "The store did not answer."}
    page.route("**/stop", lambda route: route.fulfill(status=503, json=told), times=1)
    open_dialog(page)
    request_stop(page)
    expect(page.get_by_role("alert")).to_contain_text("Your stop was NOT recorded. The store did not answer.")
    request_stop(page)
    expect(page.locator("#stop-said")).to_have_text(RECORDED)


def test_a_session_that_ended_under_the_dialog_brings_the_same_dialog_back(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    key = page.locator("input[name=key]").input_value()
    page.fill("#note", "wrong prices")
    page.context.clear_cookies(name="sessionid")
    request_stop(page)
    expect(page.get_by_role("alert")).to_contain_text("Your stop is NOT recorded yet.")
    page.fill("#id_login", site.rows["people"]["alice"])
    page.fill("#id_password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("Your stop is NOT recorded yet.")
    assert page.url.startswith(f"{site.url}/runs/{run}/?key={key}")
    assert page.locator("input[name=key]").input_value() == key
    expect(page.locator("#note")).to_have_value("wrong prices")
    assert site.stops_of(run) == 0
    request_stop(page)
    expect(page.locator("#stop-said")).to_have_text(RECORDED)
    expect(dialog).not_to_be_visible()
    assert page.url == f"{site.url}/runs/{run}/"
    assert (site.stops_of(run), site.presses_of(run)) == (1, 1)


def test_a_preview_that_fails_disables_nothing(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    page.route("**/stop/preview*", lambda route: route.fulfill(status=500, body="broken"))
    open_dialog(page)
    expect(page.locator("#dlg-now")).to_contain_text("Preview unavailable. You can still request the stop.")
    request_stop(page)
    expect(page.locator("#stop-said")).to_have_text(RECORDED)


def test_alice_pauses_resumes_and_cancels_by_clicks(site: Site, visit: Visit) -> None:
    run = site.rows["calm"]
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    dialog, said = page.get_by_role("dialog"), page.locator("#stop-said")
    dialog.get_by_role("radio", name="Pause").check()
    expect(dialog).to_contain_text("1 queued step will be held and keeps its place.")
    expect(dialog).not_to_contain_text("queued step will be refused", use_inner_text=True)
    request_stop(page)
    expect(said).to_contain_text("New work is held from version 2. Resuming it is a decision of its own.")
    expect(page.locator(".head .st")).to_have_text("Paused", timeout=15_000)
    page.get_by_role("link", name="Resume…").click()
    expect(page.get_by_role("row", name="charge:calm")).to_contain_text("Skip, settled")
    page.get_by_label("Why may it go on?").fill("the prices are right now")
    page.get_by_role("button", name="Resume this run").click()
    expect(page.locator(".note").first).to_contain_text("Resumed at version 3.")
    expect(page.locator(".head .st")).to_have_text("Running")
    open_dialog(page)
    request_stop(page)
    expect(said).to_contain_text("New work is refused from version 4.")
    expect(page.locator(".dock")).to_contain_text("Stop #")
    assert site.stops_of(run) == 2


def test_a_press_that_follows_one_in_the_same_dialog_is_a_press_of_its_own(site: Site, visit: Visit) -> None:
    run = site.spare()
    page = visit("alice", f"/runs/{run}/")
    open_dialog(page)
    page.get_by_role("radio", name="Pause").check()
    request_stop(page)
    expect(page.locator("#stop-said")).to_contain_text("is held from version 2")
    page.keyboard.press("s")
    page.get_by_role("radio", name="Cancel").check()
    expect(page.get_by_role("dialog")).to_contain_text("Your press will replace stop #")
    request_stop(page)
    expect(page.locator("#stop-said")).to_contain_text("It replaces stop #")
    assert (site.stops_of(run), site.presses_of(run)) == (2, 2)
