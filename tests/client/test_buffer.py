"""What happened while the server was away is told later, in order, under its first key; nothing else is."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from allstop import Client, GateUnavailable, ReportNotDelivered, StepEnded
from allstop.errors import from_problem
from allstop.facts import Fact, is_final
from allstop.outbox import find_folder

from tests.client.stub import Stub, StubServer
from tests.client.world import Charge, charging

QUICK: dict[str, Any] = {"timeout_s": 1, "give_up_s": 0.15, "report_for_s": 0.1, "heartbeat_s": 60}


def until(true: Callable[[], object], within_s: float = 10) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def another(server: StubServer, buffer: Path, token: str = "als_x") -> Client:  # noqa: S107
    """The client of a later process."""
    return Client(server.url, token, worker="w-2", buffer=buffer, **QUICK)


def left(buffer: Path) -> list[Path]:
    return sorted(buffer.glob("*/*.facts"))


def aside(buffer: Path) -> list[Any]:
    return [
        json.loads(line) for path in buffer.glob("*/rejected.jsonl") for line in path.read_text().splitlines()
    ]


def a_lost_report(server: StubServer, stub: Stub, buffer: Path) -> ReportNotDelivered:
    """A client that acted, could not tell it, and is gone."""
    stub.say("/report$", 503, "", times=500)
    with pytest.raises(ReportNotDelivered) as lost, another(server, buffer) as client, client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    stub.orders.clear()
    return lost.value


def test_a_report_that_was_not_heard_is_told_by_the_next_process_before_it_asks_anything(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    lost = a_lost_report(server, stub, buffer)
    assert lost.kept
    assert "kept on disk" in str(lost)
    assert len(left(buffer)) == 1
    stub.calls.clear()
    with another(server, buffer) as client, client.run("r") as run:
        again = charging(run)
        assert again.send(Charge(), "charge:7") == {"id": "ch_1"}
        assert again.skipped
    assert [c.path.rpartition("/")[2] for c in stub.calls[:2]] == ["report", "runs"]
    assert [p["reports"] for p in stub.permits.values()] == [1]
    assert left(buffer) == []


def test_it_is_told_under_its_first_key_as_of_its_own_time(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    a_lost_report(server, stub, buffer)
    with another(server, buffer) as client, client.run("r"):
        pass
    assert len({(c.key, c.body["reported_at"]) for c in stub.seen("/report$")}) == 1


def test_it_is_told_in_the_background_as_soon_as_the_server_is_back(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    stub.say("/report$", 503, "", times=500)
    with another(server, buffer) as client:
        with pytest.raises(ReportNotDelivered), client.run("r") as run:
            charging(run).send(Charge(), "charge:7")
        assert stub.effects["charge:7"]["settlement"] == "DISPATCHED"
        stub.orders.clear()
        until(lambda: stub.effects["charge:7"]["settlement"] == "CONFIRMED")
        until(lambda: not client._outbox.waiting)
    assert left(buffer) == []


def test_a_step_is_finished_after_its_report_also_by_the_next_process(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    stub.say("/report$", 503, "", times=500)
    with (
        pytest.raises(ReportNotDelivered),
        another(server, buffer) as client,
        client.run("r") as run,
        run.step("s") as step,
    ):
        step.effect(key="k", kind="x", none_because="t").send(Charge(), "k")
    assert not stub.seen("/finish$")
    stub.orders.clear()
    with another(server, buffer) as client, client.run("r") as run, pytest.raises(StepEnded), run.step("s"):
        pass
    told = [c.path.rpartition("/")[2] for c in stub.calls if c.path.endswith(("/report", "/finish"))]
    assert told[-2:] == ["report", "finish"]
    assert stub.steps["s"]["status"] == "PARTIAL"


@pytest.mark.parametrize("status", [401, 429, 507])
def test_an_answer_that_decides_nothing_keeps_it(
    server: StubServer, stub: Stub, buffer: Path, status: int
) -> None:
    a_lost_report(server, stub, buffer)
    stub.say("/report$", status, "{}", times=500)
    with another(server, buffer) as client, client.run("r"):
        pass
    assert (len(left(buffer)), aside(buffer)) == (1, [])
    stub.orders.clear()
    stub.status = "ACTIVE"
    with another(server, buffer) as client, client.run("r"):
        pass
    assert stub.effects["charge:7"]["settlement"] == "CONFIRMED"


@pytest.mark.parametrize(
    ("status", "name", "final"),
    [
        (400, "invalid", True),
        (401, "token", False),
        (403, "token", False),
        (404, "not-found", True),
        (409, "already-reported", True),
        (409, "lost-claim", True),
        (409, "unsettled", True),
        (422, "invalid", True),
        (500, "oops", False),
        (501, "oops", False),
        (507, "oops", False),
        (520, "oops", False),
    ],
)
def test_what_a_definite_no_is(status: int, name: str, final: bool) -> None:
    fact = Fact.of("permits/p/report", {}, step="s", told_by="me")
    assert is_final(from_problem(status, {"type": f"/problems/{name}"}), fact, "me") is final
    assert is_final(from_problem(404, {}), fact, "somebody else") is False
    assert is_final(GateUnavailable("away"), fact, "me") is False
    assert is_final(KeyboardInterrupt(), fact, "me") is False


@pytest.mark.parametrize(("status", "name"), [(409, "already-reported"), (404, "not-found")])
def test_a_definite_no_puts_it_aside_with_the_reason_and_without_the_secret(
    server: StubServer, stub: Stub, buffer: Path, status: int, name: str
) -> None:
    a_lost_report(server, stub, buffer)
    stub.say("/report$", status, json.dumps({"type": f"/problems/{name}", "title": f"Because {name}"}))
    with another(server, buffer) as client, client.run("r"):
        pass
    assert left(buffer) == []
    (line,) = aside(buffer)
    assert f"Because {name}" in line["why"]
    assert line["fact"]["body"]["outcome"] == "applied"
    assert "claim_token" not in line["fact"]["body"]


def test_what_another_token_may_not_see_is_left_for_its_own(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    a_lost_report(server, stub, buffer)
    stub.say("/report$", 404, "{}", times=500)
    with another(server, buffer, token="als_other") as client, client.run("other"):
        pass
    assert (len(left(buffer)), aside(buffer)) == (1, [])


def test_a_report_too_large_for_the_server_is_told_by_its_outcome(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    a_lost_report(server, stub, buffer)
    stub.say("/report$", 413, "{}")
    with another(server, buffer) as client, client.run("r"):
        pass
    assert sorted(stub.seen("/report$")[-1].body) == ["claim_token", "outcome", "reported_at"]
    assert left(buffer) == aside(buffer) == []


def test_two_clients_at_a_time_tell_it_once(server: StubServer, stub: Stub, buffer: Path) -> None:
    a_lost_report(server, stub, buffer)
    before = len(stub.seen("/report$"))
    stub.slow("/report$", 0.3)
    with another(server, buffer) as one, another(server, buffer) as two, one.run("r"):
        two._outbox.adopt()
        assert two._outbox.waiting == 0
    assert len(stub.seen("/report$")) == before + 1


def test_nothing_but_facts_is_ever_on_the_disk(server: StubServer, stub: Stub, buffer: Path) -> None:
    """While each other call goes unanswered, and the lines of a report beside it as the control."""
    for path in ("/effects$", "/permits$", "/steps$", "/complete$", "/release$", "/heartbeat$"):
        stub.say(path, 503, "", times=500)
    with another(server, buffer) as client:
        with pytest.raises(BaseException, match="No usable answer"), client.run("r") as run:
            charging(run).send(Charge(), "charge:7")
        with pytest.raises(BaseException, match="No usable answer"), client.run("r"):
            pass
        assert left(buffer) == []
    stub.orders.clear()
    a_lost_report(server, stub, buffer)
    assert left(buffer)[0].read_text().count("permits/prm_") == 1


def test_neither_the_api_token_nor_anything_of_it_is_kept(
    server: StubServer, stub: Stub, buffer: Path
) -> None:
    a_lost_report(server, stub, buffer)
    assert "als_x" not in left(buffer)[0].read_text()


def test_switched_off_it_keeps_nothing_and_says_so(server: StubServer, stub: Stub, tmp_path: Path) -> None:
    stub.say("/report$", 503, "", times=500)
    with (
        pytest.raises(ReportNotDelivered) as lost,
        Client(server.url, "als_x", buffer=False, **QUICK) as client,
        client.run("r") as run,
    ):
        charging(run).send(Charge(), "charge:7")
    assert not lost.value.kept
    assert client._outbox.waiting == 0


class TestItsFolder:
    def test_is_by_default_the_users_state_folder_and_of_this_server(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ALLSTOP_BUFFER")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        folders = [find_folder(None, url) for url in ("http://a:1", "http://a:1/", "https://u:p@b")]
        assert folders[0] == folders[1] != folders[2]
        assert folders[0] is not None
        assert folders[0].parent == tmp_path / "allstop"
        assert folders[0].stat().st_mode & 0o777 == 0o700
        assert "p@" not in str(folders[2])

    def test_is_done_without_when_the_default_cannot_be_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("ALLSTOP_BUFFER")
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        assert find_folder(None, "http://a:1") is None
        assert "not kept on disk" in caplog.text

    def test_that_was_asked_for_must_be_usable(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="file"):
            Client("http://a:1", "als_x", buffer=tmp_path / "file")

    def test_must_be_its_users_alone(self, tmp_path: Path) -> None:
        made = find_folder(tmp_path, "http://a:1")
        assert made is not None
        made.chmod(0o777)
        with pytest.raises(OSError, match="open to others"):
            find_folder(tmp_path, "http://a:1")

    def test_may_be_switched_off_by_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALLSTOP_BUFFER", "off")
        assert find_folder(None, "http://a:1") is None


def test_a_full_disk_costs_the_copy_and_not_the_report(
    server: StubServer,
    stub: Stub,
    buffer: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with caplog.at_level(logging.WARNING), another(server, buffer) as client, client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    assert stub.effects["charge:7"]["settlement"] == "CONFIRMED"
    assert "lost if its process dies now" in caplog.text
