"""No blind retry: who may ask for another try, on what ground; what a stop or a pause makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Q
from pytest_django.fixtures import Settings

from effects import drain, ends, executor, intents, queue, reconcile, resume, retries
from effects.models import Effect, Kind
from effects.reconcile import ABSENT, Answer
from runs import gate, wake
from runs.access import Actor, NotAllowed, NotFound
from runs.guard import Refusal
from runs.models import Evidence, EvidencePayload, Permit, Run, Step
from runs.models import Refusal as RefusalRow
from tests.provider import Provider
from tests.wire import agent_of, kind_body
from tests.worlds import World, a_kind, a_step, an_effect, fresh, in_seconds, intention, kinds_of

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I6")]


@pytest.fixture
def run(world: World) -> Run:
    return world.run()


def failed(world: World, run: Run, ground: str = "looked up", **fields: Any) -> Step:
    """A step of an outside kind whose effect did not happen, known on this ground."""
    step = a_step(run, "FAILED", **fields)
    an_effect(step, "NOT_APPLIED", ground=ground, attempt=1)
    return step


def ask(world: World, step: Step, **fields: Any) -> Step | Refusal:
    given = {"worker": "w-1", "seen": step.run.cancel_version, "delay_s": 60.0}
    return retries.schedule(actor=world.agent, step=step, **{**given, **fields})


def due(step: Step) -> Any:
    """Let its time have come, and the timer fire."""
    Step.objects.filter(pk=step.pk, due_at__isnull=False).update(due_at=in_seconds(-1))
    return [queue.fall_due(pk) for pk in queue.retries_due()]


def why(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    assert answer.boundary == "retry"
    return answer.reason


# --- who may ask, on what ground --------------------------------------------------------------------------


@pytest.mark.parametrize("ground", ["looked up", "webhook", "inspected"])
def test_a_worker_may_ask_where_more_than_its_own_word_says_that_it_did_not_happen(
    world: World, run: Run, ground: str
) -> None:
    step = failed(world, run, ground)
    assert isinstance(ask(world, step), Step)
    assert fresh(step).status == "RETRY_WAIT"
    assert fresh(step).due_at is not None
    assert kinds_of(run)[-1] == "retry.scheduled"


def test_on_its_own_word_alone_a_worker_is_refused_and_a_person_decides(world: World, run: Run) -> None:
    opened = world.opened(run)
    world.report(opened, "not_applied")
    step = fresh(opened.step)
    assert (step.status, why(ask(world, step))) == ("FAILED", "unverified")
    for actor in (world.dana, world.agent):  # a viewer, and a token without that scope
        with pytest.raises(NotAllowed):
            decide(actor, step)
    with pytest.raises(NotFound):
        decide(world.mallory, step)
    assert isinstance(decide(world.alice, step), Step)
    assert fresh(step).status == "RETRY_WAIT"
    line = Evidence.objects.filter(stream=run.pk).order_by("-seq")[0]
    assert (line.kind, line.actor) == ("retry.scheduled", world.alice.id)
    assert "the bank is back" in EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body


def decide(actor: Actor, step: Step) -> Step | Refusal:
    return retries.decide(actor=actor, step=step, seen=step.run.cancel_version, reason="the bank is back")


@pytest.mark.parametrize("settlement", ["CONFIRMED", "PARTIAL", "UNKNOWN", "ACCEPTED_UNKNOWN", "DISPATCHED"])
def test_what_may_have_happened_is_tried_again_by_nobody(world: World, run: Run, settlement: str) -> None:
    step = failed(world, run)
    an_effect(step, settlement)
    assert why(ask(world, step)) == why(decide(world.alice, step)) == "blind_retry"
    assert fresh(step).status == "FAILED"
    assert why(ask(world, a_step(run, "FAILED"))) == "blind_retry", "nothing is known without an effect"


def test_without_these_conditions_a_gate_alone_would_try_again_what_may_have_happened(
    world: World, run: Run
) -> None:
    """The control: the gate knows of no effects; that is why the room above it says when."""
    step = a_step(run, "FAILED")
    an_effect(step, "UNKNOWN")
    answer = gate.retry(world.ask(run, step_id=step.pk), due_in_s=60, allowed=Q())
    assert isinstance(answer, Step)
    assert fresh(step).status == "RETRY_WAIT"


def test_a_worker_says_how_often_it_may_be_tried(world: World, run: Run) -> None:
    step = failed(world, run)
    assert why(ask(world, step, max_tries=1)) == "tries_used_up"
    assert isinstance(ask(world, step, max_tries=2), Step)


def test_a_key_that_its_provider_may_have_forgotten_is_not_tried_again_by_itself(
    world: World, run: Run
) -> None:
    kind = a_kind(world.workspace, key_retention_s=3600)
    step = a_step(run, "FAILED")
    effect = an_effect(step, "NOT_APPLIED", kind=kind, ground="looked up", attempt=1)
    Permit.objects.create(
        run=run,
        step=step,
        boundary="dispatch",
        op_class=step.op_class,
        effect_key=effect.key,
        seen_version=1,
        token="t",
        worker="w-1",
        state="REPORTED",
        opened_at=in_seconds(-3000),
        permit_until=in_seconds(-2990),
        lease_until=in_seconds(-2990),
    )
    assert why(ask(world, step, delay_s=900.0)) == "key_forgotten"
    assert isinstance(ask(world, step, delay_s=60.0), Step)


def test_asking_twice_keeps_the_first_time(world: World, run: Run) -> None:
    step = failed(world, run)
    ask(world, step, delay_s=600.0)
    first = fresh(step).due_at
    assert isinstance(ask(world, step, delay_s=1.0), Step)
    assert (fresh(step).due_at, kinds_of(run).count("retry.scheduled")) == (first, 1)


# --- what a stop, a pause and the end of the run make of it -----------------------------------------------


def test_after_a_stop_every_retry_is_refused_and_recorded_with_both_versions(world: World, run: Run) -> None:
    waiting, other = failed(world, run), failed(world, run)
    ask(world, waiting)
    world.stop(run)
    assert (fresh(waiting).status, fresh(other).status) == ("WITHHELD", "FAILED")
    assert why(ask(world, other)) == "stopped"
    assert why(decide(world.alice, other)) == "stopped"
    (fired,) = due(waiting)
    assert (why(fired), fired.carried_version, fired.current_version) == ("stopped", 1, 2)
    assert due(waiting) == [], "its timer is over"
    assert (fresh(waiting).status, kinds_of(run).count("retry.refused")) == ("WITHHELD", 2)
    assert not set(kinds_of(run)) & {"alert", "notice.sent"}


def test_a_pause_leaves_a_retry_as_it_is_and_a_resume_finds_it_due(world: World, run: Run) -> None:
    step = failed(world, run)
    ask(world, step)
    world.stop(run, mode="pause")
    assert [why(answer) for answer in due(step)] == ["stopped"]
    asked = fresh(step).due_at
    assert due(step) == [], "one refusal, however long the pause"
    drain.drain_run(run.pk)
    assert (fresh(run).status, fresh(step).status) == ("PAUSED", "RETRY_WAIT")
    assert isinstance(
        resume.resume(actor=world.alice, run_id=run.pk, reason="the bank is back"), resume.Resumed
    )
    assert fresh(step).due_at is not None
    assert asked is not None
    assert [type(answer) for answer in due(step)] == [Step]
    assert (fresh(step).status, fresh(step).due_at) == ("PENDING", None)
    assert RefusalRow.objects.get(run=run).count == 1


def test_a_run_that_ended_by_its_own_word_withholds_the_retry_and_its_timer_is_refused(
    world: World, run: Run
) -> None:
    step = failed(world, run)
    ask(world, step)
    ends.complete(actor=world.agent, run_id=run.pk, seen=1)
    assert (fresh(run).status, fresh(step).status) == ("COMPLETED", "WITHHELD")
    assert [why(answer) for answer in due(step)] == ["stopped"]


def test_a_timer_that_fires_five_times_moves_its_step_once(world: World, run: Run) -> None:
    step = failed(world, run)
    ask(world, step)
    Step.objects.filter(pk=step.pk).update(due_at=in_seconds(-1))
    answers = [queue.fall_due(step.pk) for _ in range(5)]
    assert [type(answer) for answer in answers].count(Step) == 1
    assert (fresh(step).status, kinds_of(run).count("retry.due")) == ("PENDING", 1)
    assert not RefusalRow.objects.exists()


def test_a_worker_that_asks_before_it_is_due_is_told_so(world: World, run: Run) -> None:
    opened = world.opened(run)
    world.report(opened, "not_applied")
    decide(world.alice, fresh(opened.step))
    assert world.refused(run).reason == "not_due"
    due(opened.step)
    again = world.opened(run)
    assert (again.step.pk, again.permit.effect_key) == (opened.step.pk, opened.permit.effect_key)


# --- our executor -----------------------------------------------------------------------------------------


@pytest.fixture
def bank(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr(wake, "run_soon", lambda *args: None)
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


def queued(world: World, run: Run, bank: Provider, **kind: Any) -> Effect:
    sent = {"url": f"{bank.url}/charges"}
    a_kind(world.workspace, provider="http", send=sent, **{"retry_after_s": [60], **kind})
    effect = intents.declare(world.ask(run, step_key="pay"), intention())
    assert isinstance(effect, Effect)
    return effect


def send(effect: Effect) -> str:
    return executor.execute(effect.pk)


@pytest.mark.django_db(transaction=True)
def test_our_executor_tries_again_when_the_kind_says_so_and_no_more_often(
    world: World, run: Run, bank: Provider
) -> None:
    effect = queued(world, run, bank)
    bank.fault("answer", method="POST", status=402, times=2)
    assert send(effect) == "not_applied"
    assert (fresh(effect.step).status, fresh(effect.step).claim_version) == ("RETRY_WAIT", 1)
    due(effect.step)
    assert send(effect) == "not_applied"
    assert (fresh(effect.step).status, fresh(effect).attempt) == ("FAILED", 2)
    assert kinds_of(run).count("retry.scheduled") == 1
    assert {line["key"] for line in bank.ledger.lines("request")} == {effect.key}


@pytest.mark.django_db(transaction=True)
def test_what_was_looked_up_and_not_found_is_tried_again_and_a_stop_refuses_that(
    world: World, run: Run, bank: Provider
) -> None:
    effect = queued(world, run, bank, lookup={"url": "x"}, settle_window_s=0, retry_after_s=[60, 60])
    bank.fault("answer", method="POST", status=503)
    assert send(effect) == "unknown"
    reconcile.apply_answer(effect.pk, Answer(ABSENT))
    assert (fresh(effect).settlement, fresh(effect.step).status) == ("NOT_APPLIED", "RETRY_WAIT")
    due(effect.step)
    bank.fault("answer", method="POST", status=503)
    send(effect)
    world.stop(run)
    reconcile.apply_answer(effect.pk, Answer(ABSENT))
    assert (fresh(effect).settlement, fresh(effect.step).status) == ("NOT_APPLIED", "FAILED")
    refusal = RefusalRow.objects.get(run=run, boundary="retry")
    assert (refusal.reason, refusal.carried_version, refusal.current_version) == ("stopped", 1, 2)


def test_without_a_schedule_our_executor_leaves_it_to_people(world: World, run: Run) -> None:
    a_kind(world.workspace, provider="http", send={"url": "https://bank.example/"})
    step = a_step(run, "FAILED")
    effect = an_effect(step, "NOT_APPLIED", ground="looked up", attempt=1, kind=kind_of(world))
    assert retries.pause_of([effect]) is None
    effect.kind.retry_after_s = [5, 60]  # type: ignore[union-attr]
    assert retries.pause_of([effect]) == 5
    effect.attempt = 2
    assert retries.pause_of([effect]) == 60
    effect.attempt = 3
    assert retries.pause_of([effect]) is None


def kind_of(world: World) -> Any:
    return Kind.objects.get(workspace=world.workspace)


def test_only_what_our_executor_sends_has_a_schedule(world: World) -> None:
    agent = agent_of(world.workspace)
    said = agent.put("/kinds/bank.charge", kind_body(retry_after_s=[5.0]))
    assert (said.status, said.data["errors"][0]["field"]) == (422, "retry_after_s")
    ours = kind_body(provider="http", send={"url": "https://example.org/"}, retry_after_s=[5.0, 60.0])
    assert agent.put("/kinds/bank.charge", ours).data["retry_after_s"] == [5.0, 60.0]


# --- the wire ---------------------------------------------------------------------------------------------


def test_a_retry_is_asked_for_over_the_api(world: World) -> None:
    agent, operator = agent_of(world.workspace), agent_of(world.workspace, "runs:read", "resume:write")
    run = agent.run()
    permit = agent.permitted(run)["permit"]
    agent.report(permit, "not_applied")
    path, body = f"/steps/{permit['step_id']}/retry", {"seen_version": 1, "delay_s": 30.0, "worker": "w-1"}
    refused = agent.post(path, body)
    assert (refused.status, refused.problem, refused.data["boundary"]) == (409, "retry-unverified", "retry")
    assert agent.post(path, {**body, "reason": "I am sure"}).problem == "not-allowed"
    for nothing in (" ", ".", "\u3164"):
        assert operator.post(path, {"seen_version": 1, "reason": nothing}).problem == "invalid-request"
    decided = operator.post(path, {"seen_version": 1, "reason": "seen with the bank", "delay_s": 30.0})
    assert (decided.status, decided.data["status"]) == (200, "RETRY_WAIT")
    assert decided.data["due_at"]
    early = agent.effect(run)
    assert (early.status, early.problem) == (409, "retry-not-due")
    agent.stop(run)
    assert operator.post(path, {"seen_version": 1, "reason": "again"}).problem == "stopped"
