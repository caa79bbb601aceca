"""WCAG 2.2 AA by axe on every page, in both themes, wide and at 360 and 320 px; no sideways scroll."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import Site, Visit

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
SIZES = {"wide": (1280, 900), "phone": (360, 740), "narrow": (320, 640)}
PAGES = {
    "sign-in": "/sign-in",
    "first run": "/first-run",
    "runs": "/runs/",
    "no runs": "/runs/?q=nothing-like-it",
    "a running run": "/runs/{spare[23]}/",
    "a stopped run": "/runs/{stopped}/",
    "an empty run": "/runs/{empty}/",
    "a hostile run": "/runs/{hostile}/",
    "stop": "/runs/{spare[23]}/stop?key=k",
    "evidence": "/runs/{stopped}/evidence",
    "report": "/runs/{stopped}/report",
    "tokens": "/tokens",
    "help": "/help",
    "nothing there": "/runs/run_absent/",
}


def findings(page: Page) -> list[str]:
    found: Any = Axe().run(page, options=RULES)
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


def open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((el) => { el.open = true; })")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_passes_axe_and_never_scrolls_sideways(
    site: Site, visit: Visit, scheme: str, size: str
) -> None:
    width, height = SIZES[size]
    page = visit("alice", "/help", color_scheme=scheme, viewport={"width": width, "height": height})
    wrong: dict[str, Any] = {}
    for name, path in PAGES.items():
        if name == "sign-in":
            continue
        page.goto(site.url + path.format(**site.rows))
        page.wait_for_load_state("networkidle")
        open_all(page)
        if size != "narrow" and (found := findings(page)):
            wrong[name] = found
        over = page.evaluate("document.documentElement.scrollWidth") - width
        if over > 0:
            wrong[f"{name}, sideways"] = over
    assert wrong == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_dialogs_and_the_sign_in_pass_axe(site: Site, visit: Visit, scheme: str) -> None:
    page = visit("alice", f"/runs/{site.rows['spare'][-1]}/", color_scheme=scheme)
    page.keyboard.press("s")
    page.get_by_role("dialog").wait_for()
    assert findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert findings(page) == []
    page.context.clear_cookies()
    page.goto(f"{site.url}/sign-in")
    assert findings(page) == []


def test_the_theme_is_remembered_and_set_by_the_server(site: Site, visit: Visit) -> None:
    page = visit("alice", "/runs/", color_scheme="light")
    page.get_by_role("button", name="Theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    answer = page.request.get(f"{site.url}/runs/")
    assert '<html lang="en" data-theme="dark">' in answer.text()


def test_focus_is_visible_and_never_under_the_sticky_bars(site: Site, visit: Visit) -> None:
    page = visit("alice", f"/runs/{site.rows['stopped']}/")
    hidden = []
    for _ in range(60):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => {
              const el = document.activeElement, box = el.getBoundingClientRect();
              if (el === document.body || el.closest('.bar,.nav,.dock,.skip') || !box.height) return null;
              const bar = document.querySelector('.bar').getBoundingClientRect().bottom;
              const outline = getComputedStyle(el).outlineStyle;
              return { what: el.outerHTML.slice(0, 80), ok: box.bottom > bar && box.top < innerHeight && outline !== 'none' };
            }"""  # noqa: E501
        )
        if place and not place["ok"]:
            hidden.append(place["what"])
    assert hidden == []
