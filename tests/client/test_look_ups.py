"""An agent answers look-ups of its own kind: once, in a loop, awaited, and as the documents show it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest
from allstop import Client, GateUnavailable, LookUp, MustWait, NotApplied, Run, Seen
from allstop.aio import AsyncClient

from tests.client.site import KIND, Site, until
from tests.client.stub import Stub

DOCUMENT = Path(__file__).parents[2] / "docs" / "connecting-an-agent.md"
BANK = "https://bank.example"


def the_snippet() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if "answer_look_ups" in block]
    return str(found)


def lost(site: Site, run: Run, key: str, kind: str = "card.charge", *, booked: bool = True) -> None:
    """An effect whose holder can't say what became of it."""

    def charge() -> None:
        if booked:
            site.charge(key)
        raise TimeoutError

    with pytest.raises((TimeoutError, MustWait, NotApplied)):
        run.effect(key=key, kind=kind, none_because="a test").send(charge)


def test_an_agent_answers_what_is_due(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's block; then a function that fails, in a loop; then an awaited one."""
    monkeypatch.setenv("ALLSTOP_URL", site.web.url)
    monkeypatch.setenv("ALLSTOP_TOKEN", site.token)
    own = {**KIND, "lookup": {"poll": True}, "settle_window_s": 0}
    with site.client() as client:
        for name in ("card.charge", "card.broken", "card.awaited"):
            client.put_kind(name, own)
        run = client.run("looked-up")
        with pytest.raises(RuntimeError, match="enough"), run:  # noqa: PT012 - it is the end of the block
            lost(site, run, "own:1")
            lost(site, run, "own:2", booked=False)
            lost(site, run, "own:3", "card.broken")
            lost(site, run, "own:4", "card.awaited")
            raise RuntimeError("enough")
        source = the_snippet()
        assert BANK in source

        def snippet() -> bool:
            exec(compile(source.replace(BANK, site.bank.url), "document", "exec"), {})  # noqa: S102
            return {site.settlement(run, "own:1"), site.settlement(run, "own:2")} == {
                "CONFIRMED",
                "NOT_APPLIED",
            }

        until(snippet)
        assert broken(client) >= 1
        assert site.settlement(run, "own:3") == "UNKNOWN"
        assert asyncio.run(awaited(site)) == 1
        assert site.settlement(run, "own:4") == "CONFIRMED"
        assert client.answer_look_ups({"card.charge": lambda one: Seen.absent()}) == 0


def broken(client: Client) -> int:
    """A loop whose function fails, until it was asked once."""
    asked = threading.Event()

    def look(one: LookUp) -> Seen:
        asked.set()
        raise ValueError(one.key)

    return client.answer_look_ups({"card.broken": look}, every_s=0.05, until=asked)


async def awaited(site: Site) -> int:
    """The same awaited; one function of each sort will do."""
    seen = asyncio.Event()

    async def look(one: LookUp) -> Seen:
        seen.set()
        return Seen.present(count=1)

    async with AsyncClient(site.web.url, site.token, worker="w-1") as client:
        return await client.answer_look_ups({"card.awaited": look}, every_s=0.05, until=seen)


# --- without a server -------------------------------------------------------------------------------------


def test_once_says_that_the_server_is_away_and_a_loop_waits_for_it(stub: Stub, client: Client) -> None:
    one = {"turn": "1.x", "effect_id": "eff_1", "run_id": "run_1", "key": "k", "kind": "a", "new": 1}
    due = json.dumps({"items": [one]})
    stub.say("/look-ups", 503, "{}", "GET", times=50)
    with pytest.raises(GateUnavailable):
        client.answer_look_ups({"a": lambda one: Seen.absent()})
    stub.orders.clear()
    stub.say("/look-ups", 403, "{}", "GET")
    stub.say("/look-ups$", 200, due, "GET")
    stub.say("/effects/eff_1/look-ups", 409, '{"type": "/problems/no-turn"}')
    stub.say("/look-ups$", 200, due, "GET")
    stub.say("/effects/eff_1/look-ups", 200, json.dumps({"id": "eff_1"}))
    end, asked = threading.Event(), list[str]()

    def look(one: LookUp) -> Seen:
        asked.append(one.key)
        if len(asked) == 2:
            end.set()
        return Seen.partial(["row 1"], count=0)

    assert (
        client.answer_look_ups({"a": look}, every_s=0.01, until=end) == 1
    )  # of two, one was not ours any more
    told = stub.seen("/effects/eff_1/look-ups")
    assert [call.body for call in told] == [
        {"turn": "1.x", "answer": "partial", "items": ["row 1"], "count": 0},
    ] * 2
    assert len({call.key for call in told}) == 2


def test_what_is_seen_of_a_compensation_is_told_to_it(stub: Stub, client: Client) -> None:
    one = {"turn": "1.x", "effect_id": "cmp_1", "run_id": "run_1", "key": "k", "kind": "a"}
    stub.say("/look-ups$", 200, json.dumps({"items": [{**one, "matter": "compensation"}]}), "GET")
    stub.say("/compensations/cmp_1/look-ups", 200, json.dumps({"id": "cmp_1"}))
    assert client.answer_look_ups({"a": lambda one: Seen.present()}) == 1
    assert len(stub.seen("/compensations/cmp_1/look-ups")) == 1


def test_a_loop_for_no_kind_is_a_mistake(client: Client) -> None:
    with pytest.raises(TypeError):
        client.answer_look_ups({})
