"""The store fails in each of its ways: nothing is sent, nothing is acknowledged that may not be there.

What each verb answers while the store fails is written by hand from the contract. When the store is back, the
same requests under the same keys come to one permit, one stop, one report.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from allstop import Client, GateUnavailable

from dashboard.settings import SQLITE
from tests.databases import Database
from tests.kills import rows
from tests.kills.checker import violations
from tests.kills.conftest import Seeded, opened
from tests.kills.faults import FAULTS, Store
from tests.kills.site import STILL, Said, Site, until
from tests.kills.wire import Wire

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I22"), pytest.mark.invariant("I8")]

# Shorter waits than an installation has: what is tested is how they end.
LIMITS = "-c lock_timeout=100ms -c statement_timeout=2s -c idle_in_transaction_session_timeout=2s"
PRAGMAS = f"{SQLITE['init_command']} PRAGMA busy_timeout=200;"
SHORT = [
    word
    for name in (
        "runs.store.STOP_DEADLINE_S=0.5",
        "dashboard.health.PATIENCE_S=0.3",
        "dashboard.health.KEPT_S=0.0",
    )
    for word in ("--set", name)
]
AWAY = (503, "store-unavailable")
SAID = {
    True: "recorded",
    False: "Your stop was NOT recorded",
    None: "We do not know whether your stop was recorded",
}
NOT, PERHAPS = SAID[False], SAID[None]


@dataclass(frozen=True)
class Answers:
    """dispatch, report, look: status and problem. stop: status and `recorded`. page: status and words."""

    dispatch: tuple[int, str] = AWAY
    report: tuple[int, str] = AWAY
    look: tuple[int, str] = AWAY
    stop: tuple[int, bool | None] = (503, False)
    page: tuple[int, str] = (503, NOT)
    ready: int = 503


# Reading goes on where only writing fails.
READS = Answers(look=(200, ""))
TABLE = {
    "none": Answers((201, ""), (200, ""), (200, ""), (201, True), (302, "recorded"), 200),
    "unreachable": Answers(),
    "reset": Answers(),
    "slow": Answers(ready=503),
    "standby": READS,
    # A stop looks for itself under its key, on another connection: it is there, and may be said to be.
    "commit lost": Answers(look=(200, ""), stop=(201, True), page=(302, "recorded")),
    "locked": READS,
    "full": Answers(look=(200, ""), stop=(503, None), page=(503, PERHAPS)),  # it shows at the COMMIT
    "read-only": READS,
}


@pytest.fixture(scope="module")
def store(database: Database, seeded: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server whose store can be made to fail. Nothing ticks in it."""
    with opened(tmp_path_factory.mktemp("site"), database, seeded, "") as site:
        wire = None
        if database.kind == "postgresql":
            place = urlsplit(database.url)
            wire = Wire(place.port or 5432)
            address = f"postgres://{place.username}@127.0.0.1:{wire.port}{place.path}"
            site.processes.database_url = f"{address}?options={quote(LIMITS)}"
        else:
            site.processes.database_url = f"{database.url}?init_command={quote(PRAGMAS)}"
        made = Store(site, wire)
        site.processes.obedient = True
        site.processes.environ = {**site.processes.environ, "ALLSTOP_POOL_WAIT_S": "0.2"}
        made.server = site.web(*STILL, *SHORT)
        site.put_kinds()
        yield made
        if wire is not None:
            wire.close()


class Case:
    """The same five verbs for one fault, each of a run of its own that was there before."""

    def __init__(self, store: Store, fault: str) -> None:
        self.site, self.name = store.site, fault.replace(" ", "-")
        self.run = self.site.register(self.key("dispatch"))["id"]
        self.site.register(self.key("stop"))
        self.paged = self.site.register(self.key("page"))["id"]
        self.permit = self.site.put_effect(self.key("report"), "bank.plain", lease_s=600.0)["permit"]
        self.looked = self.site.put_effect(self.key("look"), "bank.plain", lease_s=600.0)["permit"]
        self.site.book(self.key("report"))
        self.client = Client(
            self.site.url, self.site.token, timeout_s=3, give_up_s=0.7, report_for_s=1, heartbeat_s=60
        )
        self.agent = self.client.run(self.key("agent"))
        self.agent.__enter__()

    def close(self) -> None:
        """The agent's run is complete; nothing of it goes on."""
        with self.client:
            self.agent.__exit__(None, None, None)

    def key(self, verb: str) -> str:
        return f"{self.name}-{verb}"

    def dispatch(self) -> tuple[int, str]:
        body = {
            "key": self.key("dispatch"),
            "kind": "bank.plain",
            "step": {"key": "pay"},
            "worker": "w-1",
            "seen_version": 1,
            "plan": {"none_because": "a test"},
        }
        return told(self.site.ask("POST", f"runs/{self.run}/effects", body, key=self.key("dispatch")))

    def report(self) -> tuple[int, str]:
        body = {"claim_token": self.permit["claim_token"], "outcome": "applied"}
        path = f"permits/{self.permit['id']}/report"
        return told(self.site.ask("POST", path, body, key=self.key("report")))

    def look(self) -> tuple[int, str]:
        token = self.looked["claim_token"]
        return told(self.site.ask("GET", f"permits/{self.looked['id']}?claim_token={token}"))

    def stop(self) -> tuple[int, bool | None]:
        said = self.site.press(self.key("stop"))
        return said.status, said.data.get("recorded") if said.status == 503 else True

    def page(self, *, script: bool = True) -> httpx2.Response:
        """The press as the page sends it: by its script, or as a plain form."""
        cookies = {"sessionid": self.site.session, "csrftoken": "x" * 32}
        headers = {"X-CSRFToken": "x" * 32, "Accept": "application/json" if script else "text/html"}
        form, path = {"key": self.key("page"), "reason": "cost"}, f"/runs/{self.paged}/stop"
        url = f"{self.site.url}{path}"
        return httpx2.post(url, data=form, headers=headers, cookies=cookies, timeout=20)

    def send(self) -> None:
        """As an agent sends: it has no permit before the gate said so."""
        effect = self.agent.effect(key=self.key("agent"), kind="opaque", none_because="a test")
        effect.send(self.site.book, self.key("agent"))

    @property
    def sends(self) -> int:
        """How often the bank was really asked."""
        return rows.requests(self.site.bank.ledger)[self.key("agent")]


def told(said: Said) -> tuple[int, str]:
    problem = said.data.get("type", "") if said.status >= 400 else ""
    return said.status, problem.rpartition("/")[2]


def ready(site: Site) -> int:
    return httpx2.get(f"{site.url}/readyz", timeout=20).status_code


def answers(case: Case) -> Answers:
    """All verbs, once. The page's words are those that its script shows."""
    page = case.page(script=False)
    words = html.unescape(page.text) if page.status_code == 503 else SAID[True]
    found = next((said for said in (NOT, PERHAPS) if said in words), words)
    scripted = case.page().json()["recorded"]
    assert SAID[scripted] == found, "the script and the form are told the same"
    return Answers(
        case.dispatch(),
        case.report(),
        case.look(),
        case.stop(),
        (page.status_code, found),
        ready(case.site),
    )


def of_both() -> Iterator[Any]:
    """Each fault on the database that it is a fault of."""
    for kind, known in FAULTS.items():
        yield from (pytest.param(kind, fault, marks=pytest.mark.only(kind), id=fault) for fault in known)


@pytest.mark.parametrize(("kind", "fault"), list(of_both()))
def test_no_verb_says_more_than_the_store_did(store: Store, kind: str, fault: str) -> None:
    site, case = store.site, Case(store, fault)
    with closing(case):
        with FAULTS[kind][fault](store):
            assert answers(case) == TABLE[fault]
            if fault not in ("none", "commit lost"):  # those two lead to a permit
                with pytest.raises(GateUnavailable):
                    case.send()
                assert case.sends == 0
        until(lambda: ready(site) == 200)
        assert stands_unresolved(site, case, fault)
        converges(case)
    assert rows.stands(site.database, case.key("agent")).run == "COMPLETED"
    assert violations(site) == []


def stands_unresolved(site: Site, case: Case, fault: str) -> bool:
    """Whatever happened meanwhile, no run ended and no effect counts as done that nobody reported."""
    ended = rows.stands(site.database, case.key("report"))
    return ended.run == "ACTIVE" and (ended.effect == "DISPATCHED" or fault in ("none", "commit lost"))


def converges(case: Case) -> None:
    """Asked again under the same keys: one permit, one report, one stop, one press."""
    assert case.dispatch() == (201, "")
    assert case.report() == (200, "")
    assert case.look() == (200, "")
    assert case.stop()[1] is True
    assert case.page().json()["recorded"] is True
    case.send()
    assert case.sends == 1
    database = case.site.database
    of_run = f"SELECT COUNT(*) FROM runs_permit WHERE run_id = '{case.run}'"
    assert database.value(of_run) == 1
    assert rows.stands(database, case.key("report")).effect == "CONFIRMED"
    for verb in ("stop", "page"):
        assert rows.stops_of(database, case.key(verb)) == 1
        assert rows.stands(database, case.key(verb)).version == 2
        presses = "SELECT COUNT(*) FROM runs_press p JOIN runs_stoprequest s ON s.id = p.stop_id"
        assert database.value(f"{presses} WHERE s.run_key = '{case.key(verb)}'") == 1
