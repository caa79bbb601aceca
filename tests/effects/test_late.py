"""What a holder says of its call, early, late, twice or wrongly; and what absence proves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from effects import reconcile
from effects.drain import drain_run
from effects.models import Effect, Kind
from effects.reconcile import Answer, Asked
from effects.settle import AlreadyReported, LostClaim, Told, report
from runs.access import NotAllowed, NotFound
from runs.guard import Opened
from runs.models import Permit, Run, Step
from runs.store import database_time
from tests.worlds import World, a_kind, a_permit, a_run, a_step, an_effect, fresh, in_seconds, kinds_of, lapse

pytestmark = pytest.mark.django_db

# what the holder says while the effect is in progress, and what becomes of effect and step
WORDS = {
    "applied": ("CONFIRMED", "SUCCEEDED", "REPORTED"),
    "partial": ("PARTIAL", "PARTIAL", "REPORTED"),
    "not_applied": ("NOT_APPLIED", "FAILED", "REPORTED"),
    "unknown": ("UNKNOWN", "UNKNOWN", "REPORTED"),
    "not_sent": ("DECLARED", "PENDING", "NOT_SENT"),
}


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("word", "after"), WORDS.items())
def test_a_report_settles_the_effect_the_permit_and_the_step(
    world: World, word: str, after: tuple[str, str, str]
) -> None:
    run = world.run()
    reported = world.report(world.opened(run), word, result={"id": "ch_1"})
    effect, step, permit = Effect.objects.get(), Step.objects.get(), Permit.objects.get()
    assert (effect.settlement, step.status, permit.state) == after
    assert (permit.outcome, reported.late, effect.late) == (word, False, False)
    assert fresh(run).status == "ACTIVE"


@pytest.mark.invariant("I10")
def test_after_a_stop_a_permit_that_was_not_sent_withholds_its_step_and_starts_nothing(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    world.stop(run)
    world.report(opened, "not_sent")
    assert (Effect.objects.get().settlement, fresh(opened.step).status) == ("NOT_STARTED", "WITHHELD")
    assert (fresh(run).status, fresh(opened.permit).state) == ("CANCELLED", "NOT_SENT")


@pytest.mark.invariant("I10")
def test_only_the_holder_of_the_token_may_attest_that_nothing_was_sent(world: World) -> None:
    run = world.run()
    opened, other = world.opened(run, "a"), world.opened(run, "b")
    for token in ("", "forged", other.permit.token):
        with pytest.raises(LostClaim):
            report(actor=world.agent, permit_id=opened.permit.pk, token=token, told=Told("not_sent"))
    for actor, error in (
        (world.foreign_agent, NotFound),
        (world.mallory, NotFound),
        (world.alice, NotAllowed),
    ):
        with pytest.raises(error):
            report(actor=actor, permit_id=opened.permit.pk, token=opened.permit.token, told=Told("not_sent"))
    assert fresh(opened.permit).state == "OPEN"


def test_the_same_report_again_changes_nothing(world: World) -> None:
    run = world.run()
    opened = world.opened(run)
    for word in ("unknown", "unknown", "applied", "applied"):
        world.report(opened, word)
    assert kinds_of(run).count("permit.reported") == 1
    assert kinds_of(run).count("permit.reported_late") == 1
    assert Effect.objects.get().settlement == "CONFIRMED"


@pytest.mark.parametrize("first", ["applied", "partial", "not_applied", "not_sent"])
@pytest.mark.parametrize("second", ["applied", "partial", "not_applied", "not_sent", "unknown"])
def test_a_second_report_that_says_otherwise_is_refused_and_the_first_stands(
    world: World, first: str, second: str
) -> None:
    run = world.run()
    opened = world.opened(run)
    world.report(opened, first)
    before = (Effect.objects.get().settlement, kinds_of(run))
    if first == second:
        world.report(opened, second)
    else:
        with pytest.raises(AlreadyReported):
            world.report(opened, second)
    assert (Effect.objects.get().settlement, kinds_of(run)) == before


# --- Late -------------------------------------------------------------------------------------------------


def lost(world: World, run: Run) -> Opened:
    """A permit whose worker was lost: LOST, its effect and step UNKNOWN."""
    opened = world.opened(run)
    lapse(opened.permit, opened.step)
    drain_run(run.pk)
    assert fresh(opened.permit).state == "LOST"
    return opened


LATE = {
    "applied": ("CONFIRMED", "SUCCEEDED"),
    "partial": ("PARTIAL", "PARTIAL"),
    "not_applied": ("NOT_APPLIED", "FAILED"),
    "not_sent": ("NOT_APPLIED", "FAILED"),
    "unknown": ("UNKNOWN", "UNKNOWN"),
}


@pytest.mark.invariant("I11")
@pytest.mark.parametrize(("word", "after"), LATE.items())
def test_a_lost_worker_that_comes_back_settles_its_effect_late(
    world: World, word: str, after: tuple[str, str]
) -> None:
    run = world.run()
    opened = lost(world, run)
    reported = world.report(opened, word)
    assert (Effect.objects.get().settlement, fresh(opened.step).status) == after
    assert (reported.late, fresh(opened.permit).state) == (
        True,
        "NOT_SENT" if word == "not_sent" else "REPORTED",
    )
    assert fresh(run).status == "ACTIVE"


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ABANDONED", "CANCELLED"])
@pytest.mark.parametrize("word", ["applied", "not_applied", "not_sent", "unknown"])
def test_a_report_after_the_end_settles_the_effect_and_moves_no_final_run(
    world: World, status: str, word: str
) -> None:
    run = a_run(status, workspace=world.workspace, cancel_version=2)
    step = a_step(run, "UNKNOWN", ends_with_effect=True)
    permit = a_permit(step, "LOST")
    effect = an_effect(step, "UNKNOWN", permit=permit)
    reported = world.report(Opened(permit, step), word)
    assert reported.late
    assert (fresh(run).status, fresh(run).cancel_version) == (status, 2)
    assert fresh(effect).settlement == LATE[word][0]
    assert any(kind.endswith("_late") for kind in kinds_of(run))


@pytest.mark.invariant("I11")
def test_a_late_report_on_a_settled_effect_is_kept_as_evidence_only(world: World) -> None:
    run = world.run()
    opened = lost(world, run)
    Effect.deny(Effect.objects.get(), "looked up")
    world.report(opened, "applied")
    assert (Effect.objects.get().settlement, Effect.objects.get().ground) == ("NOT_APPLIED", "looked up")
    assert "permit.reported_late" in kinds_of(run)


# --- What an answer of the provider proves ----------------------------------------------------------------


def unknown(world: World, state: str, *, age_s: float = 600, **kind: Any) -> Effect:
    """An UNKNOWN effect dispatched `age_s` ago, whose one permit is in `state`."""
    given: dict[str, Any] = {
        "settle_window_s": 60,
        "key_retention_s": 3600,
        "lookup": {"url": "https://bank.example/{key}"},
        "updated_at": in_seconds(-10_000),
    }
    made: Kind = a_kind(world.workspace, **{**given, **kind})
    step = a_step(a_run("UNKNOWN", workspace=world.workspace), "UNKNOWN", ends_with_effect=True)
    key = "charge:7"
    permit = a_permit(step, state, effect_key=key)
    dispatched = database_time() - timedelta(seconds=age_s)
    return an_effect(step, "UNKNOWN", permit=permit, key=key, kind=made, dispatched_at=dispatched)


ABSENT = [
    # permit, age, fencing: what absence proves
    ("REPORTED", 600, False, "NOT_APPLIED"),
    ("NOT_SENT", 600, False, "NOT_APPLIED"),
    ("LOST", 600, False, "UNKNOWN"),
    ("OPEN", 600, False, "UNKNOWN"),
    ("LOST", 600, True, "NOT_APPLIED"),
    ("REPORTED", 30, False, "UNKNOWN"),
    ("REPORTED", 30, True, "UNKNOWN"),
    ("LOST", 30, True, "UNKNOWN"),
    ("REPORTED", 4000, False, "UNKNOWN"),
    ("LOST", 4000, True, "UNKNOWN"),
]


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("state", "age", "fencing", "settlement"), ABSENT)
def test_absence_proves_something_only_when_nobody_can_still_send(
    world: World, state: str, age: float, fencing: bool, settlement: str
) -> None:
    effect = unknown(world, state, age_s=age, key_fencing=fencing)
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == settlement
    assert fresh(effect).settlement == settlement
    assert fresh(effect.run).status == ("CANCELLED" if settlement == "NOT_APPLIED" else "UNKNOWN")
    assert "effect.looked_up" in kinds_of(effect.run)


@pytest.mark.invariant("I10")
def test_absence_proves_nothing_by_rules_that_came_after_the_dispatch(world: World) -> None:
    """A kind that is changed to fence keys, or to settle at once, says nothing of what was sent before."""
    effect = unknown(world, "LOST", key_fencing=True, updated_at=in_seconds(-599))
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "UNKNOWN"
    assert reconcile.apply_answer(effect.pk, Answer("present")) == "CONFIRMED"


def test_absence_under_one_lost_permit_of_several_proves_nothing(world: World) -> None:
    effect = unknown(world, "REPORTED")
    a_permit(effect.step, "LOST", effect_key=effect.key)
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "UNKNOWN"


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(
    ("answer", "settlement", "step"),
    [
        ("present", "CONFIRMED", "SUCCEEDED"),
        ("partial", "PARTIAL", "PARTIAL"),
        ("can't tell", "UNKNOWN", "UNKNOWN"),
    ],
)
@pytest.mark.parametrize("state", ["REPORTED", "LOST", "OPEN"])
@pytest.mark.parametrize("age", [1, 600, 4000])
def test_presence_proves_at_any_time_and_a_failed_look_up_proves_nothing(
    world: World, answer: str, settlement: str, step: str, state: str, age: float
) -> None:
    effect = unknown(world, state, age_s=age)
    assert reconcile.apply_answer(effect.pk, Answer(answer)) == settlement
    assert (fresh(effect).settlement, fresh(effect.step).status) == (settlement, step)


AGREES = {
    "CONFIRMED": ("present", "can't tell"),
    "PARTIAL": ("partial", "can't tell"),
    "NOT_APPLIED": ("absent", "can't tell"),
    "NOT_STARTED": ("absent", "can't tell"),
}


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("answer", ["present", "partial", "absent", "can't tell"])
@pytest.mark.parametrize("settlement", AGREES)
@pytest.mark.parametrize("ground", ["reported", "looked up", "inspected"])
def test_a_look_up_of_a_settled_effect_settles_it_no_other_way_but_may_contradict_it(
    world: World, answer: str, settlement: str, ground: str
) -> None:
    effect = unknown(world, "REPORTED")
    Effect.objects.filter(pk=effect.pk).advance({"settlement": settlement, "ground": ground})
    reconcile.apply_answer(effect.pk, Answer(answer))
    kept = answer in AGREES[settlement] or ground == "inspected"
    assert fresh(effect).settlement == (settlement if kept else "UNKNOWN")
    assert (fresh(effect).contradicted, fresh(effect).next_check_at is None) == (not kept, kept)
    assert ("effect.unknown" in kinds_of(effect.run)) is not kept


# What happens between the question and its answer: the look-up takes seconds.


def asked_before(effect: Effect) -> Asked:
    """A look-up begun now."""
    return Asked(database_time(), fresh(effect).attempt)


@pytest.mark.invariant("I10")
def test_an_absence_that_was_seen_inside_the_window_proves_nothing_when_it_is_told_after_it(
    world: World,
) -> None:
    effect = unknown(world, "REPORTED", age_s=61)
    early = Asked(database_time() - timedelta(seconds=5), effect.attempt)
    assert reconcile.apply_answer(effect.pk, Answer("absent"), asked=early) == "UNKNOWN"
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "NOT_APPLIED"


@pytest.mark.invariant("I10")
def test_a_call_that_ended_while_the_provider_was_asked_may_have_come_after_the_answer(world: World) -> None:
    effect = unknown(world, "LOST", settle_window_s=0)
    asked = asked_before(effect)
    permit = effect.permit
    assert permit is not None
    report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=Told("unknown"))
    assert reconcile.apply_answer(effect.pk, Answer("absent"), asked=asked) == "UNKNOWN"
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "NOT_APPLIED"


@pytest.mark.invariant("I10")
def test_the_window_begins_again_with_the_end_of_a_call_that_took_long(world: World) -> None:
    """Sent at the last moment of a long call, it may show at the provider a window later."""
    effect = unknown(world, "LOST", age_s=90)
    permit = effect.permit
    assert permit is not None
    report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=Told("unknown"))
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "UNKNOWN"
    Permit.objects.filter(pk=permit.pk).update(ended_at=in_seconds(-61))
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "NOT_APPLIED"


@pytest.mark.invariant("I10")
@pytest.mark.parametrize("fencing", [False, True])
def test_an_absence_that_was_seen_before_another_attempt_says_nothing_of_it(
    world: World, fencing: bool
) -> None:
    a_kind(world.workspace, settle_window_s=0, key_fencing=fencing, lookup={"url": "https://bank.example"})
    run = world.run()
    first = world.opened(run)
    world.report(first, "unknown")
    asked = asked_before(Effect.objects.get())
    world.report(first, "not_applied")
    second = world.opened(run)
    world.report(second, "unknown")
    later = replace(asked, at=in_seconds(1))
    assert reconcile.apply_answer(Effect.objects.get().pk, Answer("absent"), asked=later) == "UNKNOWN"


@pytest.mark.invariant("I11")
@pytest.mark.parametrize(("answer", "settlement"), [("present", "CONFIRMED"), ("partial", "PARTIAL")])
def test_what_was_found_while_another_attempt_is_in_flight_has_happened(
    world: World, answer: str, settlement: str
) -> None:
    a_kind(world.workspace, lookup={"url": "https://bank.example/{key}"})
    run = world.run()
    first = world.opened(run)
    world.report(first, "not_applied")
    second = world.opened(run)
    assert reconcile.apply_answer(Effect.objects.get().pk, Answer("absent")) == "DISPATCHED"
    assert reconcile.apply_answer(Effect.objects.get().pk, Answer(answer)) == settlement
    assert fresh(second.step).status == "DISPATCHED"  # its holder is still at work
    world.report(second, "not_applied")
    assert Effect.objects.get().settlement == settlement
    assert fresh(second.step).status == ("SUCCEEDED" if answer == "present" else "PARTIAL")


@pytest.mark.invariant("I11")
def test_what_was_found_contradicts_a_report_that_came_meanwhile(world: World) -> None:
    """The worker came back while the provider was asked: "not applied", and the provider has it."""
    effect = unknown(world, "LOST")
    asked, permit = asked_before(effect), effect.permit
    assert permit is not None
    report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=Told("not_applied"))
    assert reconcile.apply_answer(effect.pk, Answer("present"), asked=asked) == "UNKNOWN"
    assert fresh(effect).contradicted


@pytest.mark.invariant("I11")
def test_an_absence_that_was_seen_before_the_report_does_not_contradict_it(world: World) -> None:
    effect = unknown(world, "LOST", key_fencing=True)
    asked, permit = asked_before(effect), effect.permit
    assert permit is not None
    report(actor=world.agent, permit_id=permit.pk, token=permit.token, told=Told("applied"))
    assert reconcile.apply_answer(effect.pk, Answer("absent"), asked=asked) == "CONFIRMED"


def test_an_unregistered_kind_proves_nothing_by_absence(world: World) -> None:
    step = a_step(a_run("UNKNOWN", workspace=world.workspace), "UNKNOWN")
    effect = an_effect(step, "UNKNOWN", permit=a_permit(step, "REPORTED"), dispatched_at=database_time())
    assert reconcile.apply_answer(effect.pk, Answer("absent")) == "UNKNOWN"


def test_a_due_look_up_is_taken_by_one_worker_only(world: World) -> None:
    effect = unknown(world, "LOST")
    Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))
    assert reconcile.due() == [effect.pk]
    assert reconcile.take_turn(effect.pk) is not None
    assert reconcile.take_turn(effect.pk) is None
    assert reconcile.due() == []


def test_looking_ends_by_its_stated_end_and_says_so_once(world: World) -> None:
    effect = unknown(world, "LOST", check_every_s=[60])
    Effect.objects.filter(pk=effect.pk).update(
        next_check_at=database_time(), check_until=database_time() + timedelta(seconds=90)
    )
    reconcile.apply_answer(effect.pk, Answer("can't tell"))
    assert fresh(effect).next_check_at is not None
    assert "reconcile.ended" not in kinds_of(effect.run)
    Effect.objects.filter(pk=effect.pk).update(check_until=database_time())
    reconcile.apply_answer(effect.pk, Answer("can't tell"))
    assert (fresh(effect).next_check_at, fresh(effect).settlement) == (None, "UNKNOWN")
    assert kinds_of(effect.run).count("reconcile.ended") == 1
