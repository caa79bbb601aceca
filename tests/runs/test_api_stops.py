"""Stop over the API: never refused for its form, never called recorded too early, once per run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from runs import bodies
from runs.models import InFlight, Press, Run, StopRequest, Token
from runs.wishes import key_in, read_wish, what_of
from tests.wire import Wire, agent_of
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


# --- What a press comes to --------------------------------------------------------------------------------


@pytest.mark.invariant("I2")
def test_a_stop_lists_what_was_in_flight_and_bumps_the_version_once(agent: Wire) -> None:
    run = agent.run()
    permit = agent.permitted(run)["permit"]
    said = agent.stop(run, {"reason": "wrong input", "note": "Wrong file.\nAsk Bob."})
    assert said.status == 201
    assert (said.data["created"], said.data["joined"], said.data["already_finished"]) == (True, False, False)
    assert (said.data["version_before"], said.data["version_after"]) == (1, 2)
    assert said.data["note"] == "Wrong file.\nAsk Bob."
    (listed,) = said.data["in_flight"]
    assert (listed["permit_id"], listed["state_then"], listed["state_now"]) == (permit["id"], "OPEN", "OPEN")
    assert InFlight.objects.count() == 1
    assert said.data["sentence"] == "Stop #1 is recorded. New work is refused from version 2."
    assert agent.look(permit).data["look"] == "shut"


def test_a_second_press_joins_and_both_are_kept(agent: Wire) -> None:
    run = agent.run()
    first, second = agent.stop(run), agent.stop(run)
    assert (first.status, second.status) == (201, 200)
    assert second.data["id"] == first.data["id"]
    assert (second.data["created"], second.data["joined"], second.data["presses"]) == (False, True, 2)
    assert "Already stopping since" in second.data["sentence"]
    assert Run.objects.get().cancel_version == 2


@pytest.mark.invariant("I4")
def test_the_same_key_is_one_press_with_the_same_answer(agent: Wire) -> None:
    run = agent.run()
    first, again = agent.stop(run, key="abc"), agent.stop(run, {"mode": "pause"}, key='"abc"')
    assert (first.status, again.status) == (201, 201)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.data["id"] == first.data["id"]
    assert Press.objects.count() == 1


@pytest.mark.invariant("I4")
def test_the_same_key_with_a_mode_that_the_stop_does_not_cover_is_a_stop_of_its_own(agent: Wire) -> None:
    run = agent.run()
    first, more = agent.stop(run, key="abc"), agent.stop(run, {"mode": "abandon"}, key="abc")
    assert (more.status, more.replayed, more.data["mode"]) == (201, False, "abandon")
    assert more.data["id"] != first.data["id"]
    assert agent.stop(run, {"mode": "abandon"}, key="abc").replayed


def test_a_stop_of_a_finished_run_is_recorded_and_bumps_nothing(agent: Wire) -> None:
    run = agent.run()
    assert agent.post(f"/runs/{run['id']}/complete", {"seen_version": 1}).status == 200
    said, again = agent.stop(run), agent.stop(run)
    assert (said.status, again.status) == (200, 200)
    assert (said.data["already_finished"], again.data["already_finished"]) == (True, True)
    assert (said.data["created"], again.data["joined"]) == (True, True)
    assert "had already finished" in said.data["sentence"]
    assert Run.objects.get().cancel_version == 1


def test_a_stop_waits_for_a_run_that_is_not_registered_yet(agent: Wire) -> None:
    first = agent.post("/stops", {"run_key": "late", "note": "before it starts"})
    again = agent.post("/stops", {"run_key": "late"})
    assert (first.status, again.status) == (201, 200)
    assert (first.data["waiting"], again.data["waiting"]) == (True, True)
    assert "waits for its run" in first.data["sentence"]
    run = agent.run("late")
    assert (run["status"], run["stop"]["id"]) == ("CANCELLING", first.data["id"])
    assert agent.effect(run).problem == "stopped"
    assert agent.get(f"/stops/{first.data['id']}").data["run_id"] == run["id"]


def test_a_stop_by_key_of_a_registered_run_stops_it(agent: Wire) -> None:
    run = agent.run()
    said = agent.post("/stops", {"run_key": run["key"]})
    assert (said.status, said.data["run_id"], said.data["waiting"]) == (201, run["id"], False)


def test_stops_are_listed_newest_first_with_their_lists(agent: Wire) -> None:
    runs = [agent.run(f"run-{number}") for number in range(3)]
    for run in runs:
        agent.permitted(run)
        agent.stop(run)
    first = agent.get("/stops?limit=2").data
    rest = agent.get(f"/stops?limit=2&cursor={first['next_cursor']}").data
    listed = first["items"] + rest["items"]
    assert [stop["run_id"] for stop in listed] == [run["id"] for run in reversed(runs)]
    assert [len(stop["in_flight"]) for stop in listed] == [1, 1, 1]
    assert rest["next_cursor"] is None


# --- Nothing refuses it for its form ----------------------------------------------------------------------

ODD: dict[str, tuple[bytes, list[str]]] = {
    "nothing": (b"", []),
    "an empty object": (b"{}", []),
    "no JSON": (b"{stop!", ["body: it could not be read"]),
    "no UTF-8": (b"\xff\xfe\x00", ["body: it could not be read"]),
    "a list": (b"[1, 2]", ["body: it could not be read"]),
    "null": (b"null", ["body: it could not be read"]),
    "NaN": (b'{"deadline_s": NaN}', ["body: it could not be read"]),
    "too deep": (b"[" * 200_000, ["body: it could not be read"]),
    "too large": (b'{"note": "' + b"x" * bodies.LIMIT + b'"}', [f"body: larger than {bodies.LIMIT} bytes"]),
    "an unknown field": (b'{"colour": 1}', ["unknown field: colour"]),
    "an unknown mode": (b'{"mode": "kill"}', ["mode: recorded as pause"]),
    "a mode of another type": (b'{"mode": [1]}', ["mode: recorded as pause"]),
    "a deadline as a fraction": (b'{"deadline_s": 1.5}', ["deadline_s"]),
    "a deadline of yes": (b'{"deadline_s": true}', ["deadline_s"]),
    "a deadline before now": (b'{"deadline_s": -1}', ["deadline_s"]),
    "a deadline without end": (b'{"deadline_s": 1e9}', ["deadline_s"]),
    "a note that is no text": (b'{"note": {"a": 1}}', ["note: not a text"]),
    "a note with controls": (b'{"note": "a\\u0000b\\u001b"}', ["note"]),
    "a note without end": (b'{"note": "' + b"x" * 5000 + b'"}', ["note"]),
    "a reason without end": (b'{"reason": "' + b"x" * 5000 + b'"}', ["reason"]),
    "a moment without zone": (b'{"requested_at": "2026-01-01T00:00:00"}', ["requested_at"]),
    "a field with a hostile name": ('{"a\u202eb\\n": 1}'.encode(), ["unknown field: ab"]),
}


# What can't be understood holds the run in the mildest mode; the rest is the usual one, cancel.
UNREADABLE = {
    *("no JSON", "no UTF-8", "a list", "null", "NaN", "too deep", "too large"),
    *("an unknown field", "an unknown mode", "a mode of another type", "a field with a hostile name"),
}


@pytest.mark.parametrize("mode", ["pause", "cancel", "abandon"])
def test_a_mode_is_taken_at_its_word(agent: Wire, mode: str) -> None:
    said = agent.stop(agent.run(), {"mode": mode, "colour": 1})
    assert (said.status, said.data["mode"]) == (201, mode)


@pytest.mark.parametrize("name", ODD)
def test_a_stop_is_recorded_whatever_its_body_holds(agent: Wire, name: str) -> None:
    raw, ignored = ODD[name]
    run = agent.run()
    said = agent.stop(run, raw=raw)
    assert said.status == 201, said.text
    assert len(said.data["ignored"]) == len(ignored)
    assert all(told.startswith(part) for told, part in zip(said.data["ignored"], ignored, strict=True))
    mode = "pause" if name in UNREADABLE else "cancel"
    assert said.data["mode"] == mode
    stop, press = StopRequest.objects.get(), Press.objects.get()
    assert (stop.mode, press.ignored) == (mode, said.data["ignored"])
    assert Run.objects.get().status == ("PAUSING" if mode == "pause" else "CANCELLING")


@pytest.mark.parametrize("key", ["x" * 256, "with space", "tab\tkey", '""', "é"])
def test_an_odd_key_is_left_out_and_named(agent: Wire, key: str) -> None:
    said = agent.stop(agent.run(), key=key)
    assert said.status == 201
    assert said.data["ignored"][0].startswith("Idempotency-Key")


def test_a_stop_in_the_words_of_a_form_is_read() -> None:
    wish = read_wish(
        b"reason=cost&note=Too+much&deadline_s=300",
        {"Content-Type": "application/x-www-form-urlencoded", "Idempotency-Key": "k"},
    )
    assert (wish.reason, wish.note, wish.deadline_s, wish.key) == ("cost", "Too much", 300, "k")
    assert wish.ignored == []


def test_every_readable_word_of_a_press_is_kept() -> None:
    told = {"mode": "cancel", "reason": "cost", "note": "n", "deadline_s": 5}
    wish = read_wish(json.dumps({**told, "requested_at": "2026-01-01T02:00:00+02:00"}).encode(), {})
    assert wish.ignored == []
    assert (wish.requested_mode, wish.deadline_s) == ("cancel", 5)
    assert wish.reported_at is not None
    assert wish.reported_at.isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"run_key": ""}', b'{"run_key": 7}', b'{"run_key": "a\\u0000"}']
)
def test_a_stop_that_names_no_run_says_that_it_was_not_recorded(agent: Wire, raw: bytes) -> None:
    said = agent.post("/stops", raw=raw)
    assert (said.status, said.problem) == (422, "no-run-named")
    assert "NOT recorded" in said.data["title"]
    assert key_in(what_of(raw, {}), "run_key") == ""
    assert not StopRequest.objects.exists()


# --- Who may ----------------------------------------------------------------------------------------------


def test_a_token_without_the_scope_is_told_so_and_nothing_is_recorded(world: World, agent: Wire) -> None:
    run = agent.run()
    said = agent_of(world.workspace, "runs:read", "runs:write").stop(run)
    assert (said.status, said.problem) == (403, "not-allowed")
    assert "stop:write" in said.data["detail"]
    assert not StopRequest.objects.exists()


def test_a_token_of_one_run_stops_that_run_only(world: World, agent: Wire) -> None:
    mine, other = agent.run("mine"), agent.run("other")
    bound = agent_of(world.workspace, run=Run.objects.get(pk=mine["id"]))
    assert bound.stop(other).status == 404
    assert [bound.post("/stops", {"run_key": key}).status for key in ("other", "never-seen")] == [403, 403]
    assert bound.post("/stops", {"run_key": "mine"}).status == 201
    assert bound.stop(mine).status == 200
    waiting = agent.post("/stops", {"run_key": "later"}).data
    assert bound.get(f"/stops/{waiting['id']}").status == 404
    assert [stop["run_key"] for stop in bound.get("/stops").data["items"]] == ["mine"]


def test_a_stop_is_never_held_up_by_tokens_that_failed(agent: Wire) -> None:
    run = agent.run()
    stranger = Wire("als_00000000_" + "0" * 64 + "_00000000")
    for _ in range(40):
        stranger.get("/runs")
    assert stranger.get("/runs").status == 429
    assert stranger.stop(run).status == 401
    assert agent.stop(run).status == 201


def test_the_use_of_a_token_is_noted_after_its_stop(agent: Wire) -> None:
    run = agent.run()
    Token.objects.update(last_used_at=None)
    agent.stop(run)
    assert Token.objects.filter(last_used_at__isnull=False).count() == 1


# --- The store does not answer ----------------------------------------------------------------------------


@contextmanager
def store_away(from_sql: str) -> Iterator[None]:
    """Every statement that holds this text fails, as if the store had gone."""

    def fail(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if from_sql in sql:
            raise OperationalError("the server closed the connection")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail):
        yield


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("I22")
@pytest.mark.parametrize("where", ["runs_token", "runs_run", "runs_stoprequest", "runs_press"])
def test_a_stop_that_was_not_recorded_says_so_loudly(agent: Wire, where: str) -> None:
    run = agent.run()
    with store_away(where):
        said = agent.stop(run, key="same")
    assert (said.status, said.problem) == (503, "not-recorded")
    assert said.data["recorded"] is False
    assert said.data["detail"] == (
        "Your stop was NOT recorded. The run may still start work. Try again with the same Idempotency-Key."
    )
    assert said.headers["Retry-After"] == "1"
    assert Run.objects.get().status == "ACTIVE"
    assert agent.stop(run, key="same").status == 201


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("I4")
def test_a_commit_whose_answer_was_lost_is_called_unknown_and_the_key_converges(
    agent: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, commit = agent.run(), BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

    def commit_and_lose(self: BaseDatabaseWrapper) -> None:
        commit(self)
        raise OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "_commit", commit_and_lose)
        said = agent.stop(run, key="same")
    assert (said.status, said.problem, said.data["recorded"]) == (503, "not-recorded", None)
    assert "We do not know whether your stop was recorded" in said.data["detail"]
    again = agent.stop(run, key="same")
    assert (again.status, again.replayed) == (201, True)
    assert StopRequest.objects.count() == Press.objects.count() == 1
    assert Run.objects.get().cancel_version == 2


@pytest.mark.django_db(transaction=True)
def test_a_stop_that_meets_a_fault_of_ours_is_not_called_recorded(
    agent: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = agent.run()
    monkeypatch.setattr("runs.stops.record", lambda *_: 1 / 0)
    assert agent.stop(run).problem == "not-recorded"
    assert Run.objects.get().status == "ACTIVE"
