"""Beginning, ending, stopping, and what a retry wrapper can't do about it."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from allstop import (
    Client,
    GateUnavailable,
    NotQuiet,
    Outcome,
    PermitExpired,
    Refused,
    RunEnded,
    StaleVersion,
    StepEnded,
    StopNotRecorded,
    StopRequested,
)

from tests.client.stub import Stub, StubServer
from tests.client.world import Charge, charging
from tests.provider import refused_address


def persistent(call: Callable[[], Any], tries: int = 3) -> Any:
    """The retry wrapper that agents put around their tools."""
    for _ in range(tries):
        try:
            return call()
        except Exception as error:
            last = error
    return f"the tool failed {tries} times: {last}"


def test_the_run_says_what_it_is_and_what_it_cannot_gate(
    client: Client, stub: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    with client.run(
        "r", name="Invoices", session="nightly", agent="invoices", runtime="plain",
        labels={"team": "finance"}, ungateable=["web_search", "code_interpreter"],
    ):  # fmt: skip
        pass
    assert stub.runs["r"] == {
        "key": "r",
        "name": "Invoices",
        "session": "nightly",
        "agent": "invoices",
        "runtime": "plain",
        "labels": {"team": "finance"},
        "ungateable": ["web_search", "code_interpreter"],
        "worker": "w-1",
    }
    assert capsys.readouterr().err.count("web_search, code_interpreter") == 1


def test_an_exception_fails_the_run_without_telling_its_text(client: Client, stub: Stub) -> None:
    with pytest.raises(ValueError, match="secret"), client.run("r"):
        raise ValueError("secret")
    assert stub.status == "FAILED"
    assert stub.seen("/fail$")[0].body == {"seen_version": 1, "summary": "The agent ended with ValueError."}


def test_a_stop_is_not_swallowed_by_a_retry_wrapper(client: Client, stub: Stub) -> None:
    charge = Charge()
    done: list[str] = []

    def work() -> None:
        with client.run("r") as run:
            stub.stop()
            persistent(lambda: charging(run).send(charge, "charge:7"))
            done.append("the agent went on")

    with pytest.raises(StopRequested):
        work()
    assert (charge.calls, done) == ([], [])
    assert len(stub.seen("/effects$")) == 1


def test_the_same_wrapper_does_swallow_an_ordinary_exception() -> None:
    """The control: had the stop been an Exception, the model would have been told to try again."""

    class Ordinary(Exception):
        pass

    def refuse() -> None:
        raise Ordinary

    assert "failed 3 times" in persistent(refuse)


def test_a_gate_that_is_down_is_not_swallowed_either(client: Client, stub: Stub) -> None:
    stub.say("/effects$", 503, "", times=500)
    charge = Charge()
    with pytest.raises(GateUnavailable), client.run("r") as run:
        persistent(lambda: charging(run).send(charge, "charge:7"))
    assert charge.calls == []


def test_what_may_be_swallowed_is_refused_again_until_the_gate_says_yes(client: Client, stub: Stub) -> None:
    stub.ttl_s = 0.2
    stub.slow("/effects$", 0.25)
    charge = Charge()
    with client.run("r") as run:
        persistent(lambda: charging(run).send(charge, "charge:7"))
    assert charge.calls == ["charge:7"]
    assert issubclass(PermitExpired, Exception)
    assert not issubclass(Refused, Exception)


def test_even_a_caught_stop_is_refused_at_the_next_effect(client: Client, stub: Stub) -> None:
    charge = Charge()
    with client.run("r") as run:
        stub.stop()
        for key in ("a", "b", "c"):
            with pytest.raises(StopRequested):
                charging(run, key).send(charge, key)
        with pytest.raises(StopRequested):
            run.complete()
        run._ended = True
    assert charge.calls == []


def test_a_sibling_in_a_pool_is_refused_too(client: Client, stub: Stub) -> None:
    charge = Charge()
    with pytest.raises(StopRequested), client.run("r") as run, ThreadPoolExecutor(4) as pool:
        stub.stop()
        asked = [pool.submit(charging(run, str(n)).send, charge, str(n)) for n in range(4)]
        assert all(isinstance(a.exception(), StopRequested) for a in asked)
        asked[0].result()
    assert charge.calls == []


def test_a_refusal_carries_the_versions_the_stop_and_the_advice(client: Client, stub: Stub) -> None:
    with pytest.raises(StopRequested) as stopped, client.run("r") as run:
        stub.stop()
        charging(run).send(Charge(), "k")
    assert stopped.value.current_version == 2
    assert stopped.value.stop_id == "stp_1"
    assert stopped.value.run_status == "CANCELLING"
    assert stopped.value.what_to_do == "End at a safe point."
    assert stopped.value.problem["carried_version"] == 1


def test_after_a_stop_the_worker_confirms_its_version(client: Client, stub: Stub) -> None:
    with pytest.raises(StopRequested), client.run("r") as run:
        stub.stop()
        charging(run).send(Charge(), "k")
    assert [c.body["seen_version"] for c in stub.seen("/heartbeat$")] == [2]
    assert not stub.seen("/fail$") + stub.seen("/complete$")


def test_a_completion_that_lost_to_a_stop_raises_it(client: Client, stub: Stub) -> None:
    with pytest.raises(StopRequested), client.run("r"):
        stub.stop()
    assert stub.status == "CANCELLING"


def test_another_version_is_a_stale_version(client: Client, stub: Stub) -> None:
    with pytest.raises(StaleVersion), client.run("r") as run:
        stub.version = 2
        charging(run).send(Charge(), "k")
    assert stub.status == "ACTIVE"


def test_a_run_with_a_waiting_stop_does_no_work(client: Client, stub: Stub) -> None:
    stub.stop()
    begun: list[str] = []
    with pytest.raises(StopRequested, match="Stop 7"), client.run("r"):
        begun.append("work")
    assert begun == []
    assert stub.seen("/heartbeat$")[0].body["seen_version"] == 2


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_key_of_a_run_that_ended_needs_a_new_key(client: Client, stub: Stub, status: str) -> None:
    stub.status = status
    with pytest.raises(RunEnded, match="new key"), client.run("r"):
        pass


def test_a_second_process_attaches_to_the_same_run(client: Client, stub: Stub) -> None:
    with client.run("r") as first, client.run("r") as second:
        assert first.id == second.id
        second._ended = True


def test_no_server_no_run() -> None:
    with (
        refused_address() as url,
        Client(url, "als_x", give_up_s=0.3) as client,
        pytest.raises(GateUnavailable, match="ConnectError"),
        client.run("r"),
    ):
        pass


def test_the_address_and_the_token_come_from_the_environment(
    server: StubServer, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLSTOP_URL", server.url + "/")
    monkeypatch.setenv("ALLSTOP_TOKEN", "als_y")
    with Client() as client, client.run("r"):
        pass
    monkeypatch.delenv("ALLSTOP_TOKEN")
    with pytest.raises(ValueError, match="ALLSTOP_TOKEN"):
        Client()


def test_a_model_turn_has_a_permit_a_look_and_a_usage(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        answer = run.model_turn(lambda words: Outcome("applied", usage={"input_tokens": len(words)}), "abc")
    assert answer.name == "applied"
    assert stub.seen("/permits$")[0].body["boundary"] == "model"
    assert stub.seen("/permits$")[0].body["class"] == "model_turn"
    assert len(stub.seen("/permits/", "GET")) == 1
    assert stub.seen("/report$")[0].body["usage"] == {"input_tokens": 3}


def test_what_a_model_said_is_not_stored_unasked(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        assert run.model_turn(lambda: "the invoice text") == "the invoice text"
    assert "result" not in stub.seen("/report$")[0].body


def test_a_model_turn_after_the_stop_is_refused(client: Client, stub: Stub) -> None:
    asked: list[str] = []
    with pytest.raises(StopRequested), client.run("r") as run:
        stub.stop()
        run.model_turn(asked.append, "prompt")
    assert asked == []


def test_a_step_holds_its_effects_and_ends_with_what_they_add_up_to(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        with run.step("inv-7", "Invoice 7") as step:
            step.effect(key="a", kind="x", none_because="t").send(Charge(), "a")
            step.effect(key="b", kind="x", none_because="t").send(Charge(), "b")
        with run.step("inv-8") as step, pytest.raises(TimeoutError):
            step.effect(key="c", kind="x", none_because="t").send(Charge(raises=TimeoutError()), "c")
    assert stub.seen("/effects$")[0].body["step"] == {
        "id": "ste_inv-7",
        "claim_token": stub.steps["inv-7"]["claim_token"],
    }
    assert [s["status"] for s in stub.steps.values()] == ["SUCCEEDED", "UNKNOWN"]


def test_a_model_turn_ends_the_step_that_was_registered_for_it(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        run.model_turn(lambda: None)
        with pytest.raises(TimeoutError):
            run.read(Charge(raises=TimeoutError()), "k")
    assert [s["status"] for s in stub.steps.values()] == ["SUCCEEDED", "UNKNOWN"]


def test_a_model_turn_that_was_not_begun_gives_its_step_back(client: Client, stub: Stub) -> None:
    stub.ttl_s = 0.0
    with client.run("r") as run, pytest.raises(PermitExpired):
        run.model_turn(lambda: None)
    assert [s["status"] for s in stub.steps.values()] == ["PENDING"]


def test_a_step_may_hold_a_model_turn_and_an_effect(client: Client, stub: Stub) -> None:
    with client.run("r") as run, run.step("s") as step:
        step.model_turn(lambda: None)
        step.effect(key="a", kind="x", none_because="t").send(Charge(), "a")
    assert [s["status"] for s in stub.steps.values()] == ["SUCCEEDED"]
    assert len(stub.seen("/finish$")) == 1


def test_a_step_that_asked_for_nothing_is_given_back(client: Client, stub: Stub) -> None:
    with client.run("r") as run, run.step("s"):
        pass
    assert stub.steps["s"]["status"] == "PENDING"


def test_a_step_that_raised_before_any_call_is_released(client: Client, stub: Stub) -> None:
    with pytest.raises(ValueError, match="bad"), client.run("r") as run, run.step("s"):
        raise ValueError("bad order")
    assert stub.steps["s"]["status"] == "PENDING"


def test_a_step_that_somebody_holds_or_that_has_ended_is_not_free(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        with run.step("s") as step, pytest.raises(StepEnded, match="CLAIMED"), run.step("s"):
            pass
        with run.step("s") as step:
            step.read(lambda: None)
        with pytest.raises(StepEnded, match="SUCCEEDED"), run.step("s"):
            pass


def test_a_run_is_not_complete_while_a_step_is_held(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        with run.step("s"), pytest.raises(NotQuiet):
            run.complete()
        run.complete("Two invoices.")
    assert stub.seen("/complete$")[-1].body["summary"] == "Two invoices."


def test_a_stop_can_be_asked_for_and_one_that_is_not_confirmed_says_so(client: Client, stub: Stub) -> None:
    assert client.request_stop(run_id="run_r", reason="wrong amounts", key="k1")["reason"] == "wrong amounts"
    stub.say("/stops$", 503, '{"type": "/problems/not-recorded"}', times=500)
    with pytest.raises(StopNotRecorded, match="NOT confirmed") as lost:
        client.request_stop(run_id="run_r", key="k2")
    assert lost.value.key == "k2"
    assert len({c.key for c in stub.seen("/stops$")[1:]}) == 1


def test_calls_are_given_up_in_bounded_time(client: Client, stub: Stub) -> None:
    stub.say("/runs$", 503, "", times=500)
    begun = time.monotonic()
    with pytest.raises(GateUnavailable), client.run("r"):
        pass
    assert time.monotonic() - begun < 5
    assert 2 <= len(stub.seen("/runs$")) < 20


@pytest.mark.parametrize(("status", "held"), [("PAUSING", True), ("PAUSED", True), ("CANCELLING", False)])
def test_a_held_run_raises_as_any_stop_does_and_says_that_it_may_be_resumed(
    stub: Stub, client: Client, status: str, held: bool
) -> None:
    stub.stop(status)
    with pytest.raises(StopRequested) as caught, client.run("r"):
        pytest.fail("a held run starts nothing")
    assert caught.value.may_resume is held
