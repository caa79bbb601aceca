"""declare + dispatch → look → the caller's function → report."""

# ruff: noqa: PT012 - what raises is the end of the run's own block

from __future__ import annotations

import threading

import pytest
from allstop import (
    Client,
    GateUnavailable,
    MustWait,
    NeverSent,
    NotApplied,
    Outcome,
    Queued,
    Rejected,
    ReportNotDelivered,
)

from tests.client.stub import Stub
from tests.client.world import Charge, charging


def test_two_round_trips_before_the_send_and_one_after(client: Client, stub: Stub) -> None:
    before: list[str] = []

    def charge() -> dict[str, str]:
        before.extend(f"{c.method} {c.path.split('/')[1]}" for c in stub.calls)
        return {"id": "ch_1"}

    with client.run("r") as run:
        stub.calls.clear()
        assert charging(run).send(charge) == {"id": "ch_1"}
        assert before == ["POST runs", "GET permits"]
        assert [c.path.rpartition("/")[2] for c in stub.calls[2:]] == ["report"]
    assert stub.status == "COMPLETED"


def test_the_intent_carries_key_bytes_plan_version_and_its_step(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        run.effect(
            key="charge:7", kind="bank.charge", target="Nordhaven", title="Charge €120", body='{"a":1e2}',
            compensation="bank.refund", amount="120.00 EUR",
        ).send(Charge(), "charge:7")  # fmt: skip
    sent = stub.seen("/effects$")[0].body
    assert sent == {
        "key": "charge:7",
        "kind": "bank.charge",
        "class": "external_write",
        "target": "Nordhaven",
        "title": "Charge €120",
        "body": '{"a":1e2}',
        "amount": "120.00 EUR",
        "plan": {"kind": "bank.refund"},
        "step": {"key": "charge:7", "name": "Charge €120"},
        "worker": "w-1",
        "seen_version": 1,
        "lease_s": 30,
    }


def test_a_plan_or_the_reason_for_none_is_asked_for_before_any_call(client: Client, stub: Stub) -> None:
    with client.run("r") as run:
        with pytest.raises(TypeError, match="compensation"):
            run.effect(key="k", kind="x")
        with pytest.raises(TypeError, match="compensation"):
            run.effect(key="k", kind="x", compensation="y", none_because="z")
    assert not stub.seen("/effects$")


def test_a_settled_key_returns_the_stored_result_and_does_not_call(client: Client, stub: Stub) -> None:
    charge = Charge()
    with client.run("r") as run:
        charging(run).send(charge, "charge:7")
        again = charging(run)
        assert again.send(charge, "charge:7") == {"id": "ch_1"}
        assert again.skipped
    assert charge.calls == ["charge:7"]


def test_a_key_in_doubt_must_wait_and_leaves_the_run_open(client: Client, stub: Stub) -> None:
    charge = Charge(raises=TimeoutError())
    with pytest.raises(MustWait, match="Look it up first"), client.run("r") as run:
        with pytest.raises(TimeoutError):
            charging(run).send(charge, "charge:7")
        charging(run).send(charge, "charge:7")
    assert charge.calls == ["charge:7"]
    assert stub.status == "ACTIVE"


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(TimeoutError(), "unknown"), (NotApplied("declined"), "not_applied"), (KeyboardInterrupt(), "unknown")],
)
def test_an_exception_in_the_body_is_reported_and_goes_on(
    client: Client, stub: Stub, raised: BaseException, outcome: str
) -> None:
    with pytest.raises(type(raised)), client.run("r") as run:
        charging(run).send(Charge(raises=raised), "charge:7")
    assert [c.body["outcome"] for c in stub.seen("/report$")] == [outcome]
    assert stub.status == "FAILED"


def test_an_effect_that_was_not_applied_may_be_sent_again_with_the_same_key(
    client: Client, stub: Stub
) -> None:
    with client.run("r") as run:
        with pytest.raises(NotApplied):
            charging(run).send(Charge(raises=NotApplied("declined")), "charge:7")
        charging(run).send(Charge(), "charge:7")
    assert stub.effects["charge:7"]["attempt"] == 2


def test_an_outcome_of_the_caller_is_reported_as_it_stands(client: Client, stub: Stub) -> None:
    partial = Outcome("partial", result={"sent": 3}, provider_ref="b_1", items=["x"], detail="3 of 4")
    with client.run("r") as run:
        assert charging(run).send(lambda: partial) == {"sent": 3}
    body = stub.seen("/report$")[0].body
    assert {k: body[k] for k in ("outcome", "result", "provider_ref", "items", "detail")} == {
        "outcome": "partial",
        "result": {"sent": 3},
        "provider_ref": "b_1",
        "items": ["x"],
        "detail": "3 of 4",
    }


@pytest.mark.parametrize("result", [object(), float("nan"), "x" * 70_000, "\ud800"])
def test_a_result_that_cannot_be_stored_does_not_cost_the_report(
    client: Client, stub: Stub, result: object
) -> None:
    with client.run("r") as run:
        charging(run).send(lambda: result)
    body = stub.seen("/report$")[0].body
    assert body["outcome"] == "applied"
    assert "result" not in body
    assert "Not kept" in body["detail"]


def test_a_report_that_is_rejected_is_sent_again_bare(client: Client, stub: Stub) -> None:
    stub.say("/report$", 422, '{"type": "/problems/invalid", "title": "detail is too long"}')
    with client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    assert sorted(stub.seen("/report$")[1].body) == ["claim_token", "outcome", "reported_at"]
    assert stub.effects["charge:7"]["settlement"] == "CONFIRMED"


def test_a_judge_that_fails_makes_the_outcome_unknown(client: Client, stub: Stub) -> None:
    def judge(value: object) -> Outcome:
        raise KeyError("status")

    with client.run("r") as run:
        run.effect(key="k", kind="x", none_because="t", outcome_of=judge).send(Charge(), "k")
    assert stub.seen("/report$")[0].body["outcome"] == "unknown"


def test_a_lost_answer_of_the_gate_is_asked_for_again_with_the_same_key(client: Client, stub: Stub) -> None:
    stub.lose("/effects$")
    charge = Charge()
    with client.run("r") as run:
        charging(run).send(charge, "charge:7")
    asked = stub.seen("/effects$")
    assert len(asked) == 2
    assert asked[0].key == asked[1].key is not None
    assert len(stub.permits) == 1
    assert charge.calls == ["charge:7"]


def test_when_every_answer_of_the_gate_is_lost_nothing_is_sent_and_the_next_try_finds_the_permit(
    client: Client, stub: Stub
) -> None:
    stub.lose("/effects$", times=50)
    charge = Charge()
    with client.run("r") as run:
        with pytest.raises(GateUnavailable):
            charging(run).send(charge, "charge:7")
        assert charge.calls == []
        assert stub.effects["charge:7"]["settlement"] == "DISPATCHED"
        stub.orders.clear()
        charging(run).send(charge, "charge:7")
    assert charge.calls == ["charge:7"]
    assert len(stub.permits) == 1


def test_a_lost_answer_to_the_report_is_repeated_and_counts_once(client: Client, stub: Stub) -> None:
    stub.lose("/report$", times=2)
    with client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    assert len({c.key for c in stub.seen("/report$")}) == 1
    assert len(stub.seen("/report$")) == 3
    assert [p["reports"] for p in stub.permits.values()] == [1]


def test_a_report_that_never_gets_through_is_loud_and_keeps_the_result(
    client: Client, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    stub.say("/report$", 503, "down", times=500)
    with pytest.raises(ReportNotDelivered) as lost, client.run("r") as run:
        charging(run).send(Charge(), "charge:7")
    assert lost.value.result == {"id": "ch_1"}
    assert lost.value.outcome == "applied"
    assert "was not delivered" in caplog.text
    assert stub.status == "ACTIVE"


def test_when_the_call_raised_its_exception_goes_on_with_a_note_of_the_lost_report(
    client: Client, stub: Stub
) -> None:
    stub.say("/report$", 503, "down", times=500)
    with pytest.raises(TimeoutError) as raised, client.run("r") as run:
        charging(run).send(Charge(raises=TimeoutError()), "charge:7")
    assert "could not be told" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("status", "text"),
    [(200, "<html>"), (200, "[]"), (200, '{"permit": null}'), (201, '{"permit": {"id": "prm_1"}}')],
)
def test_an_answer_that_cannot_be_read_is_no_permit(
    client: Client, stub: Stub, status: int, text: str
) -> None:
    stub.say("/effects$", status, text)
    charge = Charge()
    with client.run("r") as run, pytest.raises(GateUnavailable):
        charging(run).send(charge, "charge:7")
    assert charge.calls == []


def test_a_mistake_in_the_request_is_an_ordinary_exception(client: Client, stub: Stub) -> None:
    stub.say("/effects$", 422, '{"type": "/problems/effect-key-reused", "title": "Other bytes"}')
    with client.run("r") as run, pytest.raises(Rejected, match="Other bytes"):
        charging(run).send(Charge(), "charge:7")


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_is_a_gate_that_is_not_there(client: Client, stub: Stub, status: int) -> None:
    stub.say("/effects$", status, "{}")
    charge = Charge()
    with client.run("r") as run, pytest.raises(GateUnavailable, match="token"):
        charging(run).send(charge, "charge:7")
    assert charge.calls == []


def test_a_kind_that_allstop_sends_itself_is_queued_and_not_called(client: Client, stub: Stub) -> None:
    stub.say("/effects$", 201, '{"effect": {"key": "charge:7"}, "permit": null, "queued": true}')
    charge = Charge()
    with client.run("r") as run, pytest.raises(Queued, match="Allstop sends"):
        charging(run).send(charge, "charge:7")
    assert charge.calls == []


def test_a_block_that_forgets_send_is_an_error_and_declares_nothing(client: Client, stub: Stub) -> None:
    with client.run("r") as run, pytest.raises(NeverSent), charging(run):
        pass
    assert not stub.seen("/effects$")


def test_the_decorator_makes_key_target_and_body_from_the_arguments(client: Client, stub: Stub) -> None:
    charge = Charge()
    with client.run("r") as run:

        @run.gated(
            key=lambda number: f"charge:{number}",
            target=lambda number: f"customer {number}",
            kind="bank.charge",
            none_because="a test",
        )
        def pay(number: str) -> object:
            return charge(f"charge:{number}")

        assert [pay("7"), pay("8"), pay("7")] == [{"id": "ch_1"}] * 3
    assert charge.calls == ["charge:7", "charge:8"]
    assert stub.seen("/effects$")[1].body["target"] == "customer 8"


def test_look_and_call_happen_in_the_thread_that_sends(client: Client, stub: Stub) -> None:
    threads: list[str] = []
    with client.run("r") as run:
        tool = threading.Thread(
            target=lambda: charging(run).send(lambda: threads.append(threading.current_thread().name)),
            name="tool",
        )
        tool.start()
        tool.join()
    assert threads == ["tool"]
    assert len(stub.seen("/permits/prm", "GET")) == 1
