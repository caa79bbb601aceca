"""What each suite took and how it ended, written for `manage.py test` to add up."""

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

MARKED = {"browser": "browser", "kill": "kills", "race": "races"}
TOGETHER, ALONE = "together", "alone"  # with another pass at the same time, or without
seconds: dict[str, dict[str, float]] = {TOGETHER: defaultdict(float), ALONE: defaultdict(float)}
suites: dict[str, str] = {}


@dataclass
class Clock:
    """The part that we are in."""

    part: str = ALONE
    began: float = field(default_factory=time.monotonic)


clock = Clock()


def suite_of(item: pytest.Item) -> str:
    for marker, suite in MARKED.items():
        if item.get_closest_marker(marker):
            return suite
    return "drills" if "drills" in item.path.parts else "units"


def remember(items: list[pytest.Item]) -> None:
    suites.update({item.nodeid: suite_of(item) for item in items})


def add(report: pytest.TestReport) -> None:
    seconds[clock.part][suites.get(report.nodeid, "units")] += report.duration


def begin(part: str) -> None:
    """What comes from now on belongs to this part. Time between two parts belongs to none."""
    clock.part, clock.began = part, time.monotonic()


def end() -> None:
    """What no test of this part took was its set-up."""
    mine = seconds[clock.part]
    mine["set-up"] = max(0.0, time.monotonic() - clock.began - sum(mine.values()))


def write(stats: dict[str, list[object]]) -> None:
    """One file a pass: seconds by part and suite, and the counts."""
    target = os.environ.get("ALLSTOP_TEST_TALLY")
    if not target:
        return
    end()
    counts = {
        "passed": sum(len(stats.get(name, [])) for name in ("passed", "xfailed")),
        "failed": sum(len(stats.get(name, [])) for name in ("failed", "error", "xpassed")),
        "skipped": len(stats.get("skipped", [])),
    }
    Path(target).write_text(json.dumps({"seconds": seconds, "counts": counts}))
