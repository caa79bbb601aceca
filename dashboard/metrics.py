"""/metrics for Prometheus: what the rows say of the whole installation, and what this process counted.

No label names a workspace, a run or a person. Every question to the rows ends at MOST, and the answers are
kept for a few seconds, so that no scrape costs more than a page.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import Case, Count, Min, Q, QuerySet, Value, When
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dashboard.models import Posting, PostingState
from effects.compensation import IN_DOUBT
from effects.models import Compensation, Delivery, DeliveryState, Effect, Settlement
from runs import counts, fanout, wake  # noqa: F401 - the counters register themselves
from runs.drain import DRAINING
from runs.models import STANDING, Permit, PermitState, Run, RunStatus, Step, StepStatus, StopRequest
from runs.store import database_time

from . import measure_metrics
from .crowd import crowd

MOST = 10_000  # rows that a figure counts; one at MOST says "at least"
KEPT_S = 5.0
LOOPBACK = frozenset({"127.0.0.1", "::1"})
FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via")
REAL = Q(run__isnull=True) | Q(run__drill=False)  # what a drill leaves is no alarm
STAGES = ("waiting", "recorded", "draining", "timed out", "settling", "standing", "observing")


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """GET /metrics, for those who may see it; to others it does not exist."""
    if not _may_see(request):
        raise Http404
    return HttpResponse(generate_latest(REGISTRY), CONTENT_TYPE_PLAIN_0_0_4)


def _may_see(request: HttpRequest) -> bool:
    """With ALLSTOP_METRICS_TOKEN whoever shows it; without, this machine alone, and not through a proxy."""
    wanted = settings.ALLSTOP_METRICS_TOKEN
    if wanted:
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), wanted.encode())
    forwarded = settings.ALLSTOP_BEHIND_PROXY or any(name in request.headers for name in FORWARDED)
    return not forwarded and request.META.get("REMOTE_ADDR") in LOOPBACK


class Rows(Collector):
    """Gauges from the rows: the same from every process, and still there after a restart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Metric] = []
        self._until = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if time.monotonic() > self._until:
                self._kept = read()
                self._until = time.monotonic() + KEPT_S
            kept = self._kept
        yield from [*kept, *_process()]

    def forget(self) -> None:
        """Ask again at the next scrape."""
        self._until = 0.0
        measure_metrics.forget()


rows = Rows()
REGISTRY.register(rows)


def read() -> list[Metric]:
    """All figures from the rows; without a database, only that it did not answer."""
    up = GaugeMetricFamily("allstop_store_up", "1 when the rows could be read for this answer, else 0.")
    try:
        found = [*(make() for make in FIGURES), *measure_metrics.families()]
    except (DatabaseError, InterfaceError):
        up.add_metric([], 0)
        return [up]
    up.add_metric([], 1)
    return [up, *found]


def _some(queryset: QuerySet[Any]) -> int:
    return queryset[:MOST].count()


def _gauge(name: str, told: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"allstop_{name}", told, labels=[label])
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family


def _open_stops() -> Metric:
    stage = Case(
        When(run__isnull=True, scope="run", then=Value("waiting")),
        When(observes=True, then=Value("observing")),
        When(fenced_at__isnull=True, then=Value("recorded")),
        When(scope__in=STANDING, released_at__isnull=True, then=Value("standing")),
        When(quiet_at__isnull=False, then=Value("settling")),
        When(timed_out_at__isnull=False, then=Value("timed out")),
        default=Value("draining"),
    )
    some = StopRequest.objects.filter(REAL, closed_at__isnull=True).values("pk")[:MOST]
    found = dict(
        StopRequest.objects.filter(pk__in=some)
        .annotate(stage=stage)
        .values_list("stage")
        .annotate(n=Count("pk"))
        .order_by()
    )
    return _gauge(
        "stops_open",
        "Stops that are not closed, by the stage that they have reached.",
        "stage",
        {stage: found.get(stage, 0) for stage in STAGES},
    )


def _timed_out() -> Metric:
    late = StopRequest.objects.filter(REAL, closed_at__isnull=True, timed_out_at__isnull=False)
    return GaugeMetricFamily(
        "allstop_stops_timed_out", "Open stops whose deadline has passed.", value=_some(late)
    )


def _unknown() -> Metric:
    rows = Effect.objects.filter(REAL, settlement=Settlement.UNKNOWN)
    return GaugeMetricFamily(
        "allstop_effects_unknown", "Effects of which nobody knows whether they happened.", value=_some(rows)
    )


def _oldest_unknown() -> Metric:
    rows = Effect.objects.filter(REAL, settlement=Settlement.UNKNOWN).order_by("unknown_since")
    since = rows.values_list("unknown_since", flat=True).first()
    told = "For how long the oldest unknown effect has been unknown; 0 when there is none."
    return GaugeMetricFamily("allstop_effects_unknown_oldest_seconds", told, value=_age(since))


def _age(since: datetime | None) -> float:
    return max(0.0, (database_time() - since).total_seconds()) if since else 0.0


def _queues() -> Metric:
    depths = {
        "effects": _some(
            Effect.objects.filter(
                queued_at__isnull=False, settlement=Settlement.DECLARED, step__status=StepStatus.PENDING
            )
        ),
        "compensations": _some(Compensation.objects.filter(state="APPROVED", queued_at__isnull=False)),
        "look-ups": _some(Effect.objects.filter(settlement=Settlement.UNKNOWN, next_check_at__isnull=False))
        + _some(Compensation.objects.filter(state__in=IN_DOUBT, next_check_at__isnull=False)),
        "retries": _some(Step.objects.filter(status=StepStatus.RETRY_WAIT)),
        "deliveries": _some(Delivery.objects.filter(state=DeliveryState.QUEUED, turn_at__isnull=False)),
        "notices": _some(Posting.objects.filter(state=PostingState.WAITING)),
    }
    told = "Rows that wait: effects and compensations for our executor, planned look-ups, retries, messages."
    return _gauge("queue_depth", told, "queue", depths)


def _sweep_lag() -> Metric:
    """What a sweep should have done by now. A sweep comes each second: minutes mean that none comes."""
    now = database_time()
    late = {"closed_at__isnull": True, "timed_out_at__isnull": True, "deadline_at__lte": now}
    oldest = [
        _oldest(Permit.objects.filter(state=PermitState.OPEN, lease_until__lte=now), "lease_until"),
        _oldest(StopRequest.objects.filter(**late, run__status__in=DRAINING), "deadline_at"),
        _oldest(Step.objects.filter(status=StepStatus.RETRY_WAIT, due_at__lte=now), "due_at"),
        _oldest(fanout.unfenced(), "recorded_at"),
    ]
    lag = max((_age(at) for at in oldest), default=0.0)
    told = "For how long the oldest lapsed lease, deadline, retry or scope stop is due; 0 when nothing is."
    return GaugeMetricFamily("allstop_sweep_lag_seconds", told, value=lag)


def _oldest(rows: QuerySet[Any], moment: str) -> datetime | None:
    found: datetime | None = rows.aggregate(at=Min(moment))["at"]
    return found


def _stopping() -> Metric:
    statuses = [*DRAINING, RunStatus.UNKNOWN]
    some = Run.objects.filter(status__in=statuses, drill=False).values("pk")[:MOST]
    found = dict(Run.objects.filter(pk__in=some).values_list("status").annotate(n=Count("pk")).order_by())
    told = "Runs that are stopping, or that rest with an effect nobody could settle."
    return _gauge("runs_stopping", told, "status", {str(name): found.get(name, 0) for name in statuses})


FIGURES: tuple[Callable[[], Metric], ...] = (
    _open_stops,
    _timed_out,
    _stopping,
    _unknown,
    _oldest_unknown,
    _queues,
    _sweep_lag,
)


def _process() -> list[Metric]:
    """What this process can say without asking anybody."""
    told = "Places for API calls of this process, and how many are taken; 0 places: nobody waits for one."
    hints = GaugeMetricFamily(
        "allstop_hints", "Hints and tasks of this process that wait to be delivered.", value=wake.waiting()
    )
    return [_gauge("crowd", told, "of", {"taken": crowd.taken, "places": crowd.size}), hints]
