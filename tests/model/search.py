"""One search: so many examples of so many steps, and what it found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky, FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from . import promises
from .base import SCENES, Protocol, Team
from .scenes import Machine


@dataclass(frozen=True)
class Found:
    """`broken`: the promise that a sequence of calls broke, "" for none; `how`: those calls."""

    broken: str
    seconds: float
    how: str = ""


ALONE = {"runs.wake.run_soon": lambda *asked: None, "runs.scopes.IN_REQUEST_S": 600.0}


def search(
    team: Team, examples: int, steps: int, *, at: int = 0, scenes: Sequence[str] = (), shrink: bool = False
) -> Found:
    """Sequences of calls from the seed `at`, until one breaks a promise or all were tried.

    `scenes`: in which of them they begin; in any, if none is named. No other thread or clock has a part.
    """
    Protocol.team, Protocol.scenes = team, scenes or SCENES
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    wanted = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    begun = time.monotonic()
    promises.broken.clear()
    machine: Any = seed(at)(type(f"Machine{at}", (Machine,), {}))
    try:
        with ExitStack() as alone:
            for name, instead in ALONE.items():
                alone.enter_context(patch(name, instead))
            run_state_machine_as_test(machine, settings=wanted)
    except (Flaky, FlakyStrategyDefinition) as unsure:  # it came once, and not again: the clock ran on
        if not promises.broken:
            raise
        return Found(promises.broken[0], time.monotonic() - begun, str(unsure))
    except promises.KILLS as broken:
        how = "\n".join(getattr(broken, "__notes__", []))
        return Found(promises.said(broken), time.monotonic() - begun, how)
    return Found("", time.monotonic() - begun)
