"""Worker processes of a benchmark: each a Django process of its own, told what to do in lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .world import World

ROOT = Path(__file__).resolve().parents[2]


class Crew:
    """`n` processes that repeat a call as fast as they can, or at a pace, until told."""

    def __init__(self, n: int) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.worker"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for _ in range(n)
        ]
        for process in self.processes:
            assert _out(process).readline().strip() == "ready"

    def tell(self, orders: list[dict[str, Any]]) -> None:
        for process, order in zip(self.processes, orders, strict=True):
            print(json.dumps(order), file=_in(process), flush=True)

    def hear(self) -> list[dict[str, Any]]:
        return [json.loads(_out(process).readline()) for process in self.processes]

    def rate(self, call: str, world: World, runs: list[str], size: int) -> float:
        """Calls per second of all together, from the first start to the last end."""
        token = world.agent.token
        assert token is not None
        began = time.perf_counter()
        self.tell([{"call": call, "token": token.pk, "run": run, "n": size} for run in runs])
        self.hear()
        return len(runs) * size / (time.perf_counter() - began)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            _in(process).close()
        for process in self.processes:
            process.wait(30)
            _out(process).close()


def environment() -> dict[str, str]:
    from django.db import connection

    url = os.environ["DATABASE_URL"]
    if connection.vendor == "sqlite":
        url = f"sqlite:///{connection.settings_dict['NAME']}"
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings", "DATABASE_URL": url}


def _in(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
