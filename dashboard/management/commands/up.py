"""Serve Allstop: migrations, web server and, without Redis, the worker, all in this process."""

import contextlib
import fcntl
import io
import logging
import os
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.db import connection

from dashboard import logs

LONGEST_GOODBYE_S = 50.0  # from SIGTERM on; containers give a process 60 s before they kill it
MIGRATING = 0x616C6C73  # the advisory lock held while tables are changed


class Command(BaseCommand):
    help = "Serve Allstop with a demo workspace. With REDIS_URL set: the web server alone."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
        parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
        parser.add_argument("--data", metavar="DIR", help="folder for database, keys and logs")
        parser.add_argument("--no-demo", action="store_true", help="make no workspace and start no agent")
        parser.add_argument(
            "--demo-password-file", type=Path, metavar="FILE", help="the demo's password is in FILE"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            host, port = take_port(options["host"], options["port"])
            reach_database()
            prepare_database()
            url = open_at(host, port)
            with contextlib.nullcontext() if options["no_demo"] else one_demo():
                self.serve(host, port, url, options)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def serve(self, host: str, port: int, url: str, options: dict[str, Any]) -> None:
        from dashboard.asgi import application
        from dashboard.server import Server

        keep_log(settings.ALLSTOP_DATA)
        greeting = Greeting(self, host, port, url, options)
        server = Server(application, host=host, port=port, ready=greeting.begin, leave=leave)
        greeting.stop_server = server.stop
        with embedded_worker(), contextlib.closing(greeting):
            server.run()
        if server.failed:
            raise CommandError(port_sentence(host, port, "another program was quicker"))
        if greeting.failed:
            raise CommandError(greeting.failed)


class Greeting:
    """Waits for the first page, then starts the demo and says that Allstop is ready."""

    def __init__(self, command: BaseCommand, host: str, port: int, url: str, options: dict[str, Any]) -> None:
        self.command, self.host, self.port, self.url, self.options = command, host, port, url, options
        self.failed = ""
        self.demo: Any = None
        self.stop_server: Any = None
        self.thread = threading.Thread(target=self.greet, name="greeting", daemon=True)

    def begin(self) -> None:
        self.thread.start()

    def greet(self) -> None:
        from dashboard.server import first_page

        try:
            status = first_page(reachable(self.host), self.port)
            if not 200 <= status < 500:
                raise CommandError(f"The server started, but its first page answers {status or 'nothing'}.")
            if not self.options["no_demo"]:
                self.demo = start_demo(self.url, self.options["demo_password_file"])
            keep_address(settings.ALLSTOP_DATA, self.url)
            self.command.stdout.write(f"Allstop is ready at {self.url}")
            self.command.stdout.flush()
        except Exception as error:
            logging.getLogger(__name__).exception("Allstop could not be made ready")
            self.fail(str(error))

    def fail(self, sentence: str) -> None:
        from twisted.internet import reactor

        self.failed = sentence
        reactor.callFromThread(self.stop_server)

    def close(self) -> None:
        if self.demo is not None:
            self.demo.stop()


@contextlib.contextmanager
def one_demo() -> Iterator[None]:
    """One demo a data folder: a second one would send the first one's look-ups to its own bank."""
    with Path(settings.ALLSTOP_DATA, "demo.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                f"Allstop serves its demo from {settings.ALLSTOP_DATA} already. Stop that one, or start "
                "another beside it: python3 manage.py up --data DIR"
            ) from None
        yield


def start_demo(url: str, password_file: Path | None) -> Any:
    """The demo's workspace, people and processes; it prints how to sign in."""
    from dashboard.demo import setup

    return setup.prepare(url=url, data=settings.ALLSTOP_DATA, password_file=password_file)


def take_port(host: str, port: int) -> tuple[str, int]:
    from dashboard.server import free_port, taken

    if not port:
        return host, free_port(host)
    if why := taken(host, port):
        raise CommandError(port_sentence(host, port, why))
    return host, port


def port_sentence(host: str, port: int, why: str) -> str:
    return (
        f"Port {port} of {host} can't be had ({why}). Stop what uses it, or choose another: "
        f"python3 manage.py up --port {port + 1}"
    )


def reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def open_at(host: str, port: int) -> str:
    """The address to open; without ALLSTOP_ORIGINS the sockets accept pages of exactly this server."""
    name = reachable(host)
    name = f"[{name}]" if ":" in name else name
    if "ALLSTOP_ORIGINS" not in os.environ:
        origins = {f"http://{name}:{port}", f"http://localhost:{port}"}
        settings.ALLSTOP_ORIGINS = settings.CSRF_TRUSTED_ORIGINS = sorted(origins)
    return f"http://{name}:{port}"


# --- Database -----------------------------------------------------------------------------------------------


def reach_database() -> None:
    """Fail with a sentence, at once, not after the pool has tried for a while."""
    try:
        if connection.vendor == "sqlite":
            keep_to_its_owner(Path(str(connection.settings_dict["NAME"])))
            connection.ensure_connection()
        else:
            psycopg.connect(**connection.get_connection_params()).close()
    except Exception as error:  # each driver has its own
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise CommandError(
            f"The database at {address()} can't be reached: {said[0]}\n"
            "Start it, or mend DATABASE_URL; without DATABASE_URL a file in the data folder is used."
        ) from None


def keep_to_its_owner(file: Path) -> None:
    """Make the file for its owner alone, in whatever folder; its log and index follow it. Raises OSError."""
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))


def address() -> str:
    """Where the database is, without its password."""
    config = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(config["NAME"])
    return f"{config['HOST'] or 'localhost'}:{config['PORT'] or 5432}/{config['NAME']}"


def prepare_database() -> None:
    with one_at_a_time():
        call_command("migrate", interactive=False, verbosity=0)
    call_command("check", databases=["default"], stdout=io.StringIO())


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two servers that start together change the tables one after the other."""
    if connection.vendor == "sqlite":
        with Path(settings.ALLSTOP_DATA, "migrating.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATING])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATING])
            cursor.execute("RESET statement_timeout; RESET lock_timeout")
        connection.close()


# --- The rest of the process --------------------------------------------------------------------------------


def embedded_worker() -> contextlib.AbstractContextManager[Any]:
    if settings.REDIS_URL:
        return contextlib.nullcontext()
    from dashboard import embedded
    from dashboard.celery import app

    return embedded.running(app)


def leave() -> None:
    """Told to go: nothing new is claimed, and whatever holds on is cut off in the end."""
    from dashboard import embedded

    embedded.leave()
    last = threading.Timer(LONGEST_GOODBYE_S, cut_off)
    last.daemon = True
    last.start()


def cut_off() -> None:
    """What is still in flight becomes unknown when its lease runs out, and is looked up."""
    logging.getLogger(__name__).error("Ended with work in flight: it did not end in time.")
    os._exit(1)


def keep_address(data: Path, url: str) -> None:
    """Where this data folder is served, for `signin`; a folder that can't be written has none."""
    with contextlib.suppress(OSError):
        (data / "address").write_text(f"{url}\n")


def keep_log(data: Path) -> None:
    with contextlib.suppress(OSError):
        handler = RotatingFileHandler(data / "logs" / "server.log", maxBytes=5_000_000, backupCount=3)
        handler.setFormatter(logs.formatter(settings.ALLSTOP_LOG_FORMAT))
        logging.getLogger().addHandler(handler)
