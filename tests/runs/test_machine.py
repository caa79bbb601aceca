"""Every cell of status by transition of each machine, against tables written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django_fsm import TransitionNotAllowed

from effects.models import Approval, Compensation, Delivery, Effect
from runs.diagram import arrows
from runs.machine import JoinedFilter, Machine, MovedByMachine, Refused
from runs.models import Permit, Run, Step, StepStatus
from runs.store import Now
from tests.worlds import (
    a_compensation,
    a_delivery,
    a_permit,
    a_run,
    a_step,
    a_workspace,
    an_approval,
    an_effect,
)

pytestmark = pytest.mark.django_db

# From each status: which move leads where. What is not written here is refused.
RUN = {
    "ACTIVE": "pause>PAUSING cancel>CANCELLING abandon>ABANDONED complete>COMPLETED fail>FAILED"
    " restore>PAUSED",
    "PAUSING": "hold>PAUSED cancel>CANCELLING abandon>ABANDONED restore>PAUSED",
    "PAUSED": "resume>ACTIVE cancel>CANCELLING abandon>ABANDONED",
    "CANCELLING": "settle>CANCELLED rest_unknown>UNKNOWN time_out>CANCELLING_TIMEOUT abandon>ABANDONED",
    "CANCELLING_TIMEOUT": "settle>CANCELLED rest_unknown>UNKNOWN abandon>ABANDONED",
    "UNKNOWN": "settle>CANCELLED abandon>ABANDONED",
    "CANCELLED": "",
    "COMPLETED": "",
    "FAILED": "",
    "ABANDONED": "",
}
# `finish_partly` stands wherever `withhold` does: a step of which an effect took place is never WITHHELD.
STEP = {
    "PENDING": "claim>CLAIMED wait_for_approval>WAITING_APPROVAL withhold>WITHHELD finish_partly>PARTIAL",
    "CLAIMED": "dispatch>DISPATCHED wait_for_approval>WAITING_APPROVAL release>PENDING withhold>WITHHELD"
    " finish_partly>PARTIAL",
    "WAITING_APPROVAL": "grant>PENDING withhold>WITHHELD finish_partly>PARTIAL",
    "DISPATCHED": "succeed>SUCCEEDED finish_partly>PARTIAL fail>FAILED lose>UNKNOWN"
    " wait_for_approval>WAITING_APPROVAL release>PENDING withhold>WITHHELD",
    "RETRY_WAIT": "fall_due>PENDING withhold>WITHHELD finish_partly>PARTIAL",
    "SUCCEEDED": "",
    "PARTIAL": "",
    "FAILED": "wait_for_retry>RETRY_WAIT",
    "UNKNOWN": "succeed>SUCCEEDED finish_partly>PARTIAL fail>FAILED",
    "WITHHELD": "",
}
PERMIT = {
    "OPEN": "report>REPORTED not_sent>NOT_SENT lose>LOST",
    "REPORTED": "",
    "NOT_SENT": "",
    "LOST": "report>REPORTED not_sent>NOT_SENT",
}
EFFECT = {
    "DECLARED": "dispatch>DISPATCHED never_start>NOT_STARTED",
    "DISPATCHED": "confirm>CONFIRMED confirm_partly>PARTIAL deny>NOT_APPLIED lose>UNKNOWN take_back>DECLARED",
    "CONFIRMED": "contradict>UNKNOWN",
    "PARTIAL": "contradict>UNKNOWN",
    "NOT_APPLIED": "dispatch>DISPATCHED contradict>UNKNOWN",
    "NOT_STARTED": "contradict>UNKNOWN",
    "UNKNOWN": "confirm>CONFIRMED confirm_partly>PARTIAL deny>NOT_APPLIED accept_unknown>ACCEPTED_UNKNOWN",
    "ACCEPTED_UNKNOWN": "confirm>CONFIRMED confirm_partly>PARTIAL deny>NOT_APPLIED",
}
APPROVAL = {
    "GIVEN": "consume>CONSUMED revoke>REVOKED void>VOID expire>EXPIRED",
    "CONSUMED": "",
    "REVOKED": "",
    "VOID": "",
    "EXPIRED": "",
}
DELIVERY = {
    "QUEUED": "dispatch>DISPATCHED hold>HELD withhold>WITHHELD",
    "DISPATCHED": "hand_over>HANDED_OVER fail>NOT_HANDED_OVER lose>UNKNOWN take_back>QUEUED",
    "HELD": "queue_again>QUEUED withhold>WITHHELD",
    "WITHHELD": "",
    "HANDED_OVER": "contradict>UNKNOWN",
    "NOT_HANDED_OVER": "queue_again>QUEUED withhold>WITHHELD contradict>UNKNOWN",
    "UNKNOWN": "hand_over>HANDED_OVER fail>NOT_HANDED_OVER accept_unknown>ACCEPTED_UNKNOWN",
    "ACCEPTED_UNKNOWN": "hand_over>HANDED_OVER fail>NOT_HANDED_OVER",
}
COMPENSATION = {
    "PROPOSED": "approve>APPROVED reject>REJECTED expire>EXPIRED void>VOID not_needed>NOT_NEEDED",
    "APPROVED": "dispatch>DISPATCHED expire>EXPIRED void>VOID withdraw_approval>PROPOSED",
    "REJECTED": "",
    "EXPIRED": "",
    "VOID": "",
    "NOT_NEEDED": "",
    "DISPATCHED": "verify>VERIFIED fail>FAILED lose>UNKNOWN take_back>PROPOSED",
    "VERIFIED": "",
    "FAILED": "not_needed>NOT_NEEDED",
    "UNKNOWN": "verify>VERIFIED fail>FAILED accept_unknown>ACCEPTED_UNKNOWN",
    "ACCEPTED_UNKNOWN": "",
}
TABLES: dict[type[Machine], dict[str, str]] = {
    Run: RUN,
    Step: STEP,
    Permit: PERMIT,
    Effect: EFFECT,
    Delivery: DELIVERY,
    Compensation: COMPENSATION,
    Approval: APPROVAL,
}
FIELDS: dict[type[Machine], str] = {
    Run: "status",
    Step: "status",
    Permit: "state",
    Effect: "settlement",
    Delivery: "state",
    Compensation: "state",
    Approval: "state",
}

# How much each move of a run raises `cancel_version`; the others leave it alone.
RISES = {"pause": 1, "cancel": 1, "abandon": 1, "resume": 1, "restore": 1_000_000}

ARGUMENTS: dict[tuple[type[Machine], str], Callable[[], tuple[Any, ...]]] = {
    (Run, "complete"): lambda: (1,),
    (Run, "resume"): lambda: ({"admitted_epoch": 7},),
    (Step, "claim"): lambda: ("w-2", "another token", 1, Now()),
    (Step, "dispatch"): lambda: (Now(),),
    (Step, "wait_for_retry"): lambda: (Now(),),
    (Permit, "report"): lambda: ("applied",),
    (Effect, "dispatch"): lambda: (a_permit(),),
    (Effect, "confirm"): lambda: ("reported",),
    (Effect, "confirm_partly"): lambda: ("reported",),
    (Effect, "deny"): lambda: ("reported",),
    (Effect, "lose"): lambda: ("the answer was lost",),
    (Effect, "contradict"): lambda: ("the provider says otherwise",),
    (Delivery, "dispatch"): lambda: (a_permit(),),
    (Delivery, "queue_again"): lambda: (3,),
    (Compensation, "reject"): lambda: ("user:1", "not this one"),
    (Compensation, "void"): lambda: ("system", "its run was resumed"),
    (Compensation, "not_needed"): lambda: ("user:1", "the customer kept it"),
    (Compensation, "dispatch"): lambda: (a_permit(),),
    (Compensation, "verify"): lambda: ("looked up",),
    (Compensation, "fail"): lambda: ("looked up",),
    (Compensation, "lose"): lambda: ("the answer was lost",),
    (Approval, "consume"): lambda: (a_permit(), "as approved"),
    (Delivery, "lose"): lambda: ("the answer was lost",),
    (Delivery, "contradict"): lambda: ("a second person says otherwise",),
}


def made(model: type[Machine], status: str) -> Any:
    """A row of this machine that stands at `status`."""
    if model is Run:
        return a_run(status)
    if model is Step:
        return a_step(status=status)
    if model is Approval:
        return an_approval(state=status)
    if model is Delivery:
        return a_delivery(state=status)
    if model is Compensation:
        return a_compensation(state=status)
    return a_permit(state=status) if model is Permit else an_effect(settlement=status)


def told(table: dict[str, str]) -> dict[str, dict[str, str]]:
    """status → {move: target}."""
    return {status: dict(word.split(">") for word in words.split()) for status, words in table.items()}


def moves(table: dict[str, str]) -> list[str]:
    return sorted({move for targets in told(table).values() for move in targets})


def cells() -> list[Any]:
    return list(each_cell())


def each_cell() -> Iterator[Any]:
    for model, table in TABLES.items():
        for status, targets in told(table).items():
            for move in moves(table):
                name = f"{model.__name__}-{status}-{move}"
                yield pytest.param(model, status, move, targets.get(move), id=name)


def columns(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = type(row).objects.filter(pk=row.pk).values().get()
    return found


def call(rows: Any, model: type[Machine], move: str) -> tuple[int, list[str]]:
    """The number of rows moved, and the statements that it took."""
    arguments = ARGUMENTS.get((model, move), tuple)()
    with CaptureQueriesContext(connection) as captured:
        try:
            moved: int = getattr(model, move)(rows, *arguments)
        except Refused:
            moved = 0
    return moved, [query["sql"] for query in captured.captured_queries]


# --- The tables -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I5")
@pytest.mark.parametrize(("model", "status", "move", "target"), cells())
def test_a_move_is_one_update_and_goes_only_where_the_table_says(
    model: type[Machine], status: str, move: str, target: str | None
) -> None:
    row = made(model, status)
    before = columns(row)
    moved, statements = call(row, model, move)
    after = columns(row)
    assert len(statements) == 1
    assert statements[0].startswith("UPDATE")
    assert "SELECT" not in statements[0] or move == "complete"
    assert moved == (1 if target else 0)
    if target is None:
        assert after == before
        assert getattr(row, FIELDS[model]) == status
    else:
        assert after[FIELDS[model]] == target
        assert getattr(row, FIELDS[model]) == target


@pytest.mark.invariant("I5")
@pytest.mark.parametrize(
    ("model", "move"), [(model, move) for model, table in TABLES.items() for move in moves(table)]
)
def test_a_move_of_many_rows_moves_in_one_update_exactly_those_that_may_move(
    model: type[Machine], move: str
) -> None:
    table = told(TABLES[model])
    rows = {status: made(model, status) for status in table}
    before = {status: columns(row) for status, row in rows.items()}
    moved, statements = call(model.objects.filter(pk__in=[row.pk for row in rows.values()]), model, move)
    allowed = {status: targets[move] for status, targets in table.items() if move in targets}
    assert (moved, len(statements)) == (len(allowed), 1)
    for status, row in rows.items():
        after = columns(row)
        assert after[FIELDS[model]] == allowed.get(status, status)
        assert status in allowed or after == before[status]


@pytest.mark.parametrize("model", TABLES)
def test_the_graph_of_django_fsm_is_the_table(model: type[Machine]) -> None:
    graph = {(arrow.source, arrow.name, arrow.target) for arrow in arrows(model, FIELDS[model])}
    table = told(TABLES[model])
    assert graph == {(status, move, to) for status, targets in table.items() for move, to in targets.items()}


@pytest.mark.parametrize("model", TABLES)
def test_the_table_names_every_status_of_the_machine(model: type[Machine]) -> None:
    field: Any = model._meta.get_field(FIELDS[model])
    assert {value for value, _ in field.choices} == set(TABLES[model])


@pytest.mark.invariant("I5")
@pytest.mark.parametrize("move", moves(RUN))
def test_the_version_rises_exactly_where_the_table_says(move: str) -> None:
    source = next(status for status, targets in told(RUN).items() if move in targets)
    run = a_run(source)
    assert call(run, Run, move)[0] == 1
    assert columns(run)["cancel_version"] == 1 + RISES.get(move, 0)
    assert run.cancel_version == 1 + RISES.get(move, 0)


def test_a_refused_move_is_one_that_django_fsm_calls_not_allowed() -> None:
    with pytest.raises(TransitionNotAllowed, match="complete"):
        Run.complete(a_run("CANCELLING"), 1)


def test_an_effect_counts_its_dispatches_and_keeps_the_permit_of_the_last() -> None:
    effect, first, second = an_effect(), a_permit(), a_permit()
    Effect.dispatch(effect, first)
    Effect.deny(effect, "reported")
    Effect.dispatch(effect, second)
    after = columns(effect)
    assert (after["attempt"], after["permit_id"], after["settled_at"]) == (2, second.pk, None)


# --- COMPLETED has a guard --------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [0, 2, -1])
def test_a_run_completes_only_at_the_version_that_its_runtime_saw(seen: int) -> None:
    run = a_run()
    with pytest.raises(Refused):
        Run.complete(run, seen)
    assert columns(run)["status"] == "ACTIVE"


@pytest.mark.parametrize("status", list(STEP))
def test_a_run_completes_only_with_no_step_claimed_or_dispatched(status: str) -> None:
    run = a_run()
    a_step(run, status)
    a_step(status="CLAIMED")  # another run's
    assert Run.complete(Run.objects.filter(pk=run.pk), 1) == (status not in ("CLAIMED", "DISPATCHED"))


@pytest.mark.parametrize("state", list(PERMIT))
def test_a_run_completes_only_with_no_permit_open(state: str) -> None:
    run = a_run()
    a_permit(a_step(run, "SUCCEEDED"), state)
    a_permit()  # another run's
    assert Run.complete(Run.objects.filter(pk=run.pk), 1) == (state != "OPEN")


def test_a_run_may_fail_whatever_is_still_open() -> None:
    run = a_run()
    a_permit(a_step(run, "DISPATCHED"))
    Run.fail(run)
    assert columns(run)["status"] == "FAILED"


# --- No other way to move a row ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", TABLES)
def test_save_writes_no_moved_column(model: type[Machine]) -> None:
    status = next(iter(TABLES[model]))
    row = made(model, status)
    before = columns(row)
    target = list(TABLES[model])[-1]
    setattr(row, FIELDS[model], target)
    for keywords in ({}, {"update_fields": [FIELDS[model]]}, {"update_fields": None}):
        with pytest.raises(MovedByMachine):
            row.save(**keywords)
    assert columns(row) == before


def test_save_writes_no_version_and_writes_the_columns_that_nobody_moves() -> None:
    run = a_run()
    run.cancel_version, run.summary = 0, "all done"
    with pytest.raises(MovedByMachine):
        run.save(update_fields=["cancel_version", "summary"])
    run.save(update_fields=["summary"])
    assert (columns(run)["cancel_version"], columns(run)["summary"]) == (1, "all done")


@pytest.mark.parametrize("model", TABLES)
def test_update_writes_no_moved_column(model: type[Machine]) -> None:
    row = made(model, next(iter(TABLES[model])))
    field, target = FIELDS[model], list(TABLES[model])[-1]
    before = columns(row)
    rows: Any = model.objects.filter(pk=row.pk)
    setattr(row, field, target)
    with pytest.raises(MovedByMachine):
        rows.update(**{field: target})
    with pytest.raises(MovedByMachine), transaction.atomic():
        rows.bulk_update([row], [field])
    with pytest.raises(MovedByMachine), transaction.atomic():
        rows.update_or_create(defaults={field: target}, pk=row.pk)
    assert columns(row) == before


def test_update_writes_no_version_not_even_upwards() -> None:
    run = a_run()
    with pytest.raises(MovedByMachine, match=r"Run\.cancel_version"):
        Run.objects.filter(pk=run.pk).update(cancel_version=F("cancel_version") + 1)
    assert columns(run)["cancel_version"] == 1


def test_an_upsert_writes_no_moved_column() -> None:
    run = a_run("CANCELLING", cancel_version=2)
    again = Run(pk=run.pk, workspace=run.workspace, key=run.key, status="ACTIVE", cancel_version=3)
    with pytest.raises(MovedByMachine):
        Run.objects.bulk_create(
            [again], update_conflicts=True, unique_fields=["id"], update_fields=["status", "cancel_version"]
        )
    assert columns(run)["status"] == "CANCELLING"


@pytest.mark.parametrize(
    ("name", "related"), [("steps", a_step), ("permits", a_permit), ("effects", an_effect)]
)
def test_a_related_manager_moves_no_row_either(name: str, related: Callable[[], Any]) -> None:
    row = related()
    field = FIELDS[type(row)]
    with pytest.raises(MovedByMachine):
        getattr(row.run, name).update(**{field: list(TABLES[type(row)])[-1]})


# --- The joined-filter trap -------------------------------------------------------------------------------


def test_a_guard_is_an_own_row_condition_or_an_exists_never_a_join() -> None:
    run = a_run()
    with CaptureQueriesContext(connection) as captured:
        Run.complete(run, 1)
    (sql,) = [query["sql"] for query in captured.captured_queries]
    assert "IN (SELECT" not in sql
    assert "JOIN" not in sql


def test_a_move_through_a_joined_filter_is_refused_before_it_reaches_the_database() -> None:
    """It would compile to `id IN (SELECT …)`, which a lock wait does not check again."""
    step = a_step(status=StepStatus.CLAIMED)
    joined: Any = Step.objects.filter(pk=step.pk, run__status="ACTIVE")
    with CaptureQueriesContext(connection) as captured:
        with pytest.raises(JoinedFilter):
            Step.dispatch(joined, Now())
        with pytest.raises(JoinedFilter):
            joined.update(detail="a column of its own")
    assert captured.captured_queries == []
    assert columns(step)["status"] == StepStatus.CLAIMED


def test_a_row_is_born_in_any_status_and_only_known_ones() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        a_run("CANCELED", workspace=a_workspace())
