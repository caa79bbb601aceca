"""The second look: a fresh read directly before the send, for the holder only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runs import gate
from runs.access import NotFound
from runs.models import Permit
from tests.worlds import (
    World,
    a_permit,
    a_run,
    a_step,
    in_seconds,
)

pytestmark = pytest.mark.django_db


@pytest.mark.invariant("I7")
def test_a_look_before_the_stop_is_open_and_one_after_it_is_shut(world: World) -> None:
    run = world.run()
    permit = world.opened(run).permit
    assert gate.look(permit.pk, permit.token).answer == "open"
    world.stop(run)
    look = gate.look(permit.pk, permit.token)
    assert (look.answer, look.run_status, look.current_version) == ("shut", "CANCELLING", 2)


@pytest.mark.invariant("I7")
def test_a_permit_expires_by_the_clock_of_the_database(world: World) -> None:
    permit = world.opened(world.run()).permit
    Permit.objects.filter(pk=permit.pk).update(permit_until=in_seconds(0))
    look = gate.look(permit.pk, permit.token)
    assert look.answer == "expired"
    assert look.permit_until <= look.looked_at


@pytest.mark.parametrize("outcome", ["applied", "not_sent", "unknown"])
def test_a_permit_whose_holder_reported_has_ended(world: World, outcome: str) -> None:
    opened = world.opened(world.run())
    world.report(opened, outcome)
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "ended"


def test_a_lost_permit_has_ended(world: World) -> None:
    permit = a_permit(a_step(a_run(workspace=world.workspace), "DISPATCHED"), "LOST")
    assert gate.look(permit.pk, permit.token).answer == "ended"


@pytest.mark.parametrize("status", ["CANCELLING", "PAUSING", "PAUSED", "COMPLETED", "FAILED", "ABANDONED"])
def test_a_look_is_open_only_while_the_run_is_active(status: str) -> None:
    permit = a_permit(a_step(a_run(status), "DISPATCHED"))
    assert gate.look(permit.pk, permit.token).answer == "shut"


def test_a_foreign_token_learns_nothing_from_a_look(world: World) -> None:
    run = world.run()
    mine, other = world.opened(run, "a").permit, world.opened(run, "b").permit
    for token in ("", other.token, mine.token[:-1], mine.token + "0"):
        with pytest.raises(NotFound):
            gate.look(mine.pk, token)
    with pytest.raises(NotFound):
        gate.look("prm_absent", mine.token)


@pytest.mark.invariant("I7")
def test_a_look_reads_afresh_in_one_statement(
    world: World, django_assert_num_queries: Callable[[int], Any]
) -> None:
    permit = world.opened(world.run()).permit
    for _ in range(2):
        with django_assert_num_queries(1) as captured:
            gate.look(permit.pk, permit.token)
        assert captured.captured_queries[0]["sql"].startswith("SELECT")
