"""What this process counts for /metrics: how long each verb took, and what the gates refused.

Labels are names of verbs, boundaries and reasons: never an id, a name or a text that somebody sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a label was first seen is of no use to anybody
BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
VERBS = Histogram(
    "allstop_verb_seconds",
    "From the call of a verb to its commit or error, with all waits for locks and all further tries.",
    ["verb"],
    buckets=BUCKETS,
)
FAILED = Counter("allstop_verb_errors_total", "Calls of a verb that ended in an error.", ["verb", "error"])
REFUSED = Counter("allstop_refusals_total", "What the gates refused.", ["boundary", "reason"])
COMPENSATED = Counter("allstop_compensations_total", "What compensations that were sent came to.", ["result"])
SOCKETS = Gauge("allstop_websockets", "Open live connections of pages.")
THROTTLED = Counter("allstop_throttled_total", "API calls answered 429.", ["by"])


def name_of(verb: Callable[..., Any]) -> str:
    """`runs.stops._stop_run` is counted as `stops.stop_run`."""
    return f"{verb.__module__.rpartition('.')[2]}.{verb.__name__.lstrip('_')}"


@contextmanager
def timed(verb: str) -> Iterator[None]:
    """Count one call of a verb, and how it ended."""
    with VERBS.labels(verb).time():
        try:
            yield
        except Exception as error:
            FAILED.labels(verb, type(error).__name__).inc()
            raise


def refused(boundary: str, reason: str) -> None:
    """Count a refusal once it is committed."""
    transaction.on_commit(REFUSED.labels(boundary, reason).inc, robust=True)


def compensated(result: str) -> None:
    """Count what a compensation came to (verified · failed · unknown) once it is committed."""
    transaction.on_commit(COMPENSATED.labels(result).inc, robust=True)
