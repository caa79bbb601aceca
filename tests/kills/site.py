"""A server, a bank and an agent's token; and the processes on it, each of which may be started to fail."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from tests.databases import Database
from tests.processes import Process, Processes
from tests.provider import Provider
from tests.servers import free_port

T = TypeVar("T")
KINDS = ("plain", "fencing", "blind")
LAUNCHER = [sys.executable, "-m", "tests.kills.launcher"]
CELERY = ["-m", "celery", "-A", "dashboard"]
STILL = ("--instead", "dashboard.embedded.send=tests.kills.messages.never")  # the clock does not tick
SHORT = ("--set", "effects.executor.LEASE_S=2.0", "--set", "effects.settle.FIRST_CHECK_S=0.5")
READY = {"web": r"Allstop is ready at \S+", "worker": r" ready\.", "beat": "beat: Starting"}
EVER = ("--for", "600")  # longer than any test
KIND = {
    "class": "external_write",
    "commits": "When the bank books it.",
    "tells_apart": ["booked", "not found"],
    "key": "The effect key.",
    "compensation": "none",
    "durable_before_pause": "The key.",
    "when_unknown": "It is looked up.",
    "settle_window_s": 1,
    "check_every_s": [1],
    "check_for_s": 1,
}
_marks = itertools.count(1)


def until(true: Callable[[], T], within_s: float = 45) -> T:
    """What it comes to, once that is true. AssertionError when it does not come true."""
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end, f"it did not come true within {within_s} s"
        time.sleep(0.03)
    return found


@dataclass(frozen=True)
class Said:
    """An answer. `status` is 0 when none came."""

    status: int
    data: Any = None


@dataclass(frozen=True)
class Armed:
    """A process that was started to fail, and what it wrote directly before it did."""

    process: Process
    mark: Path

    def marks(self) -> list[str]:
        lines = self.mark.read_text().splitlines() if self.mark.exists() else []
        told = [json.loads(line) for line in lines]
        assert {line["pid"] for line in told} <= {self.process.pid}
        return [line["at"] + (f"={line['text']}" if line["text"] else "") for line in told]

    def wait_until_ready(self) -> None:
        """Until it says that it serves, or takes tasks."""
        self.process.wait_for(READY[self.process.name])

    def wait_for(self, *places: str) -> None:
        """Until it stands at all of these."""
        end = time.monotonic() + 40
        while missing := set(places) - set(self.marks()):
            running = self.process.alive and time.monotonic() < end
            assert running, (missing, self.process.said()[-3000:])
            time.sleep(0.03)

    def wait_for_kill(self) -> None:
        """Until SIGKILL has ended it; it stood at its point by its own word."""
        until(lambda: not self.process.alive, 40)
        assert self.process.popen.returncode == -signal.SIGKILL, self.process.said()[-3000:]
        assert self.marks(), self.process.said()[-3000:]

    def is_frozen(self) -> bool:
        """By the word of the kernel."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"


@dataclass
class Site:
    """`cluster`: with a Valkey, so that workers are processes of their own; else a server has one inside."""

    processes: Processes
    database: Database
    bank: Provider
    token: str
    session: str
    port: int = field(default_factory=free_port)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cluster(self) -> bool:
        return bool(self.processes.redis_url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- processes

    def launch(self, name: str, options: Sequence[str], command: Sequence[str], **environ: str) -> Armed:
        mark = self.processes.folder / f"marks-{next(_marks)}"
        words = [*LAUNCHER, *options, "--mark", str(mark), "--", *command]
        return Armed(self.processes.start(name, words, **environ), mark)

    def web(self, *options: str, ready: bool = True, **environ: str) -> Armed:
        """A server at the site's own port, once it answers; `ready`: whether to wait for that."""
        command = ["manage.py", "up", "--port", str(self.port), "--no-demo"]
        armed = self.launch("web", [*SHORT, *options], command, **environ)
        if ready:
            armed.wait_until_ready()
        return armed

    def worker(self, *options: str, ready: bool = True) -> Armed:
        """A Celery worker of its own, once it takes tasks."""
        words = [*CELERY, "worker", "--loglevel", "INFO", "-n", f"w{next(_marks)}@test"]
        armed = self.launch("worker", [*SHORT, *options], words)
        if ready:
            armed.wait_until_ready()
        return armed

    def controller(self, *options: str, ready: bool = True) -> Armed:
        """Whoever executes, drains and looks up here: a worker, or the server with one inside."""
        return self.worker(*options, ready=ready) if self.cluster else self.web(*options, ready=ready)

    def start_all(self) -> None:
        """All that a working installation has, without faults. Nothing of the kind may run already."""
        if self.cluster:
            self.beat()
            self.worker()
        else:
            self.web()

    def beat(self) -> Armed:
        """The clock of a cluster."""
        return self.launch("beat", (), [*CELERY, "beat", "--loglevel", "INFO"])

    def agent(self, order: str, *options: str, kind: str = "plain", **words: object) -> Armed:
        """An agent that pays one order under the run and the effect key of that name."""
        more = [part for name, value in words.items() for part in (f"--{name}", str(value))]
        command = ["-m", "tests.kills.agent", "--order", order, "--kind", f"bank.{kind}"]
        command += ["--bank", self.bank.url, *more]
        environ = {"ALLSTOP_URL": self.url, "ALLSTOP_TOKEN": self.token, "PYTHONPATH": "client"}
        return self.launch("agent", options, command, **environ)

    # -- the wire

    def ask(self, method: str, path: str, body: object = None, *, key: str = "", timeout: float = 20) -> Said:
        headers = {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        headers |= {"Idempotency-Key": key} if key else {}
        try:
            said = httpx2.request(
                method, f"{self.url}/api/v1/{path}", json=body, headers=headers, timeout=timeout
            )
        except httpx2.RequestError:
            return Said(0)
        return Said(said.status_code, said.json())

    def post(self, path: str, body: object, key: str = "") -> Any:
        said = self.ask("POST", path, body, key=key or f"key-{next(_marks)}")
        assert said.status in (200, 201), said
        return said.data

    def page(self, path: str, timeout: float) -> int:
        """The status of a page as Alice opens it."""
        cookies = {"sessionid": self.session}
        return httpx2.get(f"{self.url}{path}", cookies=cookies, timeout=timeout).status_code

    def press(self, order: str, *, timeout: float = 20, **words: object) -> Said:
        """Press Stop on the run of an order, always under the same key. What was acknowledged is kept."""
        body = {"run_key": order, "reason": "cost", "deadline_s": 300, **words}
        said = self.ask("POST", "stops", body, key=f"stop-{order}", timeout=timeout)
        if said.status in (200, 201):
            self.acknowledged.append(said.data)
        return said

    def register(self, order: str) -> Any:
        """The run of an order."""
        return self.post("runs", {"key": order})

    def declare(self, order: str, kind: str) -> Any:
        """Register the run and leave its effect to our executor."""
        return self.put_effect(order, f"ours.{kind}")["effect"]

    def put_effect(self, order: str, kind: str, lease_s: float = 2.0) -> Any:
        body = {
            "key": order,
            "kind": kind,
            "step": {"key": order},
            "worker": "w-1",
            "seen_version": 1,
            "body": json.dumps({"order": order}),
            "plan": {"none_because": "a test"},
            "lease_s": lease_s,
        }
        return self.post(f"runs/{self.register(order)['id']}/effects", body)

    def book(self, order: str) -> None:
        """The request of an order, as its agent would send it; nobody tells Allstop."""
        headers = {"Idempotency-Key": order}
        httpx2.post(f"{self.bank.url}/charges", json={"order": order}, headers=headers).raise_for_status()

    def messages(self, how: str) -> None:
        """From now on messages come so: one of the words in messages.py."""
        Path(self.processes.environ["TESTS_MESSAGES"]).write_text(how)

    def put_kinds(self) -> None:
        """bank.* is sent by the agent, ours.* by our executor; plain, fencing and blind by their look-up."""
        address = f"{self.bank.url}/charges"
        look_up = {"plain": f"{address}?key={{key}}", "fencing": f"{address}?key={{key}}&fence=1"}
        for name in KINDS:
            told: dict[str, Any] = {**KIND, "key_fencing": name == "fencing"}
            if name in look_up:
                told["lookup"] = {"url": look_up[name], "key_path": "key"}
            for kind, more in ((f"bank.{name}", {}), (f"ours.{name}", sent_to(address))):
                said = self.ask("PUT", f"kinds/{kind}", {**told, **more})
                assert said.status in (200, 201), said


def sent_to(address: str) -> dict[str, Any]:
    return {"provider": "http", "send": {"url": address}}
