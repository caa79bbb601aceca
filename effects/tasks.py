"""Celery's tasks of this room. They take ids, call one verb, and may come twice, late or never."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest

from celery import shared_task

from runs import children, everywhere, fanout, releases, schedules, silence, step_stops, stops, wake
from runs import drain as due
from runs.tasks import alone, each, leaving, with_own_connection

from . import (
    approvals,
    care,
    deliveries,
    drain,
    executor,
    forwarder,
    forwards,
    handover,
    inbound,
    jobs,
    queue,
    reconcile,
    repair,
    unknowns,
)
from .lookup import ask_job, check_effect

log = logging.getLogger(__name__)

PASS_S = 10.0  # a pass asks nobody anew after this: what fell due meanwhile has its turn
AT_ONCE = 4  # look-ups of one process at a time: a provider that is down must not take all threads
RUNS_A_SWEEP = 1_000


@shared_task(name="effects.tasks.execute")
@with_own_connection
def execute(effect_id: str) -> None:
    """Send one queued effect, if the gate lets it."""
    if not leaving():
        log.info("%s: %s", effect_id, executor.execute(effect_id))


@shared_task(name="effects.tasks.deliver")
@with_own_connection
def deliver(delivery_id: str) -> None:
    """Hand one queued delivery over, if the gate lets it."""
    if not leaving():
        log.info("%s: %s", delivery_id, handover.deliver(delivery_id))


@shared_task(name="effects.tasks.forward")
@with_own_connection
def forward(effect_id: str) -> None:
    """Ask a provider to cancel, as a stop wants it, if the gate lets it."""
    if not leaving():
        log.info("%s: %s", effect_id, forwarder.forward(effect_id))


@shared_task(name="effects.tasks.repair")
@with_own_connection
def carry_out(compensation_id: str) -> None:
    """Send one approved compensation, if the gate lets it."""
    if not leaving():
        log.info("%s: %s", compensation_id, repair.carry_out(compensation_id))


@shared_task(name="effects.tasks.take_waiting")
@with_own_connection
def take_waiting(effect_id: str) -> None:
    """Let the webhooks that came before this effect settle what they settle."""
    if not leaving():
        each(inbound.apply_waiting, inbound.of_effect(effect_id))


@shared_task(name="effects.tasks.sweep")
@with_own_connection
@alone
def sweep() -> None:
    """Drain what is due, let retries fall due, wake the executor for what it did not hear of."""
    _press_scheduled()
    each(everywhere.carry_on, everywhere.to_carry_on())
    each(drain.drain_run, due.runs_due(RUNS_A_SWEEP))
    _fan_out()
    each(queue.fall_due, queue.retries_due())
    for effect_id in queue.waiting():
        wake.run_soon("effects.tasks.execute", effect_id)
    for delivery_id in deliveries.waiting():
        wake.run_soon("effects.tasks.deliver", delivery_id)
    for compensation_id in repair.waiting():
        wake.run_soon("effects.tasks.repair", compensation_id)
    for effect_id in forwards.waiting():
        wake.run_soon("effects.tasks.forward", effect_id)
    each(stops.end_waiting, stops.waiting_over())
    each(releases.end, releases.over())
    each(step_stops.close_if_over, step_stops.to_close())
    each(fanout.close_if_over, fanout.to_close())
    each(silence.record_stop, silence.due())
    each(children.pass_on, children.to_pass_on())
    each(approvals.expire, approvals.over())
    each(care.tell_overdue, unknowns.overdue())
    each(inbound.apply_waiting, inbound.to_apply())
    each(inbound.forget, inbound.over())


def _press_scheduled() -> None:
    """Those whose moment has come, for as long as a pass may take; each goes on to its runs for a second."""
    end = time.monotonic() + PASS_S
    for scheduled_id in schedules.due():
        if time.monotonic() < end:
            each(schedules.press, [scheduled_id])


def _fan_out() -> None:
    """Stops of scopes go on to their runs, each for its share of a pass and for one chunk at least: a huge
    one, or one that waits for a run that somebody holds, keeps no other waiting.
    """
    end, ids = time.monotonic() + PASS_S, fanout.to_carry_on()
    for place, stop_id in enumerate(ids):
        share = max(0.0, end - time.monotonic()) / (len(ids) - place)
        each(partial(fanout.carry_on, within_s=share), [stop_id])


@shared_task(name="effects.tasks.reconcile_due")
@with_own_connection
@alone
def reconcile_due() -> None:
    """Look up effects and compensations whose check is due, and ask how far jobs are: of each in turn, so
    that no number of slow ones keeps the others from being asked in this pass.
    """
    end = time.monotonic() + PASS_S
    kinds = ((_check, reconcile.due()), (_verify, repair.due()), (_ask, jobs.due()))
    turns = zip_longest(*([partial(ask, one) for one in ids] for ask, ids in kinds))
    with ThreadPoolExecutor(AT_ONCE, "allstop-look-up") as threads:
        list(threads.map(partial(_in_time, end), [ask for turn in turns for ask in turn if ask]))


@shared_task(name="effects.tasks.check")
@with_own_connection
def check(effect_id: str) -> None:
    """Look up one effect, if its check is due."""
    if not leaving():
        check_effect(effect_id)


def _in_time(end: float, ask: Callable[[], None]) -> None:
    if time.monotonic() < end:
        ask()


@with_own_connection
def _verify(compensation_id: str) -> None:
    if not leaving():
        each(repair.check, [compensation_id])


@with_own_connection
def _ask(effect_id: str) -> None:
    if not leaving():
        each(ask_job, [effect_id])


@with_own_connection
def _check(effect_id: str) -> None:
    if not leaving():
        each(check_effect, [effect_id])
