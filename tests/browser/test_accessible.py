"""WCAG 2.2 AA by axe on every page, in both themes, wide and at 360 and 320 px; no sideways scroll."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, Visit

RULES: dict[str, Any] = {
    "light": {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast"]}},  # all that a theme changes
}
SIZES = {"wide": (1280, 900), "phone": (360, 740), "narrow": (320, 640)}
PAGES = {
    "first run": "/first-run",
    "overview": "/?workspace={archive}",
    "runs": "/runs/",
    "all runs selected": "/runs/?all=1&runtime=LangGraph%201.2",
    "a bulk stop": "/runs/stop?all=1&session=nightly",
    "report of a standing stop": "/stops/{standing}/report",
    "policies": "/policies/?workspace={archive}",
    "a policy": "/policies/{policy}",
    "coverage": "/coverage",
    "no runs": "/runs/?q=nothing-like-it",
    "a running run": "/runs/{spare[23]}/",
    "a stopped run": "/runs/{stopped}/",
    "an empty run": "/runs/{empty}/",
    "stop": "/runs/{spare[23]}/stop?key=k",
    "a paused run": "/runs/{paused}/",
    "resume": "/runs/{paused}/resume",
    "what should stop": "/stop",
    "stops": "/stops/?workspace={archive}",
    "a standing stop": "/stops/{standing}/",
    "planned stops": "/stops/planned?workspace={archive}",
    "plan a stop": "/stops/planned/new?workspace={archive}",
    "withdraw a planned stop": "/stops/planned/{planned}/withdraw",
    "release": "/stops/{standing}/release",
    "look at it again": "/stops/{standing}/review",
    "a new switch": "/stops/new?labels=tag%3D1&name=x",
    "stop a workspace": "/stop/scope?scope=workspace&id={finance}",
    "evidence": "/runs/{stopped}/evidence",
    "report": "/runs/{stopped}/report",
    "reports": "/reports/",
    "no reports": "/reports/?outcome=failed&until=2001-01-01",
    "reviews": "/reviews",
    "a review": "/reviews/{review}",
    "a compensation": "/reviews/{repair_hostile}",
    "another call": "/reviews/{repair_hostile}/edit",
    "propose": "/effects/{repairable}/compensate",
    "a run with compensations": "/runs/{mended}/",
    "lift a halt": "/halts/{halt}/lift",
    "unknowns": "/unknowns?workspace={slug}",
    "an unknown": "/unknowns/{unknown}",
    "one that is settled": "/unknowns/{settled}",
    "password again": "/sign-in/again",
    "measures": "/measures?workspace={slug}",
    "audit": "/audit?verify=1",
    "no audit": "/audit?kind=exports&until=2001-01-01",
    "people": "/people",
    "remove a person": "/people/{dana}/remove",
    "rules": "/rules",
    "tokens": "/tokens",
    "notices": "/notices",
    "drills": "/drills/",
    "a drill": "/drills/{drill}/",
    "revoke a token": "/tokens/{token}/revoke",
    "password": "/password",
    "help": "/help",
    "help on Stop": "/help/what-stop-can-and-cannot-do",
    "nothing there": "/runs/run_absent/",
}
HOSTILE = {
    "the overview": "/?workspace={slug}",
    "the report of a stop": "/stops/{standing}/report",
    "measures": "/measures?workspace={slug}",
    "policies": "/policies/?workspace={archive}",
    "a policy": "/policies/{policy}",
    "coverage": "/coverage",
    "a bulk stop": "/runs/stop?all=1",
    "standing stops": "/stops/?workspace={archive}",
    "planned stops": "/stops/planned?workspace={archive}",
    "a standing stop": "/stops/{standing}/",
    "the list": "/runs/",
    "the chooser": "/stop",
    "a stopped run": "/runs/{hostile}/",
    "a running run": "/runs/{hostile_running}/",
    "its form": "/runs/{hostile_running}/stop",
    "its retry": "/runs/{hostile_running}/retry?step={hostile_failed}",
    "its report": "/runs/{hostile}/report",
    "its evidence": "/runs/{hostile}/evidence",
    "its reviews": "/reviews",
    "its review": "/reviews/{hostile_review}",
    "its unknowns": "/unknowns?workspace={slug}",
    "its unknown": "/unknowns/{hostile_unknown}",
    "its verdict": "/unknowns/{settled}",
    "a crowded timeline": "/runs/{crowded}/",
}
# What stands outside the window, or outside the panel around it, though nothing scrolls there.
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(el => {
  if (el.closest('.scroll,.code,.vh,dialog:not([open]),details:not([open]) > :not(summary)')) return false;
  const box = el.getBoundingClientRect(), style = getComputedStyle(el);
  if (!box.width || style.display === 'none' || style.position === 'fixed') return false;
  const frame = el.closest('.lanes') && el.closest('.panel') || document.documentElement;
  const around = frame.getBoundingClientRect();
  return box.right > around.right + 1 || box.left < around.left - 1;
}).map(el => `${el.tagName} ${el.getAttribute('class')} ${el.textContent.slice(0, 50)}`)"""


def findings(page: Page, scheme: str) -> list[str]:
    found: Any = Axe().run(page, options=RULES[scheme])
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


def settle(page: Page) -> None:
    """Until its letters have their shapes; all else of a page that was loaded is there."""
    page.evaluate("document.fonts.ready.then(() => null)")


def open_all(page: Page) -> None:
    """All but the menu of workspaces, which covers what is below it as any menu does."""
    page.evaluate("document.querySelectorAll('details:not(.ws-switch)').forEach((el) => { el.open = true; })")


@pytest.mark.parametrize(
    ("scheme", "size"),
    [("light", "wide"), ("light", "phone"), ("light", "narrow"), ("dark", "wide"), ("dark", "phone")],
)
def test_every_page_passes_axe_and_never_scrolls_sideways(
    site: Site, visit: Visit, scheme: str, size: str
) -> None:
    width, height = SIZES[size]
    page = visit("erin", "/help", color_scheme=scheme, viewport={"width": width, "height": height})
    wrong: dict[str, Any] = {}
    for name, path in PAGES.items():
        page.goto(site.url + path.format(**site.rows))
        settle(page)
        open_all(page)
        if size != "narrow" and (found := findings(page, scheme)):
            wrong[name] = found
        over = page.evaluate("document.documentElement.scrollWidth") - width
        if over > 0:
            wrong[f"{name}, sideways"] = over
    assert wrong == {}


@pytest.mark.parametrize(("scheme", "size"), [("light", "wide"), ("dark", "phone")])
def test_the_page_of_superusers_that_erases_a_person_passes_too(
    site: Site, visit: Visit, scheme: str, size: str
) -> None:
    width, height = SIZES[size]
    page = visit("root", "/help", color_scheme=scheme, viewport={"width": width, "height": height})
    page.goto(f"{site.url}/people/{site.rows['dana']}/erase")
    expect(page.get_by_role("button", name="Erase for good")).to_be_visible()
    assert findings(page, scheme) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_and_crowded_timelines_stay_inside(site: Site, visit: Visit) -> None:
    page = visit("erin", "/help")
    wrong: dict[str, Any] = {}
    for name, path in HOSTILE.items():
        page.goto(site.url + path.format(**site.rows))
        settle(page)
        for width in (1280, 1000, 900, 768, 360):
            page.set_viewport_size({"width": width, "height": 800})
            over = page.evaluate("document.documentElement.scrollWidth") - width
            found = page.evaluate(OUTSIDE)
            if over > 0 or found:
                wrong[f"{name} at {width}"] = (over, found[:5])
    assert wrong == {}
    page.goto(f"{site.url}/runs/{site.rows['hostile_running']}/")
    page.keyboard.press("s")
    button = page.get_by_role("button", name="Request stop of this run")
    expect(button).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.querySelector('dialog[open] .dlg-b').clientHeight") > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_dialogs_and_the_sign_in_pass_axe(site: Site, visit: Visit, scheme: str) -> None:
    page = visit("alice", f"/runs/{site.rows['spare'][-1]}/", color_scheme=scheme)
    page.keyboard.press("s")
    page.get_by_role("dialog").wait_for()
    assert findings(page, scheme) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert findings(page, scheme) == []
    page.context.clear_cookies()
    page.goto(f"{site.url}/sign-in")
    assert findings(page, scheme) == []


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
