"""From QUIESCING to QUIET: receipts, leases, deadlines. Moves of one locked run, and who is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Exists, F, OuterRef, Q

from . import receipts
from .access import Actor, NotFound, demand
from .machine import MachineQuerySet
from .models import (
    BUSY,
    Permit,
    PermitState,
    Run,
    RunStatus,
    Step,
    StopRequest,
)
from .presses import stop_of
from .store import Now, one_transaction

STEPS_TOLD = 100  # stopped steps that a heartbeat names
LEASES_A_PASS = 200  # per run; each costs a few statements under the run's lock
DRAINING = (RunStatus.PAUSING, RunStatus.CANCELLING, RunStatus.CANCELLING_TIMEOUT)


@dataclass(frozen=True)
class Heard:
    """The answer to a heartbeat: where the run stands now, how many leases were renewed, which of the claims
    are not the worker's any more, and which steps that it held have a stop of their own."""

    run: Run
    stop: StopRequest | None
    renewed: int
    lost: list[str]
    stopped_steps: list[str]


def heartbeat(
    *,
    actor: Actor,
    run_id: str,
    worker: str,
    seen: int,
    tokens: list[str],
    confirmed: Mapping[str, int] | None = None,
) -> Heard:
    """A worker is alive, holds this version, and keeps the leases of these claim tokens: each lasts
    again for as long as it was asked for. `confirmed`: the version it holds at each boundary.

    Leases are renewed without the run's lock, so that no queue of dispatches lets one run out; a
    drain looks again after it has locked a row. A LOST permit stays lost.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run")
    demand(actor, "write", run)
    renewed, lost = _renew(run, tokens)
    receipts.confirm(run, worker, seen, confirmed or {})
    receipts.hear(run)
    run = Run.objects.get(pk=run.pk)
    return Heard(run, stop_of(run), renewed, lost, _stopped_steps(run, worker))


def _stopped_steps(run: Run, worker: str) -> list[str]:
    """Steps that this worker held last, and that were stopped while their run goes on; the newest."""
    rows = (
        Step.objects.filter(run=run, worker=worker, stopped_at__isnull=False)
        if worker
        else Step.objects.none()
    )
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:STEPS_TOLD])


def _renew(run: Run, tokens: list[str]) -> tuple[int, list[str]]:
    """How many permits were renewed; the tokens that hold neither a step nor a permit any more."""
    held = [token for token in tokens if token]
    if not held:
        return 0, []
    steps = Step.objects.filter(run=run, claim_token__in=held, status__in=BUSY)
    permits = Permit.objects.filter(run=run, token__in=held, state=PermitState.OPEN)
    _renew_rows(steps)
    renewed = _renew_rows(permits)
    alive = {*steps.values_list("claim_token", flat=True), *permits.values_list("token", flat=True)}
    return renewed, [token for token in held if token not in alive]


def _renew_rows(rows: MachineQuerySet) -> int:
    """Locked in key order, one table a transaction: no ring of waiters with a stop or a drain."""
    with one_transaction():
        ids = list(rows.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))
        return rows.filter(pk__in=ids).update(lease_until=Now() + F("lease")) if ids else 0


# moves of a locked run --------------------------------------------------------------------------


def lose_leases(run: Run, *, all_of_them: bool = False) -> list[Permit]:
    """OPEN permits whose lease ran out become LOST: nobody says what happened under them.

    The first few of them; the next pass finds the rest. No pass keeps a stop waiting for long.
    `all_of_them`: a pause whose deadline passed fences every lease.
    """
    rows = Permit.objects.select_for_update(no_key=True).order_by("pk")
    rows = rows.filter(run=run, state=PermitState.OPEN)
    lapsed = list((rows if all_of_them else rows.filter(lease_until__lte=Now()))[:LEASES_A_PASS])
    if lapsed:
        Permit.lose(Permit.objects.filter(pk__in=[permit.pk for permit in lapsed]))
    return lapsed


def lapsed_steps(run: Run, *, all_of_them: bool = False) -> list[Step]:
    """Steps CLAIMED or DISPATCHED whose lease ran out and that hold no OPEN permit; the first few."""
    held = Permit.objects.filter(run=run, state=PermitState.OPEN).values("step_id")
    rows = Step.objects.select_for_update(no_key=True).order_by("pk").exclude(pk__in=held)
    rows = rows.filter(run=run, status__in=BUSY)
    return list((rows if all_of_them else rows.filter(lease_until__lte=Now()))[:LEASES_A_PASS])


def is_quiet(run: Run) -> bool:
    """No permit OPEN and no step CLAIMED or DISPATCHED. Receipts are shown, never waited for."""
    return not (
        Permit.objects.filter(run=run, state=PermitState.OPEN).exists()
        or Step.objects.filter(run=run, status__in=BUSY).exists()
    )


def deadline_passed(stop: StopRequest) -> bool:
    """By the database's clock."""
    return StopRequest.objects.filter(pk=stop.pk, deadline_at__lte=Now()).exists()


def runs_due(limit: int = 200) -> list[str]:
    """Runs that a drain would move now: quiet, past their deadline, or with a lease that ran out.

    A run that only waits is left out, so that those which wait for hours hold up no other.
    """
    permits = Permit.objects.filter(state=PermitState.OPEN)
    steps = Step.objects.filter(status__in=BUSY)
    lapsed = {
        *permits.filter(lease_until__lte=Now()).values_list("run_id", flat=True).distinct()[:limit],
        *steps.filter(lease_until__lte=Now()).values_list("run_id", flat=True).distinct()[:limit],
    }
    mine = {"run_id": OuterRef("pk")}
    late = StopRequest.objects.filter(**mine, scope="run", closed_at__isnull=True, deadline_at__lte=Now())
    quiet = ~Exists(permits.filter(**mine)) & ~Exists(steps.filter(**mine))
    stopping = Run.objects.filter(status__in=DRAINING).filter(
        quiet | (~Q(status=RunStatus.CANCELLING_TIMEOUT) & Exists(late))
    )
    return sorted({*lapsed, *stopping.order_by("pk").values_list("pk", flat=True)[:limit]})
