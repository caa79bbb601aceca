"""A compensation is carried out: the bytes that were approved, once, and never more said than is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django.fixtures import Settings

from effects import compensate, executor, folder, repair, repair_moves, settle, tasks
from effects.compensation import RESTORE_FILES
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Approval, Compensation, Kind, Review
from effects.providers.workspace import is_back
from effects.reconcile import Answer, Asked
from effects.restore import Before, put_to_rest
from effects.resume import NotResumed, Resumed, resume
from runs import drain, gate, halts
from runs.evidence import digest, record
from runs.guard import Known, Refusal, lock_run
from runs.models import Evidence, EvidencePayload, Membership, Permit, Restore, Run
from runs.models import Refusal as RefusalRow
from runs.policies import Match, create_policy
from runs.scopes import Target, request_scope_stop
from runs.stops import Wish
from runs.store import database_time
from tests.effects.compensations import allow, approve, brought_to, edit, proposed, review_of, said
from tests.effects.repairing import (
    a_proposal,
    approved,
    ask,
    at_the_bank,
    checked,
    dispatched,
    fall_due,
    in_doubt,
    open_reviews,
    report,
    state_of,
    with_refunds,
)
from tests.effects.sending import AWAY, before, fails, queued
from tests.provider import Provider
from tests.worlds import World, a_kind, fresh, in_seconds, kinds_of, lapse

pytestmark = pytest.mark.django_db


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def world() -> World:
    return with_refunds(World())


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction of a test lives in its connection."""
    for module in (repair, executor):
        monkeypatch.setattr(module, "close_old_connections", lambda: None)


def permit_of(made: Compensation) -> Permit:
    found: Permit = Permit.objects.get(effect_key=made.key)
    return found


def stop_workspace(world: World, **wish: Any) -> Any:
    target = Target("workspace", world.workspace.pk)
    return request_scope_stop(actor=world.alice, wish=Wish(**wish), target=target).stop


# --- It is sent -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I14")
@pytest.mark.invariant("I18")
def test_the_bytes_that_were_approved_are_sent_once_under_a_key_of_their_own(bank: Provider) -> None:
    world = at_the_bank(bank)
    made = a_proposal(world)
    assert isinstance(edit(made, world.carol, body=b'{"amount": 50}'), Compensation)
    assert said(approve(made, world.bob)) == "granted"
    shown = review_of(made)
    assert repair.carry_out(made.pk) == "applied"
    sent = bank.ledger.lines("request")
    assert [(one["method"], one["path"], one["key"], one["text"]) for one in sent] == [
        ("POST", "/refunds", made.pk, '{"amount": 50}')
    ]
    stands = fresh(made)
    permit = permit_of(made)
    assert digest(sent[0]["text"]) == stands.body_digest
    assert (stands.state, stands.permit, stands.attempt, stands.ground) == ("DISPATCHED", permit, 1, "")
    assert (permit.guard, permit.state, permit.outcome) == ("compensate", "REPORTED", "applied")
    used = Approval.objects.get(state="CONSUMED")
    assert (used.permit, used.digest) == (permit, shown.digest)
    assert fresh(shown).closed_as == "used"
    assert [repair.carry_out(made.pk) for _ in range(2)] == ["nothing to do"] * 2
    assert (checked(made), state_of(made)) == ("VERIFIED", "VERIFIED")
    assert bank.ledger.sends() == 1


def test_each_move_leaves_its_line_and_the_original_stays_what_it_was(bank: Provider) -> None:
    made = approved(at_the_bank(bank))
    first = Evidence.objects.filter(stream=made.run_id).count()
    repair.carry_out(made.pk)
    checked(made)
    assert kinds_of(made.run)[first:] == [
        *("approval.consumed", "review.used", "compensation.dispatched", "permit.opened"),
        *("permit.reported", "compensation.reported", "compensation.looked_up", "compensation.verified"),
    ]
    verified = Evidence.objects.get(stream=made.run_id, kind="compensation.verified")
    assert (verified.ground, verified.effect_key) == ("looked up", made.key)
    assert fresh(made.effect).settlement == "CONFIRMED"
    assert fresh(made.run).status == "COMPLETED"
    step = permit_of(made).step
    assert (step.key, step.status, step.reported_after_stop) == (f"compensate:{made.pk}", "SUCCEEDED", False)


def test_it_is_sent_by_the_kind_as_it_was_approved(bank: Provider) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    kind = made.kind
    assert kind is not None
    type(kind).objects.filter(pk=kind.pk).update(send={"url": f"{bank.url}/elsewhere"})
    assert repair.carry_out(made.pk) == "refused", "another address is another call"
    assert (state_of(made), open_reviews(made), bank.ledger.sends()) == ("PROPOSED", 1, 0)


def test_a_commit_whose_answer_was_lost_is_found_by_its_token_and_sent_once(
    bank: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = approved(at_the_bank(bank))
    monkeypatch.setattr(connection, "close", lambda: None)  # the test's own transaction lives in it
    fails(monkeypatch, repair, "dispatch", 1, after=True, error=AWAY)
    assert repair.carry_out(made.pk) == "applied"
    assert (bank.ledger.sends(), Permit.objects.filter(guard="compensate").count()) == (1, 1)


def test_without_an_answer_of_the_gate_nothing_is_sent(
    bank: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = approved(at_the_bank(bank))
    monkeypatch.setattr(connection, "close", lambda: None)
    fails(monkeypatch, repair, "dispatch", 1, error=AWAY)
    assert repair.carry_out(made.pk) == "nothing to do"
    assert (state_of(made), bank.ledger.sends()) == ("APPROVED", 0)


# --- What its holder says -----------------------------------------------------------------------------------

NOT_VERIFIED = "reported done, not verified"
# Its holder's word, whether its kind can be looked up, and what is then known.
WORDS = [
    ("applied", True, "DISPATCHED", ""),
    ("applied", False, "UNKNOWN", NOT_VERIFIED),
    ("partial", True, "FAILED", ""),
    ("not_applied", True, "FAILED", ""),
    ("not_applied", False, "FAILED", ""),
    ("unknown", True, "UNKNOWN", "timeout"),
    ("not_sent", True, "PROPOSED", ""),
]


@pytest.mark.parametrize(("word", "looks_up", "state", "why"), WORDS)
def test_a_holders_word_is_what_is_known_and_no_more(word: str, looks_up: bool, state: str, why: str) -> None:
    kind: dict[str, Any] = {} if looks_up else {"lookup": {}}
    made = approved(with_refunds(World(), **kind))
    report(dispatched(made), word, detail="timeout" if word == "unknown" else "", items=["a"])
    stands = fresh(made)
    assert (stands.state, stands.why_unknown) == (state, why)
    waits = looks_up and word in ("applied", "unknown")
    assert (stands.next_check_at is not None, stands.check_until is not None) == (waits, waits)
    assert open_reviews(made) == (1 if word == "not_sent" else 0)


# The same of a holder that was lost, and speaks after all.
LATE = [
    ("applied", "UNKNOWN", NOT_VERIFIED),
    ("partial", "FAILED", "worker"),
    ("not_applied", "FAILED", "worker"),
    ("not_sent", "FAILED", "worker"),
    ("unknown", "UNKNOWN", "worker"),
]


@pytest.mark.parametrize(("word", "state", "why"), LATE)
def test_a_lost_holder_that_speaks_after_all_is_heard(world: World, word: str, state: str, why: str) -> None:
    made = approved(world, "CANCELLED", by=world.bob)
    permit = dispatched(made)
    lapse(permit, permit.step)
    assert made.run_id in drain.runs_due(), "of a run that is final too"
    drain_run(made.run_id)
    assert (fresh(permit).state, state_of(made), fresh(permit.step).status) == ("LOST", "UNKNOWN", "UNKNOWN")
    told = report(permit, word)
    assert (told.late, fresh(made).state) == (True, state)
    assert fresh(made).why_unknown.startswith(why)
    assert fresh(made.run).status == "CANCELLED"
    assert open_reviews(made) == 0


@pytest.mark.parametrize("word", ["applied", "not_applied", "partial", "not_sent"])
def test_what_is_settled_stays_whatever_a_holder_says_late(world: World, word: str) -> None:
    made = approved(world)
    permit = dispatched(made)
    lapse(permit, permit.step)
    drain_run(made.run_id)
    assert repair.apply_answer(made.pk, Answer("present")) == "VERIFIED"
    report(permit, word)
    assert (state_of(made), fresh(permit).outcome) == ("VERIFIED", word)


def test_nothing_was_sent_so_people_are_asked_again_and_a_second_attempt_has_its_own_step(
    bank: Provider,
) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    report(dispatched(made), "not_sent")
    assert [one.state for one in Approval.objects.order_by("pk")] == ["CONSUMED"], "used up"
    assert repair.carry_out(made.pk) == "nothing to do", "never again by itself"
    assert said(approve(made, world.carol)) == "granted"
    assert repair.carry_out(made.pk) == "applied"
    steps = Permit.objects.filter(effect_key=made.key).order_by("pk").values_list("step__key", "step__status")
    assert list(steps) == [
        (f"compensate:{made.pk}", "WITHHELD"),
        (f"compensate:{made.pk}:2", "UNKNOWN"),
    ], "done, and not verified yet"
    assert [one["key"] for one in bank.ledger.lines("request")] == [made.pk]


# --- What a look-up says ------------------------------------------------------------------------------------

# Where it stands, how its permit ended, the answer, seconds since it was sent, and where it stands then.
ANSWERS = [
    ("DISPATCHED", "REPORTED", Answer("present"), 0, "VERIFIED"),
    ("DISPATCHED", "REPORTED", Answer("partial", items=["b"]), 0, "FAILED"),
    ("DISPATCHED", "REPORTED", Answer("absent"), 30, "DISPATCHED"),
    ("DISPATCHED", "REPORTED", Answer("absent"), 90, "FAILED"),
    ("DISPATCHED", "REPORTED", Answer("can't tell"), 90, "DISPATCHED"),
    ("DISPATCHED", "OPEN", Answer("present"), 90, "VERIFIED"),
    ("DISPATCHED", "OPEN", Answer("absent", fenced=True), 90, "DISPATCHED"),
    ("DISPATCHED", "OPEN", Answer("partial", items=["b"]), 90, "DISPATCHED"),
    ("UNKNOWN", "LOST", Answer("present"), 0, "VERIFIED"),
    ("UNKNOWN", "LOST", Answer("partial", items=["b"]), 0, "FAILED"),
    ("UNKNOWN", "LOST", Answer("absent"), 90, "UNKNOWN"),
    ("UNKNOWN", "LOST", Answer("absent", fenced=True), 90, "FAILED"),
    ("UNKNOWN", "REPORTED", Answer("absent"), 90, "FAILED"),
    ("UNKNOWN", "REPORTED", Answer("can't tell"), 90, "UNKNOWN"),
]


@pytest.mark.parametrize(("state", "permit_state", "answer", "after_s", "then"), ANSWERS)
def test_a_look_up_settles_what_it_proves(
    state: str, permit_state: str, answer: Answer, after_s: int, then: str
) -> None:
    lookup = {"url": "https://bank.example/refunds?key={key}", "fence": True}
    made = approved(with_refunds(World(), settle_window_s=60, lookup=lookup))
    permit = dispatched(made)
    if permit_state == "LOST":
        lapse(permit, permit.step)
        drain_run(made.run_id)
    elif permit_state == "REPORTED":
        report(permit, "applied" if state == "DISPATCHED" else "unknown")
    assert (state_of(made), fresh(permit).state) == (state, permit_state)
    asked = Asked(in_seconds(after_s), 1)
    assert repair.apply_answer(made.pk, answer, asked=asked) == then
    stands = fresh(made)
    assert stands.items == (answer.items if then == "FAILED" else None)
    step = {"VERIFIED": "SUCCEEDED", "FAILED": "PARTIAL" if answer.items else "FAILED"}.get(then)
    if step is not None:
        assert (fresh(permit.step).status, stands.next_check_at) == (step, None)


def test_a_schedule_that_ended_says_so_and_what_was_reported_done_is_unknown() -> None:
    made = approved(with_refunds(World(), check_for_s=60, check_every_s=[90]))
    report(dispatched(made), "applied")
    assert repair.apply_answer(made.pk, Answer("can't tell", "too busy")) == "UNKNOWN"
    stands = fresh(made)
    assert (stands.why_unknown, stands.next_check_at) == (NOT_VERIFIED, None)
    assert kinds_of(made.run)[-3:] == [
        *("compensation.looked_up", "reconcile.ended", "compensation.unknown"),
    ]


def test_one_check_at_a_time_and_a_failed_look_up_is_no_absence(bank: Provider) -> None:
    made = approved(at_the_bank(bank))
    repair.carry_out(made.pk)
    assert (repair.due(), repair.check(made.pk)) == ([], None), "not due yet"
    assert repair.due() == []
    fall_due(made)
    assert repair.due() == [made.pk]
    bank.fault("answer", method="GET", status=503)
    assert repair.check(made.pk) == "DISPATCHED"
    assert repair.check(made.pk) is None, "its turn was taken, and the next one planned"
    bank.fault("absent", method="GET")
    assert checked(made) == "FAILED", "no settle window, and its holder said that its call is over"
    assert fresh(made).checks == 1


@pytest.mark.django_db(transaction=True)
def test_the_sweep_hands_out_what_nobody_took_and_looks_up_what_is_due(
    bank: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    assert repair.waiting() == [], "a message may be on its way"
    Compensation.objects.filter(pk=made.pk).update(queued_at=in_seconds(-6))
    assert (repair.waiting(), repair.waiting()) == ([made.pk], []), "once for each five seconds"
    tasks.carry_out(made.pk)
    fall_due(made)
    tasks._verify(made.pk)
    assert state_of(made) == "VERIFIED"


# --- What is refused ----------------------------------------------------------------------------------------


def by_a_resume(world: World, made: Compensation) -> None:
    assert isinstance(resume(actor=world.alice, run_id=made.run_id, reason="go on"), Resumed)


def by_another_version(world: World, made: Compensation) -> None:
    Run.objects.filter(pk=made.run_id).advance({"cancel_version": made.run_version + 1})


def by_an_abandon(world: World, made: Compensation) -> None:
    world.stop(fresh(made.run), mode="abandon")


def by_a_cancel(world: World, made: Compensation) -> None:
    world.stop(fresh(made.run), mode="cancel")


def by_a_contradiction(world: World, made: Compensation) -> None:
    in_doubt(made.effect)


def by_doubt_alone(world: World, made: Compensation) -> None:
    settle.contradict(fresh(made.effect), "nobody voided it")


def by_a_halt(world: World, made: Compensation) -> None:
    stop_workspace(world, mode="pause")


def by_a_policy_of_its_kind(world: World, made: Compensation) -> None:
    match = Match(kinds=("bank.refund",))
    policy = create_policy(actor=world.alice, workspace_id=world.workspace.pk, name="no refunds", match=match)
    target = Target("policy", policy.pk)
    request_scope_stop(actor=world.alice, wish=Wish(mode="pause"), target=target)
    (halt,) = halts.in_force(world.workspace.pk)
    halts.lift(actor=world.bob, halt_id=halt.pk, reason="the policy itself stands")


def by_the_rules(world: World, made: Compensation) -> None:
    allow(world, policy="never")


def by_a_stricter_rule(world: World, made: Compensation) -> None:
    allow(world, approvals=2)


def by_a_rule_of_stops(world: World, made: Compensation) -> None:
    allow(world, after_a_stop=False)


def by_a_lost_role(world: World, made: Compensation) -> None:
    assert world.bob.user is not None
    Membership.objects.filter(user=world.bob.user).update(role="viewer")


def by_time(world: World, made: Compensation) -> None:
    Review.objects.filter(subject_id=made.pk).update(expires_at=in_seconds(-1))


Refused = Callable[[World, Compensation], None]
# What happened between the approval and the dispatch, the reason, and where the compensation stands then.
REFUSED: list[tuple[Refused, str, str]] = [
    (by_a_resume, "", "VOID"),
    (by_another_version, "stale_version", "VOID"),
    (by_an_abandon, "", "VOID"),
    (by_a_cancel, "", "VOID"),
    (by_a_contradiction, "", "VOID"),
    (by_doubt_alone, "not_sure", "VOID"),
    (by_a_halt, "halted", "APPROVED"),
    (by_a_policy_of_its_kind, "stopped", "APPROVED"),
    (by_the_rules, "not_approved", "PROPOSED"),
    (by_a_stricter_rule, "not_approved", "PROPOSED"),
    (by_a_rule_of_stops, "not_approved", "PROPOSED"),
    (by_a_lost_role, "not_approved", "PROPOSED"),
    (by_time, "not_approved", "EXPIRED"),
]


@pytest.mark.invariant("I14")
@pytest.mark.parametrize(("work", "reason", "state"), REFUSED)
def test_what_came_between_the_approval_and_the_dispatch_refuses_it(
    world: World, work: Refused, reason: str, state: str
) -> None:
    made = approved(world, "PAUSED", by=world.bob)
    work(world, made)
    answer = ask(made)
    if reason:
        assert isinstance(answer, Refusal)
        assert (answer.reason, bool(answer.what_to_do)) == (reason, True)
        assert RefusalRow.objects.filter(run=made.run, reason=reason, effect_key=made.key).count() == 1
    else:
        assert isinstance(answer, Known), "the row itself says that it is not approved any more"
    assert state_of(made) == state
    assert not Permit.objects.filter(guard="compensate").exists()
    assert not Approval.objects.filter(state="CONSUMED").exists()


def test_what_is_halted_asks_again_later_and_goes_on_when_a_reviewer_lifts_that(bank: Provider) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    stop_workspace(world)
    assert [repair.carry_out(made.pk) for _ in range(2)] == ["refused", "refused"]
    refused = RefusalRow.objects.get(effect_key=made.key)
    assert (refused.reason, refused.count, refused.stop_id is not None) == ("halted", 2, True)
    assert (fresh(made).queued_at or database_time()) > database_time(), "not each second"
    (halt,) = halts.in_force(world.workspace.pk)
    halts.lift(actor=world.bob, halt_id=halt.pk, reason="prices are right again")
    assert repair.carry_out(made.pk) == "applied", "a gate that is shut holds runs, not repairs"
    assert bank.ledger.sends() == 1


def by_a_halt_of_its_session(world: World, made: Compensation) -> None:
    target = Target("session", fresh(made.run).session_id or "")
    request_scope_stop(actor=world.alice, wish=Wish(mode="pause"), target=target)


def by_a_halt_of_a_policy(world: World, made: Compensation) -> None:
    match = Match(labels={"desk": "hot"})
    policy = create_policy(actor=world.alice, workspace_id=world.workspace.pk, name="hot", match=match)
    request_scope_stop(actor=world.alice, wish=Wish(mode="pause"), target=Target("policy", policy.pk))


@pytest.mark.parametrize("halt", [by_a_halt_of_its_session, by_a_halt_of_a_policy])
def test_what_is_halted_takes_no_turn_of_what_is_not(world: World, halt: Refused) -> None:
    """Three halted ones wait for longer than the one that is not, and a pass has place for one."""
    halted = []
    for number in range(3):
        run = world.run(f"halted-{number}", session="hot", labels={"desk": "hot"})
        halted.append(approved(world, run=run, key=f"charge:{number}"))
    halt(world, halted[0])
    free = approved(world, run=world.run("free", session="cool"))
    Compensation.objects.update(queued_at=in_seconds(-9))
    Compensation.objects.filter(pk=free.pk).update(queued_at=in_seconds(-6))
    assert repair.waiting(limit=1) == [free.pk]
    assert repair.waiting(limit=1) == []
    assert {state_of(one) for one in halted} == {"APPROVED"}
    (standing,) = halts.in_force(world.workspace.pk)
    halts.lift(actor=world.bob, halt_id=standing.pk, reason="prices are right again")
    Compensation.objects.update(queued_at=in_seconds(-9))
    assert {*repair.waiting()} == {free.pk, *(one.pk for one in halted)}, "the negative control"


# --- The second look ----------------------------------------------------------------------------------------


def halted_since(world: World, made: Compensation) -> None:
    stop_workspace(world, mode="cancel")


def pressed_since(world: World, made: Compensation) -> None:
    """On a run that had ended: its version stays."""
    world.stop(fresh(made.run), mode="cancel")


# What comes between permit and send, and where the compensation stands then.
SINCE: list[tuple[Refused, str, str]] = [
    (pressed_since, "PROPOSED", "shut"),
    (halted_since, "PROPOSED", "shut"),
    (by_a_contradiction, "VOID", "what it answers is in doubt"),
    (by_another_version, "VOID", "shut"),
]


@pytest.mark.invariant("I2")
@pytest.mark.parametrize(("work", "state", "why"), SINCE)
def test_the_second_look_reads_all_of_it_again_and_nothing_is_sent(
    bank: Provider, monkeypatch: pytest.MonkeyPatch, work: Refused, state: str, why: str
) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    before(monkeypatch, repair, "_look_again", lambda: work(world, made))
    assert repair.carry_out(made.pk) == "not_sent"
    assert (state_of(made), bank.ledger.sends()) == (state, 0)
    permit = Permit.objects.get(guard="compensate")
    assert (permit.state, permit.step.status) == ("NOT_SENT", "WITHHELD")
    line = Evidence.objects.get(stream=made.run_id, kind="permit.not_sent")
    assert line.permit_id == permit.pk
    assert [one.state for one in Approval.objects.order_by("pk")] == ["CONSUMED"]
    assert open_reviews(made) == (1 if state == "PROPOSED" else 0)


def test_a_kind_that_changes_after_the_gate_sends_nothing(
    bank: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_the_bank(bank)
    made = approved(world)
    other = {"url": f"{bank.url}/elsewhere"}
    rows = Kind.objects.filter(pk=made.kind_id)
    before(monkeypatch, repair, "_sent_as", lambda: rows.update(send=other))
    assert repair.carry_out(made.pk) == "not_sent"
    assert (state_of(made), bank.ledger.sends()) == ("PROPOSED", 0)


@pytest.mark.parametrize("by", ["webhook", "holder"])
def test_a_failure_that_is_contradicted_later_is_followed_by_no_second_one(world: World, by: str) -> None:
    made = approved(world)
    permit = dispatched(made)
    report(permit, "unknown" if by == "holder" else "not_applied")
    if by == "holder":
        repair.apply_answer(made.pk, Answer("refused"))
    assert state_of(made) == "FAILED"
    assert compensate.proposable(fresh(made.effect)) == "", "before it is contradicted"
    second = proposed(fresh(made.effect), world.alice)
    assert said(approve(second, world.bob)) == "granted"
    if by == "holder":
        report(permit, "applied")
    else:
        repair.apply_answer(made.pk, Answer("present"), ground="webhook")
    assert isinstance(ask(fresh(second)), Refusal)
    assert state_of(second) == "VOID"
    assert compensate.proposable(fresh(made.effect)) == "after_all"


@pytest.mark.parametrize("decided", [False, True], ids=["failed", "not needed"])
@pytest.mark.parametrize("by", ["its holder", "a look-up", "people"])
def test_what_was_done_in_part_is_not_proposed_again(world: World, by: str, decided: bool) -> None:
    made = approved(world)
    permit = dispatched(made)
    report(permit, "partial" if by == "its holder" else "unknown", items={"there": ["a"]})
    if by == "a look-up":
        repair.apply_answer(made.pk, Answer("partial", items={"there": ["a"]}))
    elif by == "people":
        with transaction.atomic():
            run, known = lock_run(made.run_id), fresh(made)
            record(run, *repair.settle(run, known, "partly", "decided", world.bob, {"items": ["a"]}))
    assert state_of(made) == "FAILED"
    if decided:
        one = {"compensation_id": made.pk, "reason": "the rest is small"}
        assert said(compensate.not_needed(actor=world.bob, **one)) == "NOT_NEEDED"
    for actor in (world.alice, world.agent):
        told = compensate.propose(actor=actor, effect_id=made.effect_id)
        assert said(told) == "in_part"
    assert Compensation.objects.count() == 1


def test_a_doubt_about_the_original_changes_nothing_of_what_is_being_verified(world: World) -> None:
    made = approved(world)
    report(dispatched(made), "applied")
    in_doubt(made.effect)
    assert state_of(made) == "DISPATCHED"
    assert repair.apply_answer(made.pk, Answer("present")) == "VERIFIED"
    assert fresh(made.effect).settlement == "UNKNOWN"


# --- Resume, abandon, restore -------------------------------------------------------------------------------


def test_a_resume_waits_for_a_compensation_that_is_in_doubt(world: World) -> None:
    made = approved(world, "PAUSED")
    permit = dispatched(made)

    def answer() -> Any:
        return resume(actor=world.alice, run_id=made.run_id, reason="go on")

    told = answer()
    assert isinstance(told, NotResumed)
    assert told.reason == "must wait"
    assert [(one.id, one.answer) for one in told.items if one.answer == "must wait"] == [
        (made.pk, "must wait")
    ]
    report(permit, "unknown")
    assert isinstance(answer(), NotResumed)
    repair.apply_answer(made.pk, Answer("present"))
    assert isinstance(answer(), Resumed)
    assert state_of(made) == "VERIFIED"


def test_an_abandon_calls_it_unknown_asks_nobody_and_hears_what_comes_by_itself(world: World) -> None:
    made = approved(world, "PAUSED")
    permit = dispatched(made)
    world.stop(fresh(made.run), mode="abandon")
    stands = fresh(made)
    assert (stands.state, stands.next_check_at) == ("UNKNOWN", None)
    assert gate.look(permit.pk, permit.token).answer == "shut"
    report(permit, "applied")
    assert fresh(made).next_check_at is None
    assert repair.apply_answer(made.pk, Answer("present"), ground="webhook") == "VERIFIED"
    assert fresh(made.run).status == "ABANDONED"


def test_an_abandon_ends_the_look_ups_of_what_was_being_verified(world: World) -> None:
    made = approved(world, "PAUSED")
    report(dispatched(made), "applied")
    world.stop(fresh(made.run), mode="abandon")
    stands = fresh(made)
    assert (stands.state, stands.next_check_at, repair.due()) == ("UNKNOWN", None, [])


def test_a_restore_loses_what_was_in_flight_and_halts_what_was_to_come(world: World) -> None:
    flying, run = approved(world), world.run("another")
    waiting = approved(world, run=run, key="charge:8")
    permit = dispatched(flying)
    restored = Restore.objects.create(taken_at=in_seconds(-60), digest="d", release="")
    with transaction.atomic():
        put_to_rest(restored, Before())
    assert (fresh(permit).state, state_of(flying)) == ("LOST", "UNKNOWN")
    assert fresh(flying).next_check_at is not None, "it is asked about"
    assert state_of(waiting) == "PROPOSED", "what was approved may have been sent since"
    assert len(halts.in_force(world.workspace.pk)) == 1
    assert isinstance(ask(fresh(waiting)), Known)


# --- A person's verdict -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meaning", "state"), [("happened", "VERIFIED"), ("partly", "FAILED"), ("did not happen", "FAILED")]
)
def test_what_people_say_settles_what_is_unknown_and_no_more(world: World, meaning: str, state: str) -> None:
    made = approved(world)
    permit = dispatched(made)
    compensation = repair_moves.of_permit(permit)
    assert compensation is not None
    if meaning != "happened":
        told = repair.settle(compensation.run, compensation, meaning, "decided", world.bob, {})
        assert (told, state_of(made)) == ([], "DISPATCHED"), "its holder may still send it"
    report(permit, "unknown")
    compensation = fresh(made)
    lines = repair.settle(compensation.run, compensation, meaning, "decided", world.bob, {"items": ["a"]})
    assert ([line.ground for line in lines], state_of(made)) == (["decided"], state)
    assert repair.settle(compensation.run, compensation, "happened", "decided", world.bob) == []


# --- Files --------------------------------------------------------------------------------------------------


class Desk:
    """Two files that an effect of a run wrote, with what was there before, and its approved revert."""

    def __init__(self, root: Path) -> None:
        self.world, self.root = World(), root / "files"
        files = {"op_class": "workspace_change", "lookup": {"inspect": "files"}, "key_fencing": True}
        a_kind(self.world.workspace, "files", provider="workspace", **files)
        allow(self.world, RESTORE_FILES)
        self.run = self.world.run()
        self.root = root / self.world.workspace.pk
        self.root.mkdir()
        (self.root / "old.md").write_text("before")
        body = {"files": [{"path": "old.md", "text": "after"}, {"path": "new.md", "text": "new"}]}
        plan = plan_bytes(kind=RESTORE_FILES, title="Put back what was there")
        effect = queued(
            self.world, self.run, "files:1", kind="files", body=json.dumps(body).encode(), plan=plan
        )
        assert executor.execute(effect.pk) == "applied"
        brought_to(self.world, self.run, "COMPLETED")
        self.made = proposed(fresh(effect), self.world.alice)
        assert said(approve(self.made, self.world.bob)) == "granted"

    @property
    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.root.glob("*.md")}


@pytest.fixture
def desk(tmp_path: Path, settings: Settings) -> Desk:
    settings.ALLSTOP_FILES = tmp_path
    return Desk(tmp_path)


def test_files_are_put_back_behind_the_gate_and_verified_on_the_disk(desk: Desk) -> None:
    assert desk.files == {"old.md": "after", "new.md": "new"}
    assert repair.carry_out(desk.made.pk) == "applied"
    assert desk.files == {"old.md": "before"}
    assert (checked(desk.made), fresh(desk.made).ground) == ("VERIFIED", "looked up")


def test_no_file_is_put_back_under_a_halt_that_came_after_the_permit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, repair, "_look_again", lambda: stop_workspace(desk.world))
    assert repair.carry_out(desk.made.pk) == "not_sent"
    assert (desk.files, state_of(desk.made)) == ({"old.md": "after", "new.md": "new"}, "PROPOSED")


def test_what_somebody_changed_since_is_left_and_told(desk: Desk) -> None:
    (desk.root / "new.md").write_text("mine now")
    assert repair.carry_out(desk.made.pk) == "partial"
    assert (state_of(desk.made), fresh(desk.made).items) == ("FAILED", {"changed since": ["new.md"]})
    assert desk.files == {"old.md": "before", "new.md": "mine now"}


# What somebody did with the two files meanwhile (None: deleted), and what is said of them then.
MEANWHILE: list[tuple[dict[str, str | None], str, str, Any]] = [
    ({"old.md": None}, "partial", "1 of 2 files were put back; 1 were changed", {"gone since": ["old.md"]}),
    ({"new.md": None}, "applied", "1 of 2 files were put back; 1 were as they were before already", None),
    ({"old.md": "before"}, "applied", "1 of 2 files were put back; 1 were as they were", None),
    (
        {"old.md": None, "new.md": "mine"},
        "not_applied",
        "0 of 2 files were put back; 2 were changed or deleted",
        {"gone since": ["old.md"], "changed since": ["new.md"]},
    ),
]


@pytest.mark.parametrize(("meanwhile", "outcome", "detail", "items"), MEANWHILE)
def test_what_is_said_of_files_is_what_was_seen_of_them(
    desk: Desk, meanwhile: dict[str, str | None], outcome: str, detail: str, items: Any
) -> None:
    for name, text in meanwhile.items():
        (desk.root / name).unlink() if text is None else (desk.root / name).write_text(text)
    assert repair.carry_out(desk.made.pk) == outcome
    reported = Evidence.objects.get(stream=desk.made.run_id, kind="permit.reported", effect_key=desk.made.key)
    assert detail in EvidencePayload.objects.get(stream=desk.made.run_id, seq=reported.seq).body
    assert fresh(desk.made).items == items
    assert desk.files.get("old.md") == (
        "before" if "old.md" not in (items or {}).get("gone since", []) else None
    )


def test_without_a_journal_nothing_is_put_back_and_nothing_is_proved(desk: Desk) -> None:
    for one in (desk.root / folder.OURS).glob("*.journal"):
        one.unlink()
    assert is_back(desk.made.effect).answer == "can't tell"
    assert repair.carry_out(desk.made.pk) == "not_applied"
    assert (state_of(desk.made), desk.files) == ("FAILED", {"old.md": "after", "new.md": "new"})


# What was done when its process was killed, and what the disk then says.
KILLED = [
    (("old.md", "new.md"), "VERIFIED", None),
    (("old.md",), "FAILED", {"left": ["new.md"]}),
    ((), "FAILED", {"left": ["old.md", "new.md"]}),
]


@pytest.mark.parametrize(("put_back", "state", "items"), KILLED)
def test_the_disk_says_how_far_a_process_came_that_was_killed(
    desk: Desk, put_back: tuple[str, ...], state: str, items: Any
) -> None:
    permit = dispatched(desk.made)
    if "old.md" in put_back:
        (desk.root / "old.md").write_text("before")
    if "new.md" in put_back:
        (desk.root / "new.md").unlink()
    lapse(permit, permit.step)
    drain_run(desk.made.run_id)
    assert (checked(desk.made), fresh(desk.made).items) == (state, items)
