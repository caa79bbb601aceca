"""One figure: what was measured, against what, how often, how spread, and whether the goal is met."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Figure:
    """`figure` in `unit`; `ratio` = how it compares with `baseline` (None: no baseline is meant).

    `met` is None when the goal can't be judged in this run (its comparison was not available).
    """

    name: str
    case: str
    database: str
    figure: float
    unit: str
    n: int
    baseline: float | None = None
    ratio: float | None = None
    p10: float | None = None
    p90: float | None = None
    goal: str = ""
    met: bool | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def json(self) -> str:
        return json.dumps({name: _short(value) for name, value in asdict(self).items()})

    def line(self) -> str:
        met = {True: "met", False: "NOT MET", None: "–"}[self.met]
        ratio = f"{self.ratio:.2f}×" if self.ratio is not None else "–"
        base = f"{self.baseline:.2f}" if self.baseline is not None else "–"
        spread = f"{self.p10:.2f}…{self.p90:.2f}" if self.p10 is not None and self.p90 is not None else "–"
        return (
            f"{self.name:<6}{self.database:<11}{self.case:<44}{self.figure:>10.2f} {self.unit:<6}"
            f" baseline {base:>9}  ratio {ratio:>8}  spread {spread:<16} n={self.n:<6} {met:<8}{self.goal}"
        )


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` (0…1) of the values lie; the worst one for few values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timed(call: Callable[[], object]) -> float:
    """Seconds that one call took."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@dataclass
class Pair:
    """Rates of a call and of its raw baseline, taken in turns so that both see the same machine."""

    ours: list[float]
    raw: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / raw for ours, raw in zip(self.ours, self.raw, strict=True)]

    def figure(self, name: str, case: str, database: str, n: int, goal: str, least: float) -> Figure:
        """Throughput per second, as a ratio to the raw baseline of the same moment."""
        ratio = statistics.median(self.ratios)
        return Figure(
            name,
            case,
            database,
            statistics.median(self.ours),
            "1/s",
            n,
            baseline=statistics.median(self.raw),
            ratio=ratio,
            p10=percentile(self.ratios, 0.1),
            p90=percentile(self.ratios, 0.9),
            goal=goal,
            met=ratio >= least,
        )


def in_turns(ours: Callable[[int], object], raw: Callable[[int], object], *, blocks: int, size: int) -> Pair:
    """`blocks` times: `size` raw calls, then `size` of ours; rates per second."""
    pair = Pair([], [])
    for _ in range(blocks):
        pair.raw.append(size / timed(lambda: raw(size)))
        pair.ours.append(size / timed(lambda: ours(size)))
    return pair
