"""The README's first agent is a real one: it is run here against a bank and a server that speaks the wire."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.stub import Stub, StubServer
from tests.provider import Provider

ROOT = Path(__file__).resolve().parents[1]
BANK = "https://bank.example"


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
