"""The README's first agent is a real one: it runs here against a bank, a server of the wire, and Allstop."""

import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allstop import Client

from tests.client.stub import Stub, StubServer
from tests.processes import Processes
from tests.provider import Provider

ROOT = Path(__file__).resolve().parents[1]
BANK = "https://bank.example"
MAKE_A_TOKEN = """
from runs.access import SET_UP
from runs.models import Workspace
from runs.people import issue_token

team = Workspace.objects.create(name="Finance", slug="finance")
scopes = ["runs:write", "stop:write"]
print(issue_token(actor=SET_UP, workspace_id=team.pk, name="agent", scopes=scopes)[1])
"""


def agents(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    server = StubServer(Stub())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("ALLSTOP_URL", server.url)
    monkeypatch.setenv("ALLSTOP_TOKEN", "als_x")
    yield server.stub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger.jsonl") as bank:
        yield bank


def run_agent(bank: Provider) -> None:
    """The block exactly as it is printed, but for the bank's address."""
    (source,) = agents("README.md")
    assert BANK in source
    exec(compile(source.replace(BANK, bank.url), "README.md", "exec"), {})  # noqa: S102


def test_the_first_agent_has_twelve_lines_and_both_documents_show_the_same() -> None:
    (source,) = agents("README.md")
    assert len(source.strip().splitlines()) == 12
    assert source in agents("docs/connecting-an-agent.md")


def test_the_first_agent_makes_each_charge_once_and_completes_its_run(stub: Stub, bank: Provider) -> None:
    run_agent(bank)
    assert [bank.ledger.sends(key) for key in ("charge:1042", "charge:1043")] == [1, 1]
    assert {key: effect["settlement"] for key, effect in stub.effects.items()} == {
        "charge:1042": "CONFIRMED",
        "charge:1043": "CONFIRMED",
    }
    assert stub.status == "COMPLETED"


def test_the_first_agent_reports_the_charge_in_flight_and_starts_no_other_after_a_stop(
    stub: Stub, bank: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    bank.fault("hold_after", key="charge:1042")
    agent = threading.Thread(target=run_agent, args=(bank,))
    agent.start()
    bank.ledger.wait_for("applied", "charge:1042")
    stub.stop()
    bank.release()
    agent.join(20)
    assert not agent.is_alive()
    assert stub.effects["charge:1042"]["settlement"] == "CONFIRMED"
    assert bank.ledger.sends("charge:1043") == 0
    assert stub.status == "CANCELLING"
    assert capsys.readouterr().out.startswith("Ended at a safe point:")


# --- Against a real server ------------------------------------------------------------------------------


@pytest.fixture
def allstop(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server, with the agent's environment set for it."""
    web = processes.web()
    token = re.search(r"als_\w+", processes.manage("shell", "--verbosity", "0", "--command", MAKE_A_TOKEN))
    assert token
    monkeypatch.setenv("ALLSTOP_URL", web.url)
    monkeypatch.setenv("ALLSTOP_TOKEN", token.group())
    return web.url


def get(path: str) -> Any:
    headers = {"Authorization": f"Bearer {os.environ['ALLSTOP_TOKEN']}"}
    request = urllib.request.Request(f"{os.environ['ALLSTOP_URL']}/api/v1/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def the_run() -> Any:
    (run,) = get("runs")["items"]
    return run


@pytest.mark.kill
def test_the_first_agent_works_with_a_real_server(allstop: str, bank: Provider) -> None:
    run_agent(bank)
    assert [bank.ledger.sends(key) for key in ("charge:1042", "charge:1043")] == [1, 1]
    assert (the_run()["key"], the_run()["outcome"]) == ("invoices-0142", "completed")
    effects = get(f"runs/{the_run()['id']}/effects")["items"]
    assert [effect["settlement"] for effect in effects] == ["CONFIRMED", "CONFIRMED"]


@pytest.mark.kill
def test_a_stop_of_the_first_agent_lists_its_charge_in_flight_and_no_other_is_made(
    allstop: str, bank: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    bank.fault("hold_after", key="charge:1042")
    agent = threading.Thread(target=run_agent, args=(bank,))
    agent.start()
    bank.ledger.wait_for("applied", "charge:1042")
    with Client() as client:
        stop = client.request_stop(run_key="invoices-0142", reason="cost")
    bank.release()
    agent.join(20)
    assert not agent.is_alive()
    assert [listed["effect_key"] for listed in stop["in_flight"]] == ["charge:1042"]
    assert bank.ledger.sends("charge:1043") == 0
    assert capsys.readouterr().out.startswith("Ended at a safe point:")
    until = time.monotonic() + 20
    while the_run()["status"] != "CANCELLED" and time.monotonic() < until:
        time.sleep(0.1)
    assert the_run()["outcome"] == "partially completed"
