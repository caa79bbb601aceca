"""Processes of a drill: agents, and the server of a private instance. Killed and frozen by their pid."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .waiting import until

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV", "ALLSTOP_VENV")


def environment(**more: str) -> dict[str, str]:
    """Nothing of whoever runs the drill: no database, no secret, no proxy."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    found_at = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    return {**kept, "PYTHONPATH": found_at, "PYTHONUNBUFFERED": "1", **more}


class Process:
    """A process that was started here. `log`: what it says. Ended by `end`, however it stands."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def said(self) -> str:
        """Everything so far."""
        return self.log.read_text(errors="replace")

    def says(self, pattern: str, within_s: float) -> re.Match[str] | None:
        """The first match in what it says; None when it dies or time is up."""

        def found() -> re.Match[str] | bool | None:
            was_alive = self.alive
            return re.search(pattern, self.said()) or not was_alive

        until(found, within_s)
        return re.search(pattern, self.said())

    def freeze(self, within_s: float = 5) -> bool:
        """SIGSTOP. Whether it stands, by the word of the kernel."""
        self.popen.send_signal(signal.SIGSTOP)
        return bool(until(self._stands, within_s))

    def thaw(self) -> None:
        """SIGCONT."""
        self.popen.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL. The exit code, -9 if that is what ended it."""
        self.popen.kill()
        return self.popen.wait(10)

    def wait(self, within_s: float = 20) -> int | None:
        """Its exit code; None if it has not ended in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(within_s)
        return None

    def end(self, within_s: float = 5) -> None:
        """However it stands: ended."""
        if self.alive:
            self.thaw()
            self.popen.terminate()
        if self.wait(within_s) is None:
            self.kill()

    def _stands(self) -> bool:
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, options) is not None


class Agent(Process):
    """A process that uses the client. `mark` and `go` are how it tells where it is, and waits."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.folder = folder
        super().__init__(["-m", "dashboard.drills.agent", *words], environ, folder / "log")

    def reached(self, mark: str, within_s: float = 20) -> bool:
        """Whether it says that it stands there; it may have ended since."""

        def there() -> bool:
            was_alive = self.alive
            return (self.folder / mark).exists() or not was_alive

        until(there, within_s)
        return (self.folder / mark).exists()

    def go(self, mark: str = "go") -> None:
        """Let it go on, where it waits for this."""
        (self.folder / mark).touch()

    def ended(self, within_s: float = 20) -> str:
        """How it ended: "finished", the name of what was raised, or what is known else."""
        code = self.wait(within_s)
        if code is None:
            return "still at work"
        told = self._told().get("ended")
        return str(told) if told else f"exit code {code}"

    def told(self, name: str) -> Any:
        """A fact from its last line."""
        return self._told().get(name)

    def _told(self) -> dict[str, Any]:
        for line in reversed(self.said().splitlines()):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
        return {}


def _die_with_parent() -> Callable[[], None] | None:
    """Whoever runs the drill may be killed: what it started must not outlive it (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(1, signal.SIGKILL)

    return prepare
