"""A real server, and browsers that visit it as Alice, Bob or Dana."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.processes import Process, Processes
from tests.provider import Provider

PASSWORD = "a long password"


@dataclass
class Site:
    """A server with seeded rows; `spare()` is a running run that no other test touches. `bank`: what its
    compensations are sent to.
    """

    bank: Provider
    processes: Processes
    database: Database
    web: Process
    rows: dict[str, Any]
    taken: int = 0
    cookies: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.web.url

    def spare(self) -> str:
        self.taken += 1
        return str(self.rows["spare"][self.taken - 1])

    def stops_of(self, run_id: str) -> int:
        return int(self.database.value(f"SELECT count(*) FROM runs_stoprequest WHERE run_id = '{run_id}'"))

    def presses_of(self, run_id: str) -> int:
        sql = "SELECT count(*) FROM runs_press p JOIN runs_stoprequest s ON s.id = p.stop_id"
        return int(self.database.value(f"{sql} WHERE s.run_id = '{run_id}'"))


@pytest.fixture(scope="session")
def site(
    template: SqliteTemplate | PostgresqlTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    database = template.copy(folder)
    with Provider(folder / "bank.jsonl") as bank:
        processes = Processes(folder, database.url, environ={"ALLSTOP_OUTBOUND_ORIGINS": bank.url})
        seeding = processes.start("seed", [sys.executable, "-m", "tests.browser.seed"])
        assert seeding.popen.wait(60) == 0, seeding.said()
        rows = json.loads(seeding.said().strip().splitlines()[-1])
        yield Site(bank, processes, database, processes.web(), rows)
        processes.end()


def sign_in(page: Page, site: Site, who: str) -> None:
    page.goto(f"{site.url}/sign-in")
    page.fill("#id_login", site.rows["people"][who])
    page.fill("#id_password", PASSWORD)
    page.click("text=Sign in >> visible=true >> nth=-1")
    page.wait_for_url(lambda url: "/sign-in" not in url)


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """`visit("alice", "/runs/")`: a signed-in page in a context of its own; console errors fail the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def go(who: str, path: str = "/runs/", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        known = site.cookies.get(who)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None
        )
        if known is None:
            sign_in(page, site, who)
            site.cookies[who] = context.cookies()
        else:
            context.add_cookies(known)
        page.goto(f"{site.url}{path}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
