"""What the agents of the seven failures do. Each takes a Work (see agent.py)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from allstop import Outcome

from .agent import WAITS_S, Work

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

LOST = "no answer"


def claim_then_charge(work: Work) -> None:
    """Claim a step, wait, then ask for a permit."""
    with work.run.step("charge", "Charge a card") as step:
        work.mark("claimed")
        work.wait()
        work.mark("asking")
        work.charge(work.words["effect"], step)


def charge(work: Work) -> None:
    """One effect, at once."""
    work.charge(work.words["effect"])


def declined_and_again(work: Work) -> None:
    """One effect that the provider declines; wait; the same key once more."""
    work.told["first"] = work.charge(work.words["effect"])
    work.mark("declined")
    work.wait()
    work.mark("asking")
    work.charge(work.words["effect"])


def charge_and_another(work: Work) -> None:
    """One effect; wait; another one."""
    work.charge(work.words["effect"])
    work.mark("charged")
    work.wait()
    work.mark("asking")
    work.charge(work.words["other"])


def click_and_another(work: Work) -> None:
    """A click on the provider's page, whose answer gets lost; then another one."""
    with browsing(work.words["browser"]) as page:
        for key in (work.words["effect"], work.words["other"]):
            effect = work.run.effect(
                key=key, kind="drill.click", op_class="browser_action", none_because="a drill"
            )
            with contextlib.suppress(ConnectionError):
                effect.send(click, page, f"{work.provider}/page?key={key}")


def click(page: Page, url: str) -> Outcome:
    """Open the page and press its button. Raises ConnectionError when the page loses its answer."""
    ends: list[str] = []
    page.goto(url)

    def over(request: Request, how: str) -> None:
        if request.method == "POST":
            ends.append(how)

    page.on("requestfailed", lambda request: over(request, LOST))
    page.on("response", lambda response: over(response.request, f"HTTP {response.status}"))
    page.click("#send", no_wait_after=True)
    end = time.monotonic() + WAITS_S
    while not ends and time.monotonic() < end:
        page.wait_for_timeout(20)
    if not ends or ends[0] == LOST:
        raise ConnectionError("The page lost the answer to its request.")
    return Outcome("applied" if ends[0] == "HTTP 201" else "unknown", detail=ends[0])


@contextlib.contextmanager
def browsing(program: str) -> Iterator[Page]:
    """A page of a browser of its own."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser.new_page()
        finally:
            browser.close()
