"""Carries a drill out: a process of its own against this very instance, and its words kept as they come.

The drill freezes and kills only processes that it starts; the worker that started it is none of them.
Whoever carries a drill out shows life every second. When it dies the row is ended by the sweep.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from django.conf import settings
from django.db import connection

from dashboard.drilling import line, room
from dashboard.drilling.line import Told
from dashboard.drilling.models import DrillResult, DrillRun
from runs.tasks import leaving

ROOT = Path(__file__).resolve().parents[2]
# Nothing of the server's: no database, no secret key, no broker.
KEPT = (
    *("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV"),
    *("ALLSTOP_VENV", "ALLSTOP_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH", "XDG_CACHE_HOME"),
)
LONGEST_S = 180.0  # of one drill; each is bounded by timeouts of its own, which are shorter
LOOK_S = 1.0  # how often life is shown, and asked whether to go on
GOODBYE_S = 5.0
CHECKS = ("situation", "safety", "evidence")


def out(row: DrillRun, release: str) -> None:
    """Carry this drill out to its end, whatever that is, and keep it."""
    token, text = room.give_token(f"drill {row.name}")
    row.token = token.pk
    try:
        told = _against(row, address(text), text) if line.go_on(row) else None
    finally:
        room.take_token(token.pk)
    if told is not None:
        line.end(row.pk, told, release)


def _against(row: DrillRun, url: str, token: str) -> Told | None:
    """Its result; None when the row was taken for dead meanwhile."""
    if not url:
        return Told(DrillResult.INCONCLUSIVE, UNREACHABLE)
    with Child(row.name, url, token) as child:
        while True:
            alive = line.go_on(row, child.steps(LOOK_S))
            if child.over:
                return child.told()
            if not alive:
                return None
            if leaving():
                return Told(DrillResult.INTERRUPTED, LEFT, log=child.log)
            if child.age > LONGEST_S:
                return Told(DrillResult.INTERRUPTED, TOO_LONG, log=child.log)


UNREACHABLE = (
    "This instance answers at no address that its worker knows. Set ALLSTOP_SELF_URL to where the "
    "worker reaches the web server."
)
LEFT = "Its worker was told to go. Run it again."
TOO_LONG = f"It was not over after {LONGEST_S:.0f} s, and was ended."
PRIVATE = "a private instance (SQLite, one process)"
SILENT = "It ended without a result; its own words are below."


class Child:
    """The process of one drill. What it prints is read by a thread, so that nobody waits for it."""

    def __init__(self, name: str, url: str, token: str) -> None:
        self.name, self.log, self.result = name, "", dict[str, Any]()
        self.began = time.monotonic()
        self.words: queue.Queue[str | None] = queue.Queue()
        self.over = False
        self.popen = subprocess.Popen(
            command(name, url),
            cwd=ROOT,
            env=environment(token),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        self.reader = threading.Thread(target=self._read, args=(self.popen.stdout,), daemon=True)
        self.reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        """Ended, with all that it started: it is told so first, and ends them itself."""
        if self.popen.poll() is None:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(GOODBYE_S)
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, 9)
        self.popen.wait(GOODBYE_S)
        self.reader.join(GOODBYE_S)

    @property
    def age(self) -> float:
        return time.monotonic() - self.began

    def steps(self, seconds: float) -> list[str]:
        """What it did since the last question, waiting for a first word at most this long."""
        found: list[str] = []
        for said in self._words(seconds):
            if (step := self._heard(said)) is not None:
                found.append(step)
        return found

    def told(self) -> Told:
        """Its result, once it is over."""
        if self.result.get("result") not in DrillResult.values:
            return Told(DrillResult.INCONCLUSIVE, SILENT, log=self.log)
        return told_of(self.result, self.log)

    def _read(self, pipe: IO[str]) -> None:
        for said in pipe:
            self.words.put(said.rstrip("\n"))
        pipe.close()
        self.words.put(None)

    def _words(self, seconds: float) -> Iterator[str]:
        """All that is there; the first may be waited for."""
        while not self.over:
            try:
                said = self.words.get(timeout=seconds)
            except queue.Empty:
                return
            if said is None:
                self.over = True
                return
            yield said
            seconds = 0.05

    def _heard(self, said: str) -> str | None:
        """One line: a step, the result, or words for the log."""
        with suppress(ValueError):
            told = json.loads(said)
            if isinstance(told, dict) and "tick" in told:
                return str(told["tick"])
            if isinstance(told, dict) and told.get("name") == self.name:
                self.result = told
                return None
        self.log = (self.log + said + "\n")[-line.LOG :]
        return None


def told_of(result: Mapping[str, Any], log: str = "") -> Told:
    """What is kept of a result as `--json` prints it."""
    checks = {kind: list(result.get(kind) or []) for kind in CHECKS}
    ended, why = str(result["result"]), str(result.get("why") or "")
    if result.get("instance") == "private":  # which is gone by now, and its report with it
        return Told(ended, why, checks, "", PRIVATE, log)
    return Told(ended, why, checks, path_of(str(result.get("report") or "")), runtime(), log)


def command(name: str, url: str) -> list[str]:
    """The drill, as a program that knows nothing of the server."""
    return [sys.executable, "-m", "dashboard.drills", name, "--url", url, "--json", "--ticks"]


def environment(token: str) -> dict[str, str]:
    """What the drill's process knows."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    found_at = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    return kept | {"ALLSTOP_TOKEN": token, "PYTHONPATH": found_at, "PYTHONUNBUFFERED": "1"}


def path_of(url: str) -> str:
    """The path of a report's address: the reader's own host is in front of it."""
    return urlsplit(url).path


def runtime() -> str:
    """On what a drill ran: the database, and whether one process does everything."""
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(connection.vendor, connection.vendor)
    return f"{name}, {'several processes' if settings.REDIS_URL else 'one process'}"


def address(token: str) -> str:
    """Where this very instance answers; nothing when it does not."""
    told = [settings.ALLSTOP_SELF_URL, _kept(), *settings.ALLSTOP_ORIGINS]
    places = dict.fromkeys(url.rstrip("/") for url in told if url)
    return next((url for url in places if answers(url, token)), "")


def _kept() -> str:
    """Where a server of this data folder said that it listens."""
    with suppress(OSError):
        return Path(settings.ALLSTOP_DATA, "address").read_text().strip()
    return ""


def answers(url: str, token: str) -> bool:
    """Whether the Allstop that gave this token answers there; another one would not know it."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        asked = Request(f"{url}/api/v1/runs?limit=1", headers=headers)  # noqa: S310
        with urlopen(asked, timeout=3) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
