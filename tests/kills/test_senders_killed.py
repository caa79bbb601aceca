"""SIGKILL of our executor in the middle of a mail and of a click, after the other side took them.

The mail server has the text and has not answered yet; the site has counted the order and never answers. A new
executor sends neither again: the mail stays unknown, for nobody can be asked; the order is found on its page.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import browsers
from tests.kills import rows
from tests.kills.site import KIND, Said, Site, until
from tests.page import Page
from tests.post import Post

pytestmark = [
    pytest.mark.kill,
    pytest.mark.invariant("I9"),
    pytest.mark.invariant("I10"),
]

MAIL, ORDER = "mail-7", "order-7"
BODIES = {
    MAIL: {"to": ["anne@example.org"], "subject": "Invoice 7", "text": "It is due."},
    ORDER: {"what": "a book"},
}


@dataclass
class Story:
    """What was seen on the way."""

    exit_code: int = 0
    browsers: int = 0
    after: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)
    resumed: dict[str, Said] = field(default_factory=dict)
    again: dict[str, Any] = field(default_factory=dict)
    letters: int = 0
    orders: int = 0
    changes: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


def kinds_at(page: Page) -> dict[str, dict[str, Any]]:
    """The kinds of both orders."""
    steps = [{"fill": "#key", "with": "{key}"}, {"fill": "#what", "with": "{body.what}"}, {"click": "#buy"}]
    shown = {"page": f"{page.url}/orders/{{key}}", "selector": ".order", "absent_selector": ".none"}
    browser = {"class": "browser_action", "send": {"start": f"{page.url}/form", "do": steps}, "lookup": shown}
    more = {"check_for_s": 30, "check_every_s": [1]}
    return {MAIL: {**KIND, "provider": "email"}, ORDER: {**KIND, **more, "provider": "browser", **browser}}


def declare(site: Site, order: str) -> Any:
    """Leave the effect of an order to our executor, or ask for it again."""
    body = {
        "key": order,
        "kind": f"of.{order}",
        "step": {"key": order},
        "worker": "w-1",
        "seen_version": site.register(order)["cancel_version"],
        "body": json.dumps(BODIES[order]),
        "plan": {"none_because": "a test"},
    }
    return site.post(f"runs/{site.register(order)['id']}/effects", body)


def resume(site: Site, order: str) -> Said:
    run = site.register(order)
    stop = run["stop"]
    seen = {"seen_version": run["cancel_version"], "stop_id": stop["id"], "presses": 1}
    return site.ask("POST", f"runs/{run['id']}/resume", {**seen, "reason": "go on"})


def descendants(pid: int) -> list[int]:
    """All processes below one, by the word of the kernel."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def is_browser(pid: int) -> bool:
    """Whether it is there and a Chromium; one that is dead and waits to be asked for has no words."""
    try:
        return b"chrom" in Path(f"/proc/{pid}/cmdline").read_bytes().lower()
    except OSError:
        return False


def settlement(site: Site, order: str) -> str:
    return rows.stands(site.database, order).effect


@pytest.fixture(scope="module")
def story(production: Site) -> Story:
    site, story = production, Story()
    with Post() as post, Page() as page:
        more = {
            "EMAIL_URL": f"smtp://127.0.0.1:{post.port}",
            "ALLSTOP_CHROMIUM": browsers.of_ours(),
            "ALLSTOP_OUTBOUND_ORIGINS": page.url,
        }
        site.processes.environ = {**site.processes.environ, **more}
        executor = site.controller(ready=False)
        if site.cluster:
            site.web()
        executor.wait_until_ready()
        for order, kind in kinds_at(page).items():
            assert site.ask("PUT", f"kinds/of.{order}", kind).status == 201
        post.fault("hold")
        page.fault("hold")
        for order in BODIES:
            declare(site, order)
        assert post.state.held.wait(30)
        assert page.state.held.wait(30)
        below = [pid for pid in descendants(executor.process.pid) if is_browser(pid)]
        story.browsers = len(below)
        executor.process.kill()
        story.exit_code = executor.process.popen.returncode
        story.after = {order: rows.stands(site.database, order).work for order in BODIES}
        post.release()
        page.release()
        site.start_all()
        for order in BODIES:
            assert site.press(order, mode="pause").status == 201
        until(lambda: settlement(site, MAIL) == "UNKNOWN" and settlement(site, ORDER) == "CONFIRMED")
        until(lambda: {rows.stands(site.database, order).run for order in BODIES} == {"PAUSED"})
        story.resumed = {order: resume(site, order) for order in BODIES}
        story.again = {order: declare(site, order) for order in (ORDER,)}
        story.settled = {order: settlement(site, order) for order in BODIES}
        story.letters, story.orders, story.changes = len(post.letters), page.orders(ORDER), page.changes
        story.left = [pid for pid in below if is_browser(pid)]
    return story


def test_a_killed_executor_leaves_both_in_progress_and_no_browser(story: Story) -> None:
    assert story.exit_code == -signal.SIGKILL
    assert set(story.after.values()) == {("DISPATCHED", "DISPATCHED", "OPEN")}
    assert story.browsers >= 1
    assert story.left == []


def test_a_mail_whose_answer_was_lost_stays_unknown_and_lets_no_run_go_on(story: Story) -> None:
    assert (story.settled[MAIL], story.letters) == ("UNKNOWN", 1)
    assert story.resumed[MAIL].status == 409


def test_after_a_lost_click_the_page_is_looked_at_and_the_counter_says_one_after_the_resume(
    story: Story,
) -> None:
    assert (story.settled[ORDER], story.resumed[ORDER].status) == ("CONFIRMED", 200)
    assert (story.again[ORDER]["known"], story.orders) == ("settled", 1)
    assert story.changes == ["POST /orders"]
