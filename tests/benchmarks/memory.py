"""Does a server grow? Memory, open files, threads and sockets under the load of a demo, for many minutes.

Agents register runs, send effects, report, complete; every third run is stopped. People load pages and hold
live connections, some of which come and go. The first quarter is warm-up; the last one is compared with the
second.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import connection

from runs import access, people
from runs.access import Actor

from .figures import Figure
from .http import Wire, _serve
from .world import World

AGENTS, SOCKETS, EVERY_S, PACE_S = 3, 10, 2.0, 0.2
_numbers = itertools.count(1)


@dataclass
class Sample:
    """What the kernel says of the server at one moment. rss in MB."""

    rss: float
    files: int
    threads: int


@dataclass
class Load:
    """Threads that work on one server until told."""

    port: int
    token: str
    session: str
    over: threading.Event = field(default_factory=threading.Event)
    runs: int = 0
    stops: int = 0
    pages: int = 0
    failed: int = 0

    def agent(self) -> None:
        wire = Wire(self.port, self.token)
        while not self.over.wait(PACE_S):
            try:
                self._one_run(wire)
            except (OSError, AssertionError, ValueError):
                self.failed += 1
                wire = Wire(self.port, self.token)

    def _one_run(self, wire: Wire) -> None:
        n = next(_numbers)
        run = self._post(wire, "/runs", {"key": f"memory-{n}"})["id"]
        for effect in range(3):
            body = {
                "key": f"effect-{effect}",
                "kind": "bench.write",
                "step": {"key": f"step-{effect}"},
                "worker": "bench",
                "seen_version": 1,
                "plan": {"none_because": "a benchmark"},
            }
            permit = self._post(wire, f"/runs/{run}/effects", body)["permit"]
            told = {"claim_token": permit["claim_token"], "outcome": "applied"}
            self._post(wire, f"/permits/{permit['id']}/report", told)
            finish = {"claim_token": permit["claim_token"], "result": "succeeded"}
            self._post(wire, f"/steps/{permit['step_id']}/finish", finish)
        self.runs += 1
        if n % 3:
            self._post(wire, f"/runs/{run}/complete", {"seen_version": 1})
        else:
            self._post(wire, f"/runs/{run}/stops", {})
            self.stops += 1
        for path in ("/runs/", f"/runs/{run}/", f"/runs/{run}/report"):
            self._page(path)

    def _post(self, wire: Wire, path: str, body: object) -> Any:
        key = f"memory-{next(_numbers)}"
        status, answer = wire.call("POST", f"/api/v1{path}", body, **{"Idempotency-Key": key})
        assert status in (200, 201), answer
        return json.loads(answer)

    def _page(self, path: str) -> None:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        asked.add_header("Cookie", f"sessionid={self.session}")
        with urllib.request.urlopen(asked, timeout=30) as answer:
            answer.read()
        self.pages += 1

    def watcher(self) -> None:
        """Live connections: most stay, one in turn is closed and opened again."""
        held = [self.connect() for _ in range(SOCKETS)]
        while not self.over.wait(1):
            held.pop(0).close()
            held.append(self.connect())
        for one in held:
            one.close()

    def connect(self) -> socket.socket:
        """A WebSocket, just far enough that the server holds it open."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        made.sendall(
            f"GET /live/ HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Origin: http://127.0.0.1:{self.port}\r\nCookie: sessionid={self.session}\r\n\r\n".encode()
        )
        assert b" 101 " in made.recv(4096).split(b"\r\n")[0]
        return made


def measure(minutes: float = 60) -> Iterator[Figure]:
    """Yields the figures of this database."""
    world = World.make()
    _, token = people.issue_token(
        actor=access.SET_UP,
        workspace_id=world.workspace.pk,
        name="memory",
        scopes=["runs:write", "stop:write"],
    )
    with tempfile.TemporaryDirectory() as folder:
        server, port = _serve(Path(folder))
        try:
            load = Load(port, token, _session(world.person))
            samples = _under(load, server.pid, minutes)
            left = _left(port)
        finally:
            server.terminate()
            server.wait(60)
    yield from _figures(samples, load, left, minutes)


def _session(person: Actor) -> str:
    assert person.user is not None
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(person.user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = person.user.get_session_auth_hash()
    store.save()
    return str(store.session_key)


def _under(load: Load, pid: int, minutes: float) -> list[Sample]:
    work = [load.agent] * AGENTS + [load.watcher]
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    samples, end = [], time.monotonic() + minutes * 60
    while time.monotonic() < end:
        time.sleep(EVERY_S)
        samples.append(_sample(pid))
    load.over.set()
    for thread in threads:
        thread.join(60)
    return samples


def _sample(pid: int) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024  # type: ignore[union-attr]
    threads = int(re.search(r"Threads:\s+(\d+)", status).group(1))  # type: ignore[union-attr]
    return Sample(rss, len(list(Path(f"/proc/{pid}/fd").iterdir())), threads)


def _left(port: int) -> float:
    """Live connections that the server still counts some seconds after the last one was closed."""
    time.sleep(5)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = re.search(r"^allstop_websockets (\S+)", answer.read().decode(), re.M)
    assert found is not None
    return float(found.group(1))


def _figures(samples: list[Sample], load: Load, left: float, minutes: float) -> Iterator[Figure]:
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[3 * quarter :]
    done = {"runs": load.runs, "stops": load.stops, "pages": load.pages, "failed": load.failed}
    for name, unit, most in (("rss", "MB", 1.1), ("files", "", 1.2), ("threads", "", 1.2)):
        before = statistics.median(getattr(sample, name) for sample in early)
        after = statistics.median(getattr(sample, name) for sample in late)
        case = f"{name}, last quarter of {minutes:g} minutes"
        goal = f"≤ {most}× of the second"
        ratio = after / before
        yield Figure(
            "memory", case, connection.vendor, after, unit, len(samples), before, ratio, goal=goal,
            met=ratio <= most, detail=done,
        )  # fmt: skip
    goal, met = "0, and no call failed", left == 0 and not load.failed
    case = f"live connections left ({load.runs} runs, {load.pages} pages)"
    yield Figure("memory", case, connection.vendor, left, "", load.runs, goal=goal, met=met, detail=done)
