"""Real processes of Allstop: web, worker, beat. Killed, frozen and thawed by pid; their logs are kept."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import free_port
from tests.tools import die_with_parent, obey_permissions

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONDEVMODE")


@dataclass
class Process:
    """One process of ours. `log` is its stdout and stderr, kept when it is gone."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, *, seconds: float = 60) -> "re.Match[str]":
        """The first match of the pattern in its log. AssertionError when it dies or stays silent."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            alive = self.alive
            if found := re.search(pattern, self.said()):
                return found
            if not alive:
                break
            time.sleep(0.03)
        state = "is silent" if self.alive else f"has ended with {self.popen.returncode}"
        raise AssertionError(f"{self.name} {state} and never said {pattern!r}:\n{self.said()[-3000:]}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait(10)

    def freeze(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def terminate(self, *, seconds: float = 45) -> int:
        """SIGTERM, and the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(seconds)

    def ask_to_end(self) -> None:
        if self.alive:
            self.thaw()
            self.popen.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """However it stands: ended."""
        self.ask_to_end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(15)
        if self.alive:
            self.kill()


@dataclass
class Processes:
    """Starts processes against one database and, if there is a REDIS_URL, one Valkey.

    `obedient`: they may not write where permissions forbid it, also when the tests are root.
    """

    folder: Path
    database_url: str
    redis_url: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    obedient: bool = False
    started: list[Process] = field(default_factory=list)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in KEPT}
        mine = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "SECRET_KEY": "one key for all processes of a test, as in a real installation",
            "ALLSTOP_DATA": str(self.folder / "data"),
            "ALLSTOP_BUFFER": str(self.folder / "buffer"),
            "ALLSTOP_LOG_LEVEL": "INFO",
            "PYTHONUNBUFFERED": "1",
            "CELERY_SKIP_CHECKS": "1",  # a second of each worker's start; `up` makes its checks all the same
        }
        return {**kept, **mine, **self.environ, **more}

    def begin(self) -> Callable[[], None] | None:
        """What a process does to itself before it runs."""
        begin = die_with_parent()
        if not self.obedient:
            return begin

        def obey() -> None:
            obey_permissions()
            if begin is not None:
                begin()

        return obey

    def start(self, name: str, command: list[str], **environ: str) -> Process:
        """Any command, from the checkout. Its log is `<name>-<n>.log` in the folder."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{name}-{len(self.started)}.log"
        with log.open("wb") as words:
            popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment(**environ),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self.begin(),
            )
        process = Process(name, popen, log)
        self.started.append(process)
        return process

    def web(self, *words: str, port: int | None = None, demo: bool = False, **environ: str) -> Process:
        """A server that has answered its first page; `url` is where. `port` restarts one in place."""
        options = ["--port", str(port or free_port()), *([] if demo else ["--no-demo"]), *words]
        process = self.start("web", [sys.executable, "manage.py", "up", *options], **environ)
        process.url = process.wait_for(r"Allstop is ready at (\S+)").group(1)
        return process

    def worker(self, **environ: str) -> Process:
        name = f"worker{len(self.started)}@test"
        process = self.start("worker", [*CELERY, "worker", "--loglevel", "INFO", "-n", name], **environ)
        process.wait_for(r" ready\.")
        return process

    def beat(self, **environ: str) -> Process:
        process = self.start("beat", [*CELERY, "beat", "--loglevel", "INFO"], **environ)
        process.wait_for(r"beat: Starting")
        return process

    def manage(self, *words: str) -> str:
        """Run a management command to its end. Its output; AssertionError unless it exits with 0."""
        process = self.start(words[0], [sys.executable, "manage.py", *words])
        code = process.popen.wait(120)
        assert code == 0, f"manage.py {' '.join(words)} ended with {code}:\n{process.said()}"
        return process.said()

    def end(self) -> None:
        for process in self.started:
            process.ask_to_end()
        for process in self.started:
            process.end()


CELERY = [sys.executable, "-m", "celery", "-A", "dashboard"]
