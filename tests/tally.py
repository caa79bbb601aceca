"""What each suite took and how it ended, written for `manage.py test` to add up."""

import json
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

began = time.monotonic()
seconds: dict[str, float] = defaultdict(float)
suites: dict[str, str] = {}
MARKED = {"browser": "browser", "kill": "kills", "race": "races"}


def suite_of(item: pytest.Item) -> str:
    for marker, suite in MARKED.items():
        if item.get_closest_marker(marker):
            return suite
    return "drills" if "drills" in item.path.parts else "units"


def remember(items: list[pytest.Item]) -> None:
    suites.update({item.nodeid: suite_of(item) for item in items})


def add(report: pytest.TestReport) -> None:
    seconds[suites.get(report.nodeid, "units")] += report.duration


def write(stats: dict[str, list[object]]) -> None:
    """One file a pass: seconds by suite (set-up is what no test took), and the counts."""
    target = os.environ.get("ALLSTOP_TEST_TALLY")
    if not target:
        return
    seconds["set-up"] = max(0.0, time.monotonic() - began - sum(seconds.values()))
    counts = {
        "passed": sum(len(stats.get(name, [])) for name in ("passed", "xfailed")),
        "failed": sum(len(stats.get(name, [])) for name in ("failed", "error", "xpassed")),
        "skipped": len(stats.get("skipped", [])),
    }
    Path(target).write_text(json.dumps({"seconds": seconds, "counts": counts}))
