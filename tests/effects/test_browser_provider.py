"""The provider browser: a real Chromium on a real page whose counter says what happened."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import accounts, browsing, executor, intents, providers, reconcile
from effects.executor import NotOpen
from effects.kinds import BadKind, NewKind, check
from effects.models import Effect, Kind, Settlement
from effects.providers import browser
from effects.reconcile import ABSENT, CANT_TELL, PRESENT
from effects.settle import Told
from runs.guard import Known
from runs.models import Permit, Step, StepStatus
from tests import browsers
from tests.effects import outside
from tests.effects.sending import queued, stands
from tests.page import Page
from tests.worlds import World, a_kind, fresh

pytestmark = pytest.mark.kill  # for it starts processes; as one of the browser it would run on one database

BODY = json.dumps({"what": "a book", "size": "large"}).encode()
SHOWS = {"selector": ".order", "text": "Order {key}", "absent_selector": ".error"}
DO = [
    {"fill": "#key", "with": "{key}"},
    {"fill": "#what", "with": "1 × {body.what}"},
    {"select": "#size", "with": "{body.size}"},
    {"click": "#buy"},
]


@pytest.fixture
def page(settings: Settings) -> Iterator[Page]:
    settings.ALLSTOP_CHROMIUM = browsers.of_ours()
    with Page() as page:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [page.url]
        yield page


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "SHOWN_S", 0.5)


def rules(page: Page, **more: Any) -> dict[str, Any]:
    return {"start": f"{page.url}/form", "do": DO, "shows": SHOWS, **more}


def on_page(page: Page) -> dict[str, Any]:
    return {**SHOWS, "page": f"{page.url}/orders/{{key}}", "absent_selector": ".none", "counts": True}


def kind_of(page: Page, **more: Any) -> Kind:
    return Kind(name="shop.order", provider="browser", send=rules(page, **more), lookup=on_page(page))


def send(page: Page, key: str = "k", body: bytes = BODY, **more: Any) -> Told:
    return browser.send(Effect(key=key, body=body), kind_of(page, **more), lambda: None)


def is_alive(pid: int) -> bool:
    """By the word of the kernel; a dead one that nobody has asked for is dead."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


# --- One action ------------------------------------------------------------------------------------------


@pytest.mark.invariant("I7")
def test_the_page_is_filled_the_second_look_is_last_and_the_action_is_done_once(page: Page) -> None:
    seen: list[list[str]] = []
    effect = Effect(key="k", body=BODY)
    told = browser.send(effect, kind_of(page), lambda: seen.append(list(page.asked)))
    assert told.outcome == "applied"
    assert seen == [["GET /form"]]  # nothing had changed when it was asked
    assert page.state.orders == [{"key": "k", "what": "1 × a book", "size": "large"}]
    assert told.result["requests"] == ["POST /orders: 303"]


@pytest.mark.invariant("I7")
def test_a_second_look_that_says_no_leaves_the_page_untouched_and_no_browser(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: list[browsing.Visit] = []
    real = browsing.Visit.open

    def open_it(visit: browsing.Visit) -> None:
        real(visit)
        visits.append(visit)

    def shut() -> None:
        assert all(is_alive(pid) for pid in visits[0].processes)
        raise NotOpen("cancelled")

    monkeypatch.setattr(browsing.Visit, "open", open_it)
    with pytest.raises(NotOpen):
        browser.send(Effect(key="k", body=BODY), kind_of(page), shut)
    assert (page.asked, page.orders("k")) == (["GET /form"], 0)
    assert len(visits[0].processes) == 2
    assert [pid for pid in visits[0].processes if is_alive(pid)] == []


def test_a_browser_that_does_not_go_is_ended_by_its_id(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: browsing.Visit) -> None:
        raise OSError("it does not listen")

    monkeypatch.setattr(browsing.Visit, "_end_browser", never)
    monkeypatch.setattr(browsing.Visit, "_end_driver", never)
    with browsing.visit([page.url]) as visit:
        pids = list(visit.processes)
        assert pids
        assert all(is_alive(pid) for pid in pids)
    end = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if is_alive(pid)] == []


# What the site does, what is told of it, and the counter.
SAID = {"": ("applied", 1), "drop": ("unknown", 1), "refuse": ("not_applied", 0), "blank": ("unknown", 1)}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", [name for name in SAID if name])
def test_what_came_of_it_is_what_the_page_shows(page: Page, fault: str) -> None:
    page.fault(fault)
    outcome, counted = SAID[fault]
    assert (send(page).outcome, page.orders("k"), len(page.changes)) == (outcome, counted, 1)


def test_a_page_that_can_not_be_used_as_told_is_left_as_it_is(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "PREPARE_S", 1.5)
    page.state.html = "<script>document.querySelector('#what').remove()</script>"
    assert send(page).outcome == "not_applied"
    page.state.html = "<p class='order'>Order k"  # it would pass for the outcome of a click
    told = send(page)
    assert (told.outcome, "already" in told.detail) == ("not_applied", True)
    assert send(page, start=f"{page.url}/nowhere").detail.endswith("the page answered 404")
    assert send(page, body=b"{}").detail.endswith("the body has no value at what")
    assert (page.changes, page.orders("k")) == ([], 0)


# --- What the page may ask for ----------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_before_the_second_look_the_page_changes_nothing_and_reaches_nothing_else(page: Page) -> None:
    with outside.server(outside.ok) as other:
        place = outside.url_of(other)
        page.state.html = f"""<script>
            navigator.sendBeacon('/orders', 'key=beacon');
            fetch('/orders', {{method: 'POST', body: 'key=fetch'}}).catch(() => 0);
            new Image().src = '{place}/image';
            try {{ new WebSocket('{place.replace("http", "ws")}/socket') }} catch {{}}
            navigator.serviceWorker && navigator.serviceWorker.register('/worker.js').catch(() => 0);
        </script><link rel=preconnect href='{place}'><img src='{place}/other'>
        <iframe src='{place}/frame'></iframe>"""
        effect = Effect(key="k", body=BODY)
        at_the_look: list[list[str]] = []
        told = browser.send(effect, kind_of(page), lambda: at_the_look.append(page.changes))
        assert told.outcome == "applied"
        assert at_the_look == [[]]
        assert outside.seen(other) == []
        assert (page.orders("beacon"), page.orders("fetch"), page.orders("k")) == (0, 0, 1)


@pytest.mark.usefixtures("quick")
def test_a_redirect_leads_nowhere_else_and_an_origin_that_is_named_and_allowed_is_reached(
    page: Page, settings: Settings
) -> None:
    with outside.server(outside.ok) as other:
        page.state.away = f"{outside.url_of(other)}/elsewhere"
        settings.ALLSTOP_OUTBOUND_ORIGINS = [page.url, outside.url_of(other)]
        page.fault("away", "away")
        assert (send(page).outcome, page.orders("k"), outside.seen(other)) == ("unknown", 1, [])
        send(page, "named", origins=[outside.url_of(other)])
        assert [path for path, _ in outside.seen(other)] == ["/elsewhere"]


def test_where_the_outbound_rules_forbid_the_page_no_browser_is_asked(page: Page, settings: Settings) -> None:
    settings.ALLSTOP_OUTBOUND_ORIGINS = []
    told = send(page)
    assert (told.outcome, told.detail) == ("not_applied", "nothing was done: http is not https")
    assert page.asked == []


def test_the_proxy_asks_for_an_address_once_and_checks_it(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside.names(monkeypatch, "10.0.0.1")
    kind = Kind(provider="browser", lookup={"page": "https://inner.example/{key}", "selector": "p"})
    seen = browser.look_up(Effect(key="k"), kind)
    assert (seen.answer, "10.0.0.1" in seen.detail) == (CANT_TELL, True)


@pytest.mark.usefixtures("quick")
def test_a_credential_goes_to_a_page_that_needs_no_other_origin_and_is_not_kept(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "credential_for", lambda *_: {"Authorization": "Bearer canary-1234567"})
    page.state.orders.append({"key": "k canary-1234567"})
    effect, kind = Effect(key="k canary-1234567"), kind_of(page)
    seen = browser.look_up(effect, kind)
    assert seen.answer == PRESENT
    assert page.state.headers[-1]["Authorization"] == "Bearer canary-1234567"
    assert "canary" not in json.dumps(seen.observed)
    kind.lookup = {**kind.lookup, "origins": ["https://cdn.example"]}
    assert browser.look_up(effect, kind).answer == PRESENT
    assert "Authorization" not in page.state.headers[-1]


# --- Looking --------------------------------------------------------------------------------------------


def test_a_look_at_the_page_says_present_absent_or_can_not_tell(page: Page, quick: None) -> None:
    kind, effect = kind_of(page), Effect(key="k", body=BODY)
    absent = browser.look_up(effect, kind)
    page.state.orders += [{"key": "k"}, {"key": "k"}]
    present = browser.look_up(effect, kind)
    kind.lookup = {**kind.lookup, "page": f"{page.url}/form?{{key}}"}
    neither = browser.look_up(effect, kind)
    assert [one.answer for one in (absent, present, neither)] == [ABSENT, PRESENT, CANT_TELL]
    assert (present.count, present.observed) == (2, {"page": {".order": ["Order k: taken"] * 2, ".none": []}})
    assert page.changes == []


def test_the_sites_own_record_is_asked_where_the_kind_names_it(page: Page) -> None:
    kind = kind_of(page)
    kind.lookup = {"url": f"{page.url}/api/orders?key={{key}}", "key_path": "key", "count_path": "orders"}
    effect = Effect(key="k", body=BODY, kind=kind)
    assert browser.look_up(effect, kind).answer == ABSENT
    page.state.orders.append({"key": "k"})
    assert (browser.look_up(effect, kind).answer, browser.look_up(effect, kind).count) == (PRESENT, 1)
    inspection = browser.inspect(effect)
    assert inspection is not None
    assert inspection.says.startswith("present")


# --- The whole way ----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("I10")
def test_after_a_lost_answer_the_page_is_looked_at_and_nothing_is_clicked_again(
    page: Page, world: World
) -> None:
    named = {"op_class": "browser_action", "send": rules(page), "lookup": on_page(page)}
    a_kind(world.workspace, "shop.order", provider="browser", **named)
    page.fault("drop")
    run = world.run()
    effect = queued(world, run, "k", kind="shop.order", body=BODY)
    assert executor.execute(effect.pk) == "unknown"
    assert stands(effect) == (Settlement.UNKNOWN, StepStatus.UNKNOWN)
    assert Permit.objects.get(effect_key="k").boundary == "act"
    assert executor.execute(effect.pk) == "nothing to do"
    again = intents.dispatch_again(world.ask(run, step_id=effect.step_id), effect.pk)
    assert isinstance(again, Known)
    assert again.answer == "must_wait"
    assert reconcile.apply_answer(effect.pk, providers.look_up(fresh(effect))) == Settlement.CONFIRMED
    assert (fresh(effect).ground, page.orders("k"), len(page.changes)) == ("looked up", 1, 1)
    assert Step.objects.get(pk=effect.step_id).status == StepStatus.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_while_all_browsers_are_at_work_an_effect_waits_for_its_turn(
    page: Page, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "WAIT_S", 0.05)
    monkeypatch.setattr(browsing, "_free", threading.BoundedSemaphore(1))
    a_kind(world.workspace, "shop.order", provider="browser", op_class="browser_action", send=rules(page))
    effect = queued(world, world.run(), "k", kind="shop.order", body=BODY)
    with browsing._free:
        assert executor.execute(effect.pk) == "not_sent"
    assert stands(effect) == (Settlement.DECLARED, StepStatus.PENDING)
    assert fresh(effect).queued_at is not None
    assert executor.execute(effect.pk) == "applied"
    assert page.orders("k") == 1


# --- Registering ------------------------------------------------------------------------------------------

START = "https://shop.example/form"
GOOD: dict[str, Any] = {"start": START, "do": [{"fill": "#a", "with": "{key}"}, {"click": "#b"}], "commit": 1}
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no start": ("send.start", {"do": [{"click": "#b"}]}),
    "plain http": ("send.start", {**GOOD, "start": "http://shop.example/"}),
    "nothing to do": ("send.do", {**GOOD, "do": []}),
    "two verbs": ("send.do", {**GOOD, "do": [{"click": "#b", "fill": "#a", "with": ""}]}),
    "a click with a value": ("send.do", {**GOOD, "do": [{"click": "#b", "with": "x"}], "commit": 0}),
    "another place": ("send.do", {**GOOD, "do": [{"fill": "#a", "with": "{secret}"}], "commit": 0}),
    "ends in waiting": ("send.do", {**GOOD, "do": [{"click": "#b"}, {"wait": "#c"}]}),
    "a step after it": ("send.commit", {**GOOD, "commit": 0}),
    "no rule": ("send.shows", {**GOOD, "shows": {"text": "x"}}),
    "both texts": ("send.shows", {**GOOD, "shows": {"selector": "p", "text": "x", "equals": "x"}}),
    "an origin with a path": ("send.origins", {**GOOD, "origins": ["https://cdn.example/x"]}),
    "a local origin": ("send.origins", {**GOOD, "origins": ["https://127.0.0.1"]}),
}


def new_kind(**fields: Any) -> NewKind:
    return NewKind(**{"provider": "browser", "op_class": "browser_action", "send": GOOD, **fields})


@pytest.mark.parametrize("case", BAD)
def test_a_kind_that_could_not_be_done_is_refused(settings: Settings, case: str) -> None:
    settings.ALLSTOP_CHROMIUM = browsers.of_ours()
    field, sending = BAD[case]
    check(new_kind())
    with pytest.raises(BadKind) as refused:
        check(new_kind(send=sending))
    assert refused.value.field == field


def test_its_look_up_needs_the_key_and_a_rule(settings: Settings) -> None:
    settings.ALLSTOP_CHROMIUM = browsers.of_ours()
    check(new_kind(lookup={"page": f"{START}/{{key}}", "selector": "p"}))
    for field, lookup in (
        ("lookup.page", {"page": START, "selector": "p"}),
        ("lookup", {"page": f"{START}/{{key}}"}),
        ("lookup.url", {"url": START}),
    ):
        with pytest.raises(BadKind) as refused:
            check(new_kind(lookup=lookup))
        assert refused.value.field == field


def test_a_server_without_a_browser_says_so_when_a_kind_is_registered_and_does_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ALLSTOP_CHROMIUM = "/nowhere/chromium"
    with pytest.raises(BadKind, match="ALLSTOP_CHROMIUM"):
        check(new_kind())
    told = browser.send(Effect(key="k", body=BODY), Kind(send=GOOD), lambda: None)
    assert (told.outcome, told.detail.startswith("nothing was done")) == ("not_applied", True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadKind, match="Playwright is not installed"):
        check(new_kind())
