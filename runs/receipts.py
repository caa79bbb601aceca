"""Receipts: which version each worker said it holds, at each boundary; and who was not heard of.

A receipt is shown, never waited for. A gate call is one, for the version that it carries; a heartbeat
brings those of all boundaries. Nothing is written while there is nothing new to tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import (
    Case,
    Count,
    DurationField,
    Exists,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import LessThanOrEqual

from .access import EXECUTOR
from .models import BUSY, POINTS, Receipt, Run, RunStatus, Step, Worker
from .store import Now, after

if TYPE_CHECKING:
    from .guard import Ask

EVERY_S = 5.0  # "last heard" of a worker that speaks all the time is written this often
IN_MOTION = (RunStatus.ACTIVE, RunStatus.PAUSING, RunStatus.CANCELLING, RunStatus.CANCELLING_TIMEOUT)
# Written out in the query, or SQLite could not use the index of just these runs, and would look at every one.
MOVING = [RawSQL(f"'{status.value}'", []) for status in IN_MOTION]  # noqa: S611


def question(ask: Ask) -> dict[str, Any]:
    """Read in a statement that is made anyway: what is kept of this worker at this boundary, and whether
    this call tells nothing new.

    Our own executor asks afresh for each call and holds no version in between: it gives no receipts.
    """
    if not ask.worker or ask.actor is EXECUTOR:
        return {}
    mine = Receipt.objects.filter(run_id=ask.run_id, worker=ask.worker, boundary=ask.boundary)
    told = mine.filter(version__gte=ask.seen_version, heard_at__gt=after(-EVERY_S))
    return {"told": Exists(told), "kept": Exists(mine)}


def at_gate(run: Run, ask: Ask, seen: Mapping[str, Any]) -> None:
    """A gate call, under the run's lock, last in its transaction: it carries a version at a boundary."""
    if seen.get("told", True):
        return
    hear(run)
    _hear_worker(run, ask.worker, ask.seen_version)
    _keep(run, ask.worker, ask.boundary, ask.seen_version, is_kept=seen["kept"])


def refused_at(run: Run, ask: Ask, boundary: str) -> None:
    """The same of a call that was refused."""
    ask = replace(ask, boundary=boundary)
    asked = question(ask)
    if asked:
        at_gate(run, ask, Run.objects.filter(pk=run.pk).annotate(**asked).values(*asked).get())


def hear(run: Run) -> None:
    """Somebody who works on this run gave a sign of life."""
    Run.objects.filter(pk=run.pk).update(last_heard_at=Now(), **_silence(run))


def hear_report(run: Run, worker: str) -> None:
    """The same from a report, which carries no version: one statement while it was heard just now."""
    rows = Worker.objects.filter(run=run, name=worker, last_heard_at__lt=after(-EVERY_S))
    if rows.update(last_heard_at=Now()):
        hear(run)


def confirm(run: Run, worker: str, seen: int, at: Mapping[str, int]) -> None:
    """A heartbeat's statement: the newest version that the worker holds, and the one at each boundary."""
    if not worker:
        return
    _hear_worker(run, worker, seen)
    kept = (
        set(Receipt.objects.filter(run=run, worker=worker).values_list("boundary", flat=True)) if at else ()
    )
    for boundary, version in sorted(at.items()):
        _keep(run, worker, boundary, version, is_kept=boundary in kept)


def _hear_worker(run: Run, worker: str, version: int) -> None:
    """Nobody holds a version that was not given yet: kept, it would confirm the next stop."""
    held = version if version <= run.cancel_version else None
    raised = {} if held is None else _newest("confirmed_version", held)
    if not Worker.objects.filter(run=run, name=worker).update(last_heard_at=Now(), **raised):
        said = {"confirmed_version": held, "confirmed_at": None if held is None else Now()}
        Worker.objects.bulk_create([Worker(run=run, name=worker, **said)], ignore_conflicts=True)


def _keep(run: Run, worker: str, boundary: str, version: int, *, is_kept: bool) -> None:
    if version > run.cancel_version:
        return
    mine = {"run": run, "worker": worker, "boundary": boundary}
    if is_kept:
        Receipt.objects.filter(**mine).update(heard_at=Now(), **_newest("version", version))
    else:
        Receipt.objects.bulk_create([Receipt(**mine, version=version)], ignore_conflicts=True)


def _newest(column: str, version: int) -> dict[str, Any]:
    """Raise `column` to this version, with the moment; a receipt is never taken back."""
    newer = When(Q(**{f"{column}__isnull": True}) | Q(**{f"{column}__lt": version}), then=Now())
    raised = Greatest(Coalesce(F(column), Value(0)), Value(version))
    return {column: raised, "confirmed_at": Case(newer, default=F("confirmed_at"))}


# reading ------------------------------------------------------------------------------------------


def workers(run: Run) -> QuerySet[Worker]:
    """The workers of a run, those first who are behind."""
    return Worker.objects.filter(run=run).order_by(F("confirmed_version").asc(nulls_first=True), "name")


def of(run: Run, workers: Iterable[Worker]) -> dict[str, list[Receipt]]:
    """The receipts of these workers by name, in the order of the boundaries: one query."""
    found: dict[str, list[Receipt]] = defaultdict(list)
    rows = Receipt.objects.filter(run=run, worker__in=[worker.name for worker in workers])
    for receipt in sorted(rows, key=lambda row: POINTS.index(row.boundary)):
        found[receipt.worker].append(receipt)
    return found


def standing(run: Run) -> dict[str, int]:
    """How many workers there are, and how many said that they hold the version of now."""
    holding = Count("pk", filter=Q(confirmed_version__gte=run.cancel_version))
    return Worker.objects.filter(run=run).aggregate(total=Count("pk"), confirmed=holding)


@dataclass(frozen=True)
class Busy:
    """A worker that holds a step: since when, and when it was last heard (None: never by that name)."""

    worker: str
    step: str
    since: datetime
    heard_at: datetime | None


def still_in(run: Run, most: int = 50) -> list[Busy]:
    """Who still holds a step of the run, in the order of the steps."""
    named = Worker.objects.filter(run=run, name=OuterRef("worker")).values("last_heard_at")[:1]
    rows = Step.objects.filter(run=run, status__in=BUSY).annotate(heard=Subquery(named)).order_by("pk")
    columns = rows.values_list("worker", "name", Coalesce("dispatched_at", "created_at"), "heard")
    return [Busy(*row) for row in columns[:most]]


# silence ------------------------------------------------------------------------------------------


def _silence(run: Run) -> dict[str, Any]:
    """`silent_at` is indexed, so it is moved only by steps of a tenth: it is never too late, and `silent`
    looks at the last sign of life too."""
    length = timedelta(seconds=run.silent_after_s)
    last = run.last_heard_at or run.admitted_at
    if run.silent_at is not None and run.silent_at - last > length * 0.9:
        return {}
    return {"silent_at": after(run.silent_after_s)}


def is_silent() -> Q:
    """Of a run: it is in motion, and nothing of its client was heard for `silent_after_s`, by the
    database's clock. Derived: nothing moves such a run. The index on `silent_at` bounds what is looked at.
    """
    heard = Coalesce("last_heard_at", "admitted_at")
    long_ago = LessThanOrEqual(heard, Now() - _Seconds("silent_after_s"))
    return Q(status__in=MOVING, silent_at__lte=_Read()) & Q(long_ago)


class _Read(Now):
    """The clock as it is read once for a query: PostgreSQL searches no index for one that runs on."""

    def as_postgresql(self, compiler: Any, conn: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, conn, template="(SELECT clock_timestamp())", **extra)


class _Seconds(Func):
    """A column of whole seconds as a length of time."""

    output_field = DurationField()
    template = "make_interval(secs => %(expressions)s)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(%(expressions)s * 1000000)", **extra)
