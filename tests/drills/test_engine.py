"""The engine says passed only of what occurred and was checked; its provider and its network count."""

from __future__ import annotations

import argparse
import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.drills import __main__ as command
from dashboard.drills.api import Api
from dashboard.drills.checks import Findings, NotMade
from dashboard.drills.engine import FAILURE, Bench, Drill, Result, carry_out
from dashboard.drills.instance import Instance, NoInstance, Private
from dashboard.drills.lab import Lab
from dashboard.drills.provider import Provider
from dashboard.drills.proxy import Proxy

NOWHERE = Instance("http://127.0.0.1:1", "als_none")


def drill_of(work: Callable[[Lab], None]) -> Drill:
    return Drill("a-drill", "A drill", "What it shows.", FAILURE, work)


def tried(folder: Path, work: Callable[[Lab], None]) -> Result:
    return carry_out(drill_of(work), Bench(NOWHERE, folder))


def good(lab: Lab) -> None:
    lab.situation("In flight", 1, 1)
    lab.safety("Sends", 0, 0)
    lab.evidence("Lines", 1, 1)


def unsafe(lab: Lab) -> None:
    good(lab)
    lab.safety("Sends", 0, 1)


def unread(lab: Lab) -> None:
    good(lab)
    lab.evidence("Lines", 1, 0)


def unoccurred(lab: Lab) -> None:
    unsafe(lab)
    lab.situation("In flight", 1, 0)


def not_made(lab: Lab) -> None:
    raise NotMade("No browser was found.")


def broken(lab: Lab) -> None:
    good(lab)
    raise OSError("the wire is gone")


def broken_and_unsafe(lab: Lab) -> None:
    unsafe(lab)
    raise OSError("the wire is gone")


def unchecked(lab: Lab) -> None:
    lab.situation("In flight", 1, 1)


# By hand, from the contract: what did not occur proves nothing; what occurred and was unsafe has failed.
TABLE: list[tuple[Callable[[Lab], None], str, str]] = [
    (good, "passed", ""),
    (unsafe, "failed", "Sends: expected 0, observed 1."),
    (unread, "failed", "Lines: expected 1, observed 0."),
    (unoccurred, "inconclusive", "In flight: expected 1, observed 0."),
    (
        not_made,
        "inconclusive",
        "No browser was found.",
    ),
    (broken, "inconclusive", "The drill broke off with OSError: the wire is gone"),
    (broken_and_unsafe, "failed", "Sends: expected 0, observed 1."),
    (unchecked, "inconclusive", "It broke off before everything was checked."),
]


@pytest.mark.parametrize(("work", "result", "why"), TABLE)
def test_a_result_says_no_more_than_its_checks(
    tmp_path: Path, work: Callable[[Lab], None], result: str, why: str
) -> None:
    told = tried(tmp_path, work).told()
    assert (told["result"], told["passed"], told["why"]) == (result, result == "passed", why)
    assert {"name", "situation", "safety", "evidence", "report"} <= set(told)
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("works", "code"),
    [([good, good], 0), ([good, not_made], 2), ([not_made, unsafe, good], 1), ([], 0)],
)
def test_the_exit_code_is_the_worst_that_was_shown(
    tmp_path: Path, works: list[Callable[[Lab], None]], code: int
) -> None:
    assert command.code_of([tried(tmp_path, work) for work in works]) == code


def test_names_that_no_drill_has_are_told() -> None:
    with pytest.raises(SystemExit, match="no drill called no-such-drill"):
        command.chosen(["no-such-drill"])
    assert [drill.name for drill in command.chosen(["store-unavailable"])] == ["store-unavailable"]


def test_an_address_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    options = argparse.Namespace(data=None, url="http://127.0.0.1:8000/")
    monkeypatch.delenv("ALLSTOP_TOKEN", raising=False)
    with pytest.raises(SystemExit, match="Set ALLSTOP_TOKEN"):
        command.instance_of(options)
    monkeypatch.setenv("ALLSTOP_TOKEN", "als_some")
    with command.instance_of(options) as instance:
        assert instance == Instance("http://127.0.0.1:8000", "als_some")


def test_where_no_private_instance_starts_its_drills_are_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Private) -> Instance:
        raise NoInstance("The private instance did not start.")

    monkeypatch.setattr(Private, "ready", fails)
    result = carry_out(drill_of(good), Bench(None, tmp_path))
    assert (result.result, result.findings.why) == ("inconclusive", "The private instance did not start.")
    assert result.told()["instance"] == "private"


def post(url: str, key: str) -> int:
    asked = urllib.request.Request(f"{url}/charges", b"", {"Idempotency-Key": key}, method="POST")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return int(answer.status)


def test_the_ledger_counts_before_it_deduplicates() -> None:
    with Provider() as provider:
        assert (post(provider.url, "once"), post(provider.url, "once")) == (201, 200)
        assert (provider.sends("once"), provider.applied("once")) == (2, 1)
        provider.fault("double", "twice")
        post(provider.url, "twice")
        assert (provider.sends("twice"), provider.applied("twice")) == (1, 2)


def test_a_cut_answer_leaves_what_was_applied() -> None:
    with Provider() as provider:
        provider.fault("drop_after", "lost")
        with pytest.raises(OSError, match=r"closed|reset"):
            post(provider.url, "lost")
        assert provider.ledger.wait("cut", "lost")
        assert (provider.sends("lost"), provider.applied("lost")) == (1, 1)


def test_the_network_holds_what_the_server_has_answered_already() -> None:
    with Provider() as provider, Proxy(provider.url) as proxy:
        held = proxy.rule("hold", "POST", "/charges$")
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(post(proxy.url, "held")))
        asking.start()
        assert held.come.wait(10)
        assert (provider.applied("held"), held.data["key"], answers) == (1, "held", [])
        assert held.release()
        asking.join(10)
        assert answers == [201]
        proxy.rule("cut", "POST", "/charges$")
        with pytest.raises(OSError, match=r"closed|reset"):
            post(proxy.url, "cut")
        assert (provider.applied("cut"), proxy.saw("POST", "/charges$", 201)) == (1, 2)


def test_a_server_that_is_away_is_no_answer() -> None:
    api = Api(NOWHERE.url, NOWHERE.token)
    assert api.ask("GET", "runs").status == 0
    assert api.ready() == 0
    api.close()


def test_the_words_for_people_show_expected_beside_observed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command.Words(argparse.Namespace(json=False, ticks=False))
    words.end(tried(tmp_path, unsafe))
    said = capsys.readouterr().out
    assert "NOT safety: Sends: expected 0, observed 1" in said
    assert "ok  situation: In flight: 1" in said
    assert "Failed here" in said
    assert Findings().result == "inconclusive"
