"""The server dies while agents act, and they are killed before they could tell it.

One death of the server for all of it: it takes seconds to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from allstop import Client

from tests.client.site import Site, until

pytestmark = [pytest.mark.kill, pytest.mark.invariant("I3"), pytest.mark.invariant("I9")]

CLIENT = str(Path(__file__).parents[2] / "client")
AGENT = """
import asyncio, sys, time, httpx2
from allstop import Client
from allstop.aio import AsyncClient
mode, key, bank = sys.argv[1:]
settings = {"lease_s": 2, "heartbeat_s": 60, "report_for_s": 60, "worker": mode}
words = {"key": key, "kind": "opaque", "none_because": "a test"}
request = {"url": bank + "/charges", "json": {}, "headers": {"Idempotency-Key": key}, "timeout": 60}
async def main():
    async with AsyncClient(**settings) as client, client.run(key) as run, httpx2.AsyncClient() as http:
        await run.effect(**words).send(http.post, **request)
def before_it_sends():
    print("permitted", flush=True)
    time.sleep(60)
if mode == "async":
    asyncio.run(main())
with Client(**settings) as client, client.run(key) as run:
    call, how = (before_it_sends, {}) if mode == "unsent" else (httpx2.post, request)
    run.effect(**words).send(call, **how)
"""
ACTED = ("sync", "async")


@dataclass
class Told:
    """What was known of each agent's effect, and how often the bank was asked, at each stage."""

    unknown: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    permits: tuple[int, int] = (0, 0)
    calls: list[str] = field(default_factory=list)
    outlasted: str = ""


def start(site: Site, mode: str, folder: Path) -> subprocess.Popen[str]:
    words = {"ALLSTOP_URL": site.web.url, "ALLSTOP_TOKEN": site.token, "ALLSTOP_BUFFER": str(folder)}
    command = [sys.executable, "-c", AGENT, mode, f"outlived:{mode}", site.bank.url]
    environ = {**os.environ, **words, "PYTHONPATH": CLIENT}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def settlements(site: Site) -> dict[str, str]:
    found = site.database.rows("SELECT key, settlement FROM effects_effect WHERE key LIKE 'outlived:%'")
    return {key.partition(":")[2]: settlement for key, settlement in found}


def facts(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("*/*.facts")]


@pytest.fixture(scope="module")
def told(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Told:
    told, folder = Told(), tmp_path_factory.mktemp("buffer")
    for mode in (*ACTED, "outlasts"):
        site.bank.fault("hold_after", key=f"outlived:{mode}")
    agents = {mode: start(site, mode, folder) for mode in (*ACTED, "unsent")}
    try:
        with site.client() as client, client.run("outlived:outlasts") as run:
            effect = site.effect(run, "outlived:outlasts")
            sending = threading.Thread(target=lambda: effect.send(site.charge, effect.key))
            sending.start()
            for mode in (*ACTED, "outlasts"):
                site.bank.ledger.wait_for("held", f"outlived:{mode}")
            stdout = agents["unsent"].stdout
            assert stdout is not None
            assert stdout.readline() == "permitted\n"
            let_die(site, agents, folder)
            sending.join(30)
            told.outlasted = site.settlement(run, effect.key)
        tell(site, folder, told)
    finally:
        for agent in agents.values():
            agent.kill()
            agent.communicate()
    return told


def let_die(site: Site, agents: dict[str, subprocess.Popen[str]], folder: Path) -> None:
    """The server, then the agents, which have acted and have nobody to tell; then the server is back."""
    port = int(site.web.url.rpartition(":")[2])
    site.web.kill()
    site.bank.release()
    until(lambda: "".join(facts(folder)).count('"outcome":"applied"') == len(ACTED))
    for agent in agents.values():
        agent.kill()
        assert agent.wait(10) == -9
    site.web = site.processes.web(port=port)


def tell(site: Site, folder: Path, told: Told) -> None:
    until(lambda: {settlements(site)[mode] for mode in (*ACTED, "unsent")} == {"UNKNOWN"})
    told.unknown = settlements(site)
    with site.client(buffer=False) as client, client.run("outlived:without"):
        time.sleep(0.5)
    told.without = settlements(site)
    before = permits(site)
    with site.client(buffer=folder) as client, client.run("outlived:next"):
        told.after = settlements(site)
    told.permits = (before, permits(site))
    assert facts(folder) == []


def permits(site: Site) -> int:
    return int(site.database.value("SELECT COUNT(*) FROM runs_permit"))


def test_a_report_is_told_by_the_next_process_and_agrees_with_the_banks_ledger(
    site: Site, told: Told
) -> None:
    assert [told.unknown[mode] for mode in ACTED] == ["UNKNOWN", "UNKNOWN"]
    assert [told.after[mode] for mode in ACTED] == ["CONFIRMED", "CONFIRMED"]
    for mode in ACTED:
        assert (site.bank.ledger.sends(f"outlived:{mode}"), site.bank.ledger.applied(f"outlived:{mode}")) == (
            1,
            1,
        )
        assert site.permits(f"outlived:{mode}") == ["REPORTED"]


def test_without_the_buffer_nobody_could_have_told(told: Told) -> None:
    """The control."""
    assert [told.without[mode] for mode in ACTED] == ["UNKNOWN", "UNKNOWN"]


def test_what_had_been_permitted_and_not_sent_is_not_sent_by_anybody_later(site: Site, told: Told) -> None:
    assert told.after["unsent"] == "UNKNOWN"
    assert site.bank.ledger.sends("outlived:unsent") == 0
    assert told.permits[0] == told.permits[1] > 0


def test_a_report_outlasts_the_death_of_the_server(site: Site, told: Told) -> None:
    assert told.outlasted == "CONFIRMED"
    assert site.bank.ledger.sends("outlived:outlasts") == 1


def test_an_agent_that_is_started_again_finds_its_key_settled(site: Site, told: Told) -> None:
    with Client(site.web.url, site.token, worker="again") as client, client.run("outlived:sync") as run:
        again = run.effect(key="outlived:sync", kind="opaque", none_because="a test")
        assert again.send(pytest.fail, "sent again") is not None
        assert again.skipped
