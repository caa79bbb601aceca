"""G5, G8: stop and gate over HTTP with everything on, beside a view that does nothing, on one Daphne."""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.db import connection

from runs import access, people
from runs.store import new_id

from . import raw
from .crew import ROOT, environment
from .figures import Figure, percentile, timed
from .world import World

NOOP = "/livez"


class Wire:
    """One keep-alive connection with a token."""

    def __init__(self, port: int, token: str) -> None:
        self.open = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        text = json.dumps(body) if body is not None else None
        self.open.request(method, path, text, {**self.headers, **headers})
        answer = self.open.getresponse()
        return answer.status, answer.read()


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database."""
    raw.prepare()
    world = World.make()
    scopes = ["runs:write", "stop:write"]
    _, text = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="bench", scopes=scopes
    )
    commit, close = raw.committer()
    with tempfile.TemporaryDirectory() as folder:
        server, port = _serve(Path(folder))
        try:
            wire = Wire(port, text)
            yield from _gate(world, wire, 60 * scale)
            yield from _stop(world, wire, commit, 60 * scale)
        finally:
            server.terminate()
            server.wait(30)
            close()


def _serve(folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-W", "ignore", "manage.py", "up", "--port", "0", "--no-demo"]
    server = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment(), "ALLSTOP_DATA": str(folder), "SECRET_KEY": os.environ["SECRET_KEY"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"ready at http://[^:]+:(\d+)", line):
            return server, int(found.group(1))
    raise RuntimeError("The server of the benchmark did not start.")


def _noop(wire: Wire) -> Callable[[], object]:
    return lambda: wire.call("GET", NOOP)


def _gate(world: World, wire: Wire, n: int) -> Iterator[Figure]:
    run = world.run().pk
    ours: list[float] = []
    noop: list[float] = []
    for _ in range(n):
        noop.append(timed(_noop(wire)))
        body = {
            "key": new_id("key"),
            "kind": "bench.write",
            "step": {"key": new_id("step")},
            "worker": "bench",
            "seen_version": 1,
            "plan": {"none_because": "a benchmark"},
        }
        began = time.perf_counter()
        status, answer = wire.call(
            "POST", f"/api/v1/runs/{run}/effects", body, **{"Idempotency-Key": new_id("once")}
        )
        ours.append(time.perf_counter() - began)
        assert status == 201, (status, answer)
    ratio = statistics.median(noop) / statistics.median(ours)
    yield _figure("gate, register and dispatch", ours, statistics.median(noop), ratio, "≥ 0.5×", ratio >= 0.5)


def _stop(world: World, wire: Wire, commit: Callable[[], None], n: int) -> Iterator[Figure]:
    ours: list[float] = []
    noop: list[float] = []
    base: list[float] = []
    for run in [world.run().pk for _ in range(n)]:
        noop.append(timed(_noop(wire)))
        base.append(timed(commit))
        began = time.perf_counter()
        status, answer = wire.call("POST", f"/api/v1/runs/{run}/stops", {})
        ours.append(time.perf_counter() - began)
        assert status == 201, (status, answer)
        time.sleep(0.01)
    allowed = statistics.median(noop) + 5 * statistics.median(base)
    p50 = statistics.median(ours)
    yield _figure(
        "stop, one client at 10 ms pace", ours, allowed, p50 / allowed, "≤ no-op + 5 commits", p50 <= allowed
    )
    p99 = percentile(ours, 0.99)
    yield _figure("stop, p99", ours, None, None, "≤ 50 ms", p99 <= 0.05, figure=p99)


def _figure(
    case: str,
    took: list[float],
    base: float | None,
    ratio: float | None,
    goal: str,
    met: bool,
    figure: float | None = None,
) -> Figure:
    """Milliseconds of the calls, beside what they are measured against."""
    value = figure if figure is not None else statistics.median(took)
    return Figure(
        "http",
        case,
        connection.vendor,
        value * 1000,
        "ms",
        len(took),
        baseline=base * 1000 if base is not None else None,
        ratio=ratio,
        p10=percentile(took, 0.1) * 1000,
        p90=percentile(took, 0.9) * 1000,
        goal=goal,
        met=met,
    )
