"""The clock after a wait, the numbers of evidence, and rows that heartbeats lock beside a stop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import F, QuerySet

from effects import intents
from effects.drain import drain_run
from runs.guard import Refusal
from runs.models import Evidence, Permit, Run, Step
from runs.models import Refusal as RefusalRow
from tests.races.sides import sides, together
from tests.worlds import World, fresh, in_seconds, intention, lapse

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


# --- The clock after a wait -------------------------------------------------------------------------------


@pytest.mark.invariant("I23")
@pytest.mark.only("postgresql")
def test_a_lease_that_ran_out_while_its_holder_waited_is_lost() -> None:
    """now() is when the transaction began; what counts is the clock after the wait."""
    world = World()
    run = world.run()
    step = world.claimed(run)
    with sides() as make:
        other = make("other", lambda: world.claimed(run, "another"), hold="COMMIT")
        other.stands()
        holder = make("holder", lambda: intents.dispatch(world.ask_of(step), intention()))
        assert holder.waits_for(other)  # its transaction has begun, with the lease still running
        Step.objects.filter(pk=step.pk).update(lease_until=in_seconds(0))
        other.result()
        refusal = holder.result()
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, Permit.objects.count()) == ("lost_claim", 0)


@pytest.mark.only("postgresql")
def test_the_time_at_which_a_transaction_began_would_have_let_it_pass() -> None:
    """The control: the same wait, with now() instead of the clock."""
    world = World()
    run = world.run()
    step = world.claimed(run)

    def by_now_and_by_clock() -> tuple[bool, bool]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [run.pk])
            sql = "SELECT lease_until > now(), lease_until > clock_timestamp() FROM runs_step WHERE id = %s"
            cursor.execute(sql, [step.pk])
            found: tuple[bool, bool] = cursor.fetchone()
            return found

    with sides() as make:
        other = make("other", lambda: world.claimed(run, "another"), hold="COMMIT")
        other.stands()
        holder = make("holder", by_now_and_by_clock)
        assert holder.waits_for(other)
        Step.objects.filter(pk=step.pk).update(lease_until=in_seconds(0))
        other.result()
        assert holder.result() == (True, False)


# --- Evidence ---------------------------------------------------------------------------------------------


@pytest.mark.invariant("I26")
def test_lines_that_are_written_at_once_are_numbered_without_a_gap_and_no_reader_misses_one() -> None:
    world = World()
    run = world.run()
    read: list[int] = []

    def write(worker: int) -> None:
        for n in range(12):
            world.claimed(run, f"step-{worker}-{n}")

    def follow() -> None:
        """As a page does, which waits between its questions: without the pause this thread keeps taking
        the interpreter from the writer in its turn, who lets go of it at each statement."""
        while len(read) < 1 + 4 * 12 * 2:
            after = read[-1] if read else 0
            newer = Evidence.objects.filter(stream=run.pk, seq__gt=after).order_by("seq")
            read.extend(newer.values_list("seq", flat=True))
            time.sleep(0.001)

    assert together([follow, *[partial(write, n) for n in range(4)]]) == [None] * 5
    assert read == list(range(1, 1 + 1 + 4 * 12 * 2))


@pytest.mark.only("postgresql")
def test_a_reader_behind_a_sequence_misses_the_line_that_commits_late() -> None:
    """The control: numbers from a sequence are given before the commit, in another order than the commits."""
    world = World()
    run = world.run()

    def insert() -> int:
        with transaction.atomic():
            row = RefusalRow.objects.create(
                run=run,
                workspace=world.workspace,
                boundary="claim",
                reason="stopped",
                step_key=str(id(object())),
            )
            return int(row.pk)

    with sides() as make:
        early = make("early", insert, hold="COMMIT")
        early.stands()
        late = make("late", insert)
        assert not late.waits_for(early)
        last_seen = late.result()
        missed = early.result()
    assert missed < last_seen
    assert list(RefusalRow.objects.filter(pk__gt=last_seen)) == []
    assert RefusalRow.objects.filter(pk=missed).exists()


@pytest.mark.only("postgresql")
def test_without_the_lock_of_the_stream_two_writers_take_the_same_number() -> None:
    """The control: the last number is read, one is added, and both write it; the key refuses the second."""
    world = World()
    run = world.run()

    def append() -> None:
        with transaction.atomic():
            last = Evidence.objects.filter(stream=run.pk).latest("seq").seq
            Evidence.objects.bulk_create([Evidence(stream=run.pk, seq=last + 1, kind="x", actor="y")])

    with sides() as make:
        first = make("first", append, hold="COMMIT")
        first.stands()
        second = make("second", append)
        assert second.waits_for(first)
        first.result()
        with pytest.raises(IntegrityError):
            second.result()


# --- Heartbeats -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I20")
def test_heartbeats_over_many_steps_and_a_stop_end_without_a_deadlock() -> None:
    world = World()
    before = deadlocks()
    for n in range(4):
        run = world.run(f"run-{n}")
        tokens = [world.claimed(run, f"step-{m}").claim_token for m in range(30)]
        for some in (tokens[::3], tokens[1::3], tokens[::2], tokens[::-5]):
            world.heartbeat(run, *some)  # so that the rows lie in another order than their keys
        beats = [partial(by_index, world.heartbeat, run, *mixed(tokens, m)) for m in range(5)]
        drains = [partial(by_index, drain_run, run.pk)] * 2
        answers = together([*beats, *drains, partial(by_index, world.stop, run)])
        assert [answer for answer in answers if isinstance(answer, BaseException)] == []
        assert Step.objects.filter(run=run, status="WITHHELD").count() == 30
    assert deadlocks() == before


def or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OperationalError as error:
        return error


def mixed(tokens: list[str], seed: int) -> list[str]:
    return random.Random(seed).sample(tokens, len(tokens))


def by_index(call: Callable[..., Any], *arguments: Any) -> Any:
    """With the plans of large tables, which visit rows in the order of an index."""
    if connection.vendor == "sqlite":
        return call(*arguments)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        try:
            return call(*arguments)
        finally:
            cursor.execute("RESET enable_seqscan; RESET enable_bitmapscan")


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I20")
def test_two_updates_of_many_rows_in_different_orders_are_a_deadlock() -> None:
    """The control: what the order of keys is for."""
    world = World()
    before = deadlocks()
    run = world.run()
    one, two = world.claimed(run, "one"), world.claimed(run, "two")

    def touch(first: Step, second: Step) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            Step.objects.filter(pk=first.pk).update(detail="first")
            cursor.execute("SELECT 'between'")
            Step.objects.filter(pk=second.pk).update(detail="second")

    with sides() as make:
        left = make("left", lambda: touch(one, two), hold="SELECT 'between'")
        right = make("right", lambda: touch(two, one), hold="SELECT 'between'")
        left.stands()
        right.stands()
        left.go()
        assert left.waits_for(right)
        ended = [or_error(side.result) for side in (right, left)]
    assert sum("deadlock" in str(one) for one in ended) == 1
    assert deadlocks() == before + 1


@pytest.mark.only("postgresql")
def test_a_drain_that_waited_for_a_heartbeat_finds_the_lease_renewed() -> None:
    world = World()
    run = world.run()
    opened = world.opened(run)
    lapse(opened.permit, opened.step)
    with sides() as make:
        heart = make(
            "heartbeat", lambda: world.heartbeat(run, opened.permit.token), hold='UPDATE "runs_permit"'
        )
        heart.stands()
        controller = make("drain", lambda: drain_run(run.pk))
        assert controller.waits_for(heart)
        assert heart.result().renewed == 1
        assert controller.result() == "ACTIVE"
    assert (fresh(opened.permit).state, fresh(opened.step).status) == ("OPEN", "DISPATCHED")


def deadlocks() -> int:
    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I5")
def test_a_plain_queryset_is_no_way_past_the_triggers() -> None:
    """What a machine does not refuse, because nobody asked it, the database does."""
    world = World()
    run = world.run()
    world.stop(run)
    rows: QuerySet[Run] = QuerySet(model=Run)
    with pytest.raises(IntegrityError):
        rows.filter(pk=run.pk).update(status="ACTIVE", cancel_version=F("cancel_version") - 1)
