"""Forwarding a stop: asked once per cancel and effect, behind the gate and the second look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from effects import close, drain, forwarder, forwards, intents, providers
from effects.intents import CannotAsk
from effects.models import Effect, Settlement
from runs import fanout, forwarding, gate, scopes
from runs.access import EXECUTOR
from runs.guard import NOT_FORWARDED, STALE, STOPPED, Ask, Known, Opened, Refusal
from runs.models import (
    Evidence,
    EvidencePayload,
    Permit,
    RulesRow,
    Run,
    RunStatus,
    Session,
    Step,
    StopRequest,
)
from runs.scopes import Target
from runs.stops import Wish
from tests.effects.job_site import JobSite, job_site
from tests.effects.sending import before
from tests.worlds import World, a_permit, an_effect, fresh, in_seconds, intention, kinds_of, lapse

LINES_IN_PARTS = 10  # SQLite takes some sixty lines of evidence a statement


@pytest.fixture
def site(settings: Settings) -> Iterator[JobSite]:
    with job_site() as site:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [site.url]
        yield site


@pytest.fixture
def world(db: None, site: JobSite) -> World:
    world = World()
    site.kind(world.workspace)
    allow(world)
    return world


def allow(world: World, *, yes: bool = True) -> None:
    told = {"version": 1, "body": {"forward_stops": yes}, "changed_by": "a", "changed_at": in_seconds(0)}
    RulesRow.objects.update_or_create(workspace=world.workspace, defaults=told)


def a_job(world: World, run: Run, settlement: str = "CONFIRMED", **fields: Any) -> Effect:
    """A job under a step that ended, whose provider may be asked to cancel it."""
    key = fields.pop("key", "render:1")
    step = Step.objects.create(run=run, key=key, name=key, op_class="external_job", status="SUCCEEDED")
    permit = a_permit(step, "REPORTED", effect_key=key, ended_at=in_seconds(-5))
    kind = world.workspace.kinds.get(name="render.video")
    given = {"on_stop": "ask_provider", "provider_ref": "job-1", "job_state": "running"}
    return an_effect(step, settlement, permit, key=key, kind=kind, **{**given, **fields})


def asked_about(effect: Effect) -> list[Effect]:
    return list(Effect.objects.filter(asks_about=effect).order_by("pk"))


def the_request(effect: Effect) -> Effect:
    (asking,) = asked_about(effect)
    return asking


def errand_of(asking: Effect, **changes: Any) -> Ask:
    step = asking.step
    given: dict[str, Any] = {"op_class": asking.op_class, "effect_key": asking.key, "step_id": step.pk}
    given |= {"claim_token": step.claim_token, **changes}
    seen = given.pop("seen_version", step.claim_version or 0)
    return Ask(asking.run_id, EXECUTOR, "w-9", seen, **given)


def ask_gate(asking: Effect, **changes: Any) -> Opened | Known | Refusal:
    return gate.forward(errand_of(asking, **changes), forwards.CancelErrand(asking))


# --- Which stops ask, and whom --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "rule", "effect", "asked"),
    [
        ("cancel", True, {}, 1),
        ("cancel", True, {"settlement": "DISPATCHED", "job_state": ""}, 1),
        ("cancel", True, {"settlement": "UNKNOWN", "job_state": ""}, 1),
        ("cancel", True, {"settlement": "PARTIAL"}, 1),
        ("pause", True, {}, 0),
        ("abandon", True, {}, 0),
        ("cancel", False, {}, 0),
        ("cancel", True, {"on_stop": None}, 0),
        ("cancel", True, {"settlement": "NOT_APPLIED"}, 0),
        ("cancel", True, {"settlement": "DECLARED"}, 0),
        ("cancel", True, {"settlement": "ACCEPTED_UNKNOWN"}, 0),
        ("cancel", True, {"job_state": "completed"}, 0),
        ("cancel", True, {"job_state": "failed"}, 0),
    ],
)
def test_a_cancel_asks_where_intent_and_rule_say_so_and_something_may_go_on(
    world: World, mode: str, rule: bool, effect: dict[str, Any], asked: int
) -> None:
    allow(world, yes=rule)
    run = world.run()
    job = a_job(world, run, **effect)
    stop = world.stop(run, mode=mode).stop
    found = asked_about(job)
    assert [one.key for one in found] == [f"ask-cancel:{stop.pk}:render:1"] * asked
    assert len(Step.objects.filter(run=run, status="CLAIMED")) == asked


def test_an_effect_is_declared_so_only_with_a_kind_that_says_how(world: World, site: JobSite) -> None:
    run = world.run()
    for kind in ("opaque", "bank.charge"):
        with pytest.raises(CannotAsk):
            intents.dispatch(world.ask(run, step_key="r"), intention(kind=kind, on_stop="ask_provider"))
    new = intention("render:1", kind="render.video", on_stop="ask_provider")
    effect = intents.declare(world.ask(run, step_key="r"), new)
    assert isinstance(effect, Effect)
    assert effect.on_stop == "ask_provider"
    with pytest.raises(intents.EffectKeyReused):  # it is one of the parameters
        intents.declare(world.ask(run, step_key="r"), intention("render:1", kind="render.video"))


def test_a_second_press_asks_nobody_again_and_another_stop_does(world: World) -> None:
    run = world.run()
    job = a_job(world, run)
    first = world.stop(run, mode="pause").stop
    drain.drain_run(run.pk)
    assert asked_about(job) == []
    second = world.stop(run).stop
    assert world.stop(run).stop == second
    assert [forwards.stop_id_of(one.key) for one in asked_about(job)] == [second.pk]
    assert first != second


def test_a_job_of_a_run_that_has_ended_is_asked_about_too(world: World, site: JobSite) -> None:
    run = world.run()
    job = a_job(world, run)
    Run.complete(run, 1, "")
    stop = world.stop(run).stop
    assert stop.finished_before
    asking = the_request(job)
    assert isinstance(ask_gate(asking), Opened)
    assert (fresh(run).status, fresh(asking).settlement) == ("COMPLETED", "DISPATCHED")


# --- A scope ---------------------------------------------------------------------------------------------


def test_the_stop_of_a_scope_asks_for_each_of_its_runs(world: World) -> None:
    session = Session.objects.create(workspace=world.workspace, key="nightly")
    runs = [world.run(f"r-{n}", session="nightly") for n in range(3)]
    jobs = [a_job(world, run) for run in runs[:2]]
    wish, target = Wish(mode="cancel"), Target("session", session.pk)
    answer = scopes.request_scope_stop(actor=world.alice, wish=wish, target=target)
    assert fanout.fence(answer.stop.pk)
    for run, job in zip(runs, jobs, strict=False):
        mine = StopRequest.objects.get(run=run)
        assert the_request(job).key == f"ask-cancel:{mine.pk}:render:1"
        drain.drain_run(run.pk)
        assert fresh(run).status == RunStatus.CANCELLING  # it waits until it was asked
    assert not Step.objects.filter(run=runs[2]).exists()


def test_a_scope_with_nothing_to_ask_pays_one_query_a_chunk(world: World) -> None:
    stop = StopRequest(workspace=world.workspace, mode="cancel")
    ids = [world.run(f"r-{n}").pk for n in range(3)]
    with CaptureQueriesContext(connection) as queries:
        assert forwards.concerned(ids, stop) == []
    assert len(queries) == 1
    stop.mode = "pause"
    with CaptureQueriesContext(connection) as queries:
        assert forwards.concerned(ids, stop) == []
    assert len(queries) == 0


def test_a_stop_asks_two_hundred_with_as_many_statements_as_one(world: World) -> None:
    statements = []
    for number in (1, 200):
        run = world.run(f"of-{number}")
        for place in range(number):
            a_job(world, run, key=f"render:{place}")
        with CaptureQueriesContext(connection) as queries:
            world.stop(run)
        asked = Effect.objects.filter(run=run, asks_about__isnull=False)
        assert asked.values("step", "asks_about").distinct().count() == number
        assert kinds_of(run).count("effect.declared") == number
        statements.append(len(queries))
    few, many = statements
    assert many <= few + LINES_IN_PARTS


# --- Sent by our executor -------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("answers", "outcome", "settlement", "status"),
    [
        (202, "applied", "CONFIRMED", "CANCELLED"),
        (409, "unknown", "UNKNOWN", "UNKNOWN"),
        (404, "not_applied", "NOT_APPLIED", "CANCELLED"),
        (0, "unknown", "UNKNOWN", "UNKNOWN"),
    ],
)
def test_one_request_with_its_own_key_and_the_drain_waits_for_it(
    world: World, site: JobSite, answers: int, outcome: str, settlement: str, status: str
) -> None:
    run, site.cancels = world.run(), answers
    job = a_job(world, run)
    world.stop(run)
    asking = the_request(job)
    drain.drain_run(run.pk)
    assert fresh(run).status == RunStatus.CANCELLING
    assert forwarder.forward(asking.pk) == outcome
    assert forwarder.forward(asking.pk) == "nothing to do"
    assert site.cancelled == [("POST", "/jobs/job-1/cancel", asking.key)]
    after = fresh(asking)
    assert (after.settlement, after.next_check_at, fresh(run).status) == (settlement, None, status)
    assert (fresh(job).settlement, fresh(job).job_state) == ("CONFIRMED", "running")  # as its provider said
    permit = Permit.objects.get(effect_key=asking.key)
    assert (permit.guard, permit.seen_version) == ("forward", 2)
    assert not after.step.reported_after_stop


@pytest.mark.django_db(transaction=True)
def test_a_rule_that_was_taken_away_meanwhile_and_a_stronger_stop_send_nothing(
    world: World, site: JobSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.run()
    job = a_job(world, run)
    world.stop(run)
    asking = the_request(job)
    allow(world, yes=False)
    answer = ask_gate(asking)
    assert isinstance(answer, Refusal)
    assert answer.reason == NOT_FORWARDED
    allow(world)
    before(monkeypatch, providers, "ask_to_cancel", lambda: world.stop(run, mode="abandon"))
    assert forwarder.forward(asking.pk) == "not_sent"  # the second look: the run was abandoned meanwhile
    assert (site.cancelled, fresh(asking).settlement) == ([], "NOT_APPLIED")
    assert isinstance(ask_gate(asking), Known)


def test_the_guard_refuses_another_version_stop_or_holder(world: World) -> None:
    run = world.run()
    job = a_job(world, run)
    stop = world.stop(run).stop
    asking = the_request(job)
    wrong = forwards.CancelErrand(asking)
    wrong.stop_id = "stp_of-nobody"
    answers = {
        STALE: ask_gate(asking, seen_version=1),
        STOPPED: gate.forward(errand_of(asking), wrong),
        "lost_claim": ask_gate(asking, claim_token="forged"),
    }
    for reason, answer in answers.items():
        assert isinstance(answer, Refusal)
        assert answer.reason == reason
    assert kinds_of(run).count("dispatch.refused") == 3
    assert stop.mode == "cancel"
    assert not Permit.objects.filter(guard=forwarding.FORWARD).exists()


def test_a_run_that_goes_on_is_asked_for_nothing(world: World) -> None:
    """The guard by itself: no stop was recorded, and somebody made the row all the same."""
    run = world.run()
    job = a_job(world, run)
    stop = StopRequest(pk="stp_x", workspace=world.workspace, mode="cancel", version_after=1, deadline_s=60)
    assert job.kind is not None
    forwards._ask(run, stop, [(job, job.kind)], world.alice)
    answer = ask_gate(the_request(job))
    assert isinstance(answer, Refusal)
    assert answer.reason == STOPPED


# --- What it waits for, and what it does not ------------------------------------------------------------


def test_it_waits_until_the_call_is_over_and_asks_nothing_where_it_did_not_happen(world: World) -> None:
    run = world.run()
    opened = world.opened(run, "render:1", op_class="external_job")
    kind = world.workspace.kinds.get(name="render.video")
    Effect.objects.filter(pk=opened.subject.pk).update(on_stop="ask_provider", kind=kind)
    world.stop(run)
    asking = the_request(opened.subject)
    answer = ask_gate(asking)
    assert isinstance(answer, Known)
    assert answer.answer == "must_wait"
    world.report(opened, "not_applied")
    assert isinstance(ask_gate(asking), Known)
    assert (fresh(asking).settlement, asking.step.pk) == ("DECLARED", asking.step_id)
    assert Step.objects.get(pk=asking.step_id).status == "WITHHELD"
    drain.drain_run(run.pk)
    assert (fresh(run).status, fresh(asking).settlement) == ("CANCELLED", "NOT_STARTED")
    line = Evidence.objects.get(stream=run.pk, kind="effect.not_asked")
    told = EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body
    assert json.loads(told)["not_asked_because"] == "not applied"


def test_nobody_took_it_in_time_so_it_was_not_asked_and_the_run_rests(world: World) -> None:
    run = world.run()
    job = a_job(world, run)
    world.stop(run)
    asking = the_request(job)
    assert forwards.waiting() == []  # a message of it is under way
    Effect.objects.filter(pk=asking.pk).update(queued_at=in_seconds(-9))
    assert (forwards.waiting(), forwards.waiting()) == ([asking.pk], [])
    lapse(asking.step)
    drain.drain_run(run.pk)
    assert (fresh(run).status, fresh(asking).settlement) == ("CANCELLED", "NOT_STARTED")
    assert close.outcome_of(fresh(run)) == close.PARTIALLY_COMPLETED


def test_an_ended_run_says_at_once_that_it_was_not_asked(world: World) -> None:
    run = world.run()
    job = a_job(world, run)
    Run.complete(run, 1, "")
    world.stop(run)
    asking = the_request(job)
    lapse(asking.step)
    drain.drain_run(run.pk)
    assert (fresh(asking).settlement, fresh(run).status) == (Settlement.NOT_STARTED, "COMPLETED")
    assert close.outcome_of(fresh(run)) == close.COMPLETED


def test_a_holder_that_is_lost_after_the_permit_leaves_it_unknown(world: World) -> None:
    run = world.run()
    job = a_job(world, run)
    world.stop(run)
    asking = the_request(job)
    opened = ask_gate(asking)
    assert isinstance(opened, Opened)
    lapse(opened.permit, opened.step)
    drain.drain_run(run.pk)
    after = fresh(asking)
    assert (fresh(run).status, after.settlement, after.next_check_at) == ("UNKNOWN", "UNKNOWN", None)
    assert "can't be looked up" in providers.look_up(after).detail  # of a job's key, it would find the job


def test_a_long_key_is_asked_about_under_its_digest(world: World) -> None:
    run = world.run()
    job = a_job(world, run, key="k" * 200)
    stop = world.stop(run).stop
    key = the_request(job).key
    assert key.startswith(f"ask-cancel:{stop.pk}:")
    assert len(key) <= 200
