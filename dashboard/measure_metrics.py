"""The seven measures for Prometheus: the whole installation, the days of measures.DAYS, drills left out.

Gauges, also where a name ends in `_total`: they fall when something leaves the window. A quantile or a ratio
of too few is left out; what it would be made of is always there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from runs.store import database_time

from . import measures
from .measures import DAYS, LIMITS, Measure

KEPT_S = 60.0  # the figures of days change slowly, and cost more than those of now
OF = f"The last {DAYS} days, drills left out."
QUANTILES = {"p50": "0.5", "p95": "0.95"}
_lock = threading.Lock()
_kept: tuple[float, list[Metric]] = (0.0, [])


def families() -> list[Metric]:
    """All seven, read anew once a minute."""
    global _kept
    with _lock:
        until, found = _kept
        if time.monotonic() > until:
            found = list(read())
            _kept = (time.monotonic() + KEPT_S, found)
        return found


def forget() -> None:
    """Ask again at the next scrape."""
    global _kept
    with _lock:
        _kept = (0.0, [])


def read() -> Iterator[Metric]:
    window = measures.last_days(DAYS, database_time())
    one, two, three, four, five, six, seven = measures.read(window, days=False)
    yield _quantiles("stop_ack_seconds", "From the arrival of a press to the gate.", one)
    yield _gauge("stops_acknowledged", "How many those are.", one.n)
    yield _gauge("post_quiesce_dispatches_total", "Permits opened behind a stop.", two.count("found"))
    yield from _reconciled(three)
    yield _gauge("duplicate_effects_total", "Keys with two objects or more.", four.count("twice"))
    yield _gauge("duplicate_effects_counted", "How many keys were counted.", four.n)
    results = {name: five.count(name) for name in ("verified", "failed", "unknown")}
    yield _labelled("compensations_sent", "Compensations by what they came to.", "result", results)
    yield _gauge("unknown_age_seconds", "Age of the oldest unknown now; 0: none.", six.value("oldest open"))
    yield _quantiles("unknown_closed_seconds", "How long what is known now was unknown.", six)
    yield _gauge("unknown_closed", "How many those are.", six.n)
    yield _gauge("reports_with_evidence_total", "With evidence for each effect.", seven.count("whole"))
    yield _gauge("reports_issued", "Issued report versions with an effect.", seven.n)


def _gauge(name: str, told: str, value: float | None) -> Metric:
    return GaugeMetricFamily(f"allstop_{name}", f"{told} {OF}", value=value or 0)


def _labelled(name: str, told: str, label: str, values: dict[str, float] | dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"allstop_{name}", f"{told} {OF}", labels=[label])
    for value, figure in values.items():
        family.add_metric([value], figure)
    return family


def _quantiles(name: str, told: str, measure: Measure) -> Metric:
    found = {QUANTILES[one]: measure.value(one) for one in QUANTILES} if measure.enough else {}
    known = {quantile: value for quantile, value in found.items() if value is not None}
    return _labelled(name, told, "quantile", known)


def _reconciled(measure: Measure) -> Iterator[Metric]:
    a = {name.removeprefix("in ").replace(" ", ""): measure.count(name) for name in LIMITS}
    ratios = {name: count / measure.n for name, count in a.items()} if measure.enough else {}
    yield _labelled("effects_reconciled_ratio", "Of effects in flight at a stop.", "within", ratios)
    yield _labelled("effects_reconciled_numerator", "How many were reconciled.", "within", a)
    yield _gauge("effects_reconciled_denominator", "How many were in flight.", measure.n)
