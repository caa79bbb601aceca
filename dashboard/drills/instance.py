"""The server that a drill runs against: one that is there, or a private one that is started for it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from .processes import ROOT, Process, environment

STARTS_WITHIN_S = 90.0
PERMIT_S = "5"  # so that nobody waits long for the end of a permit


class NoInstance(RuntimeError):
    """There is no server to run drills against. The text says what to do."""


@dataclass(frozen=True)
class Instance:
    """Where a server answers, and a token of its workspace for drills. private: it was started for this.

    agents_at: where agents ask, if that is another server of the same installation. keep: results, there.
    """

    url: str
    token: str
    private: bool = False
    agents_at: str = ""
    keep: Callable[[Sequence[Mapping[str, Any]]], None] = lambda results: None

    @property
    def for_agents(self) -> str:
        """Where agents ask."""
        return self.agents_at or self.url


@dataclass
class Private:
    """A server of our own with its data in `folder`. It may be killed, and its store taken away."""

    folder: Path
    process: Process | None = None
    port: int = 0
    token: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def ready(self) -> Instance:
        """The instance: started now if it is not, or died since. Raises NoInstance."""
        if not self.port:
            self._prepare()
        if self.process is None or not self.process.alive:
            self.start()
        self.token = self.token or issue_token(self.environ)[1]
        return Instance(self.url, self.token, private=True)

    def _prepare(self) -> None:
        self.store.mkdir(parents=True)
        self.port = free_port()
        self.environ = environment(
            ALLSTOP_DATA=str(self.folder),
            DATABASE_URL=f"sqlite:///{self.store}/allstop.sqlite3",
            ALLSTOP_PERMIT_S=PERMIT_S,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        """The folder of its database, and of nothing else."""
        return self.folder / "store"

    def start(self) -> None:
        """Start its server; returns when it answers. Raises NoInstance."""
        log = self.folder / f"server-{len(list(self.folder.glob('server-*')))}.log"
        words = ["manage.py", "up", "--no-demo", "--port", str(self.port), "--data", str(self.folder)]
        self.process = Process(words, self.environ, log)
        if self.process.says(r"Allstop is ready at ", STARTS_WITHIN_S) is None:
            self.process.end()
            raise NoInstance(f"The private instance did not start:\n{self.process.said()[-1500:]}")

    def kill(self) -> int:
        """SIGKILL for the server, with its controller inside. Its exit code."""
        assert self.process is not None
        return self.process.kill()

    @contextlib.contextmanager
    def without_store(self) -> Iterator[None]:
        """The database can't be reached while the block lasts: its folder is not there, in one rename."""
        away = self.store.with_name("store-away")
        self.store.rename(away)
        try:
            yield
        finally:
            away.rename(self.store)

    def end(self) -> None:
        if self.process is not None:
            self.process.end(within_s=30)


# -- one that is there


@contextlib.contextmanager
def of_data(data: Path) -> Iterator[Instance]:
    """The embedded instance of that data folder: the one that runs there, or one that is started.

    Raises NoInstance.
    """
    environ = environment(**_given(), ALLSTOP_DATA=str(data.absolute()))
    with contextlib.ExitStack() as ends:
        url = _address(data)
        token_id, token = issue_token(environ) if url else ("", "")
        if not url or not knows(url, token):  # nobody answers there, or somebody else does
            url = _start(data.absolute(), environ, ends)
            token_id, token = issue_token(environ)
        ends.callback(revoke_token, environ, token_id)
        yield Instance(url, token, keep=functools.partial(keep_results, environ))


def _start(data: Path, environ: dict[str, str], ends: contextlib.ExitStack) -> str:
    """A server on that folder, for as long as the stack lasts; where it answers."""
    data.mkdir(parents=True, exist_ok=True)
    words = ["manage.py", "up", "--no-demo", "--port", "0", "--data", str(data)]
    started = Process(words, environ, data / "drill-server.log")
    ends.callback(started.end, within_s=30)
    ready = started.says(r"Allstop is ready at (\S+)", STARTS_WITHIN_S)
    if ready is None:
        raise NoInstance(f"No server runs in {data}, and none could be started:\n{started.said()[-1500:]}")
    return ready.group(1)


def knows(url: str, token: str) -> bool:
    """Whether the server there takes this token: another one of its kind would not."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        asked = httpx2.get(f"{url}/api/v1/runs?limit=1", headers=headers, timeout=10, trust_env=False)
    except httpx2.RequestError:
        return False
    return asked.status_code == 200


def _given() -> dict[str, str]:
    """What says where the database of a given folder is."""
    names = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _address(data: Path) -> str:
    """Where the folder is served now, or nothing."""
    try:
        url = (data / "address").read_text().strip()
        return url if httpx2.get(f"{url}/livez", timeout=5, trust_env=False).status_code == 200 else ""
    except (OSError, httpx2.RequestError):
        return ""


# -- tokens


def issue_token(environ: dict[str, str]) -> tuple[str, str]:
    """Id and text of a token for the workspace of drills. The server's own program makes it."""
    return _token_program(environ, "issue")  # type: ignore[return-value]


def revoke_token(environ: dict[str, str], token_id: str) -> None:
    """Nobody gets in with it any more."""
    with contextlib.suppress(NoInstance):
        _token_program(environ, "revoke", token_id)


def keep_results(environ: dict[str, str], results: Sequence[Mapping[str, Any]]) -> None:
    """For the page of drills. When that fails, the results stay what they are."""
    lines = "".join(json.dumps(result) + "\n" for result in results)
    command = [sys.executable, "-m", "dashboard.drilling.keep"]
    options: dict[str, Any] = {"cwd": ROOT, "env": environ, "capture_output": True, "text": True}
    done = subprocess.run(command, input=lines, timeout=60, check=False, **options)
    if done.returncode:
        print(f"The results were not kept for the page of drills:\n{done.stderr[-1500:]}", file=sys.stderr)


def _token_program(environ: dict[str, str], *words: str) -> tuple[str, ...]:
    command = [sys.executable, "-m", "dashboard.drilling.token", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise NoInstance(f"No token for the workspace of drills was to be had:\n{done.stderr[-1500:]}")
    return tuple(done.stdout.split())


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
