"""Starts the demo's processes, and one more run of its agent when somebody asks for it. Standard library
only.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN_S = 20.0
AGENTS_AT_ONCE = 3


class NoDemo(LookupError):
    """This workspace has no demo in this process."""


class DemoBusy(RuntimeError):
    """Enough agents of the demo are at work; wait for one to end, or stop its run."""


@dataclass
class World:
    """The demo of one workspace: where its outside world listens, and the agents at work.

    folder: for ledgers and logs. new_token: makes a token for one agent. next_batch: the number of the next
    run. pace: every duration of this world is multiplied by it.
    """

    url: str
    new_token: Callable[[], str]
    folder: Path
    next_batch: int = 1
    pace: float = 1.0
    bank: str = ""
    mailer: str = ""
    outside: list[subprocess.Popen[str]] = field(default_factory=list)
    agents: list[subprocess.Popen[str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Start bank and mailer. Raises RuntimeError when one does not come up."""
        self.bank = self._outside("bank")
        self.mailer = self._outside("mailer")

    def run_agent(self) -> str:
        """Start one agent. Returns the key of its run. Raises DemoBusy."""
        with self.lock:
            self.agents = [agent for agent in self.agents if agent.poll() is None]
            if len(self.agents) >= AGENTS_AT_ONCE:
                raise DemoBusy(AGENTS_AT_ONCE)
            batch, self.next_batch = self.next_batch, self.next_batch + 1
            order = ["--batch", str(batch), "--bank", self.bank, "--mailer", self.mailer]
            with (self.folder / "agent.log").open("a") as log:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                agent = self._spawn("agent", order, {"ALLSTOP_TOKEN": self.new_token()}, **pipes)
            self.agents.append(agent)
            return f"demo-invoices-{batch:04}"

    def stop(self) -> None:
        """End every process that was started here."""
        for process in [*self.agents, *self.outside]:
            process.terminate()
        for process in [*self.agents, *self.outside]:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _outside(self, name: str) -> str:
        """Start one provider, at the port it had last time if that is free; its address."""
        kept = self.folder / f"{name}.port"
        port = kept.read_text().strip() if kept.exists() else "0"
        order = ["--port", port, "--ledger", str(self.folder / f"{name}.jsonl")]
        process = self._spawn(name, order, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.outside.append(process)
        url = _first_line(process)
        if not url:
            raise RuntimeError(f"The demo's {name} did not start.")
        kept.write_text(url.rpartition(":")[2])
        return url

    def _spawn(
        self, name: str, order: list[str], secrets: dict[str, str], **pipes: object
    ) -> subprocess.Popen[str]:
        """A process in a session of its own: Ctrl-C is for the server, which then ends its demo in order."""
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", f"dashboard.demo.{name}", *order, "--pace", str(self.pace)],
            cwd=ROOT,
            env=self._environment() | secrets,
            start_new_session=True,
            text=True,
            **pipes,  # type: ignore[call-overload]
        )
        return process

    def _environment(self) -> dict[str, str]:
        """Nothing of the server's: no database, no secret key, no proxy between processes on loopback."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        found_at = os.pathsep.join([str(ROOT), str(ROOT / "client")])
        mine = {"ALLSTOP_URL": self.url, "ALLSTOP_BUFFER": str(self.folder / "buffer")}
        return kept | mine | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": found_at}


WORLDS: dict[str, World] = {}


def start_run(workspace_id: str) -> None:
    """Start the demo's agent: its run shows up within a second. Raises NoDemo, DemoBusy."""
    if workspace_id not in WORLDS:
        raise NoDemo(workspace_id)
    WORLDS[workspace_id].run_agent()


def _first_line(process: subprocess.Popen[str]) -> str:
    """The first line a process prints, or nothing when it ends or takes too long."""
    assert process.stdout is not None
    with contextlib.closing(selectors.DefaultSelector()) as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline().strip() if waiting.select(STARTS_WITHIN_S) else ""
