"""A browser that visits one page for us: what it may reach, how long it lives, when it may change something.

Chromium is driven by Playwright (the extra `browser` of the server; nothing here is imported before it is
used). All of its traffic goes through a proxy of ours in this process, which connects to the origins that the
visit names and to no others, at addresses that outbound.py has checked: redirects elsewhere, sockets and
whatever the browser asks for by itself end there. Until `let_change()` the page may only read.

The calls of a `Visit` are not asynchronous: between two of them no loop runs, so that the database may be
asked. The browser is ended with the visit, by its process id if it does not go by itself.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.conf import settings

from . import outbound
from .browsing_proxy import Proxy

log = logging.getLogger(__name__)
T = TypeVar("T")

START_S, END_S, WAIT_S = 8.0, 3.0, 5.0  # to start · to end · for one of the few browsers to be free
AT_ONCE = 2  # browsers of one process
READS = ("GET", "HEAD", "OPTIONS")
INNER = ("data", "blob", "about")
FLAGS = (
    "--disable-background-networking",
    "--disable-quic",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-first-run",
)

_free = threading.BoundedSemaphore(AT_ONCE)


class NoBrowser(RuntimeError):
    """No browser could be started here. Nothing was visited."""


class Busy(NoBrowser):
    """All browsers of this process are at work. Nothing was visited; ask again later."""


class Failed(RuntimeError):
    """The page did not do what was asked of it, or not in time."""


@dataclass
class Sent:
    """A request of the page that may change something. `status`: None while no answer came."""

    method: str
    path: str
    status: int | None = None
    failed: bool = False


def lacks() -> str:
    """What is missing for a browser on this server, or nothing."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed (the extra `browser` of allstop-server)"
    given = settings.ALLSTOP_CHROMIUM
    if given:
        return "" if shutil.which(given) else f"ALLSTOP_CHROMIUM names no program: {given}"
    return (
        ""
        if _own_places()
        else "there is no Chromium: `playwright install chromium`, or set ALLSTOP_CHROMIUM"
    )


def _own_places() -> list[Path]:
    """Where Playwright keeps what it downloaded."""
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    caches = [Path.home() / ".cache/ms-playwright", Path.home() / "Library/Caches/ms-playwright"]
    roots = [Path(given)] if given not in ("", "0") else caches
    return [path for root in roots for path in root.glob("chromium*")]


@contextmanager
def visit(origins: Sequence[str], headers: dict[str, dict[str, str]] | None = None) -> Iterator[Visit]:
    """A browser with one empty page; ended with the block. `headers`: by origin. Raises NoBrowser, Busy."""
    if why := lacks():
        raise NoBrowser(why)
    if not _free.acquire(timeout=WAIT_S):
        raise Busy("no browser is free")
    try:
        made = Visit(frozenset(origins), headers or {})
        try:
            made.open()
            yield made
        finally:
            made.close()
    finally:
        _free.release()


@dataclass
class Visit:
    """One page in a browser of its own. `refused`: what the page asked for and was not given."""

    origins: frozenset[str]
    headers: dict[str, dict[str, str]]
    refused: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    processes: dict[int, str] = field(default_factory=dict)  # by id, with when each was born
    page: Any = None
    _may_change: bool = False

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, said: log.debug("browser: %s", said.get("message")))
        self._proxy = Proxy(self.origins)
        self._playwright: Any = None
        self._browser: Any = None

    # -- from its start to its end

    def open(self) -> None:
        """Raises NoBrowser."""
        try:
            self.run(self._open(), START_S)
        except Failed as error:
            raise NoBrowser(f"the browser did not start: {error}") from error

    async def _open(self) -> None:
        from playwright.async_api import async_playwright

        port = await self._proxy.start()
        self._playwright = await async_playwright().start()
        self._browser = await self._playwright.chromium.launch(
            executable_path=settings.ALLSTOP_CHROMIUM or None,
            chromium_sandbox=settings.ALLSTOP_CHROMIUM_SANDBOX,
            args=list(FLAGS),
            env={
                "PATH": os.environ.get("PATH", ""),
                "HOME": tempfile.gettempdir(),
            },  # and none of our secrets
            proxy={"server": f"http://127.0.0.1:{port}"},
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        await self._note_processes()
        context = await self._browser.new_context(accept_downloads=False, service_workers="block")
        await context.route("**/*", self._pass_on)
        await context.route_web_socket("**/*", lambda socket: socket.close())
        self.page = await context.new_page()
        context.on("page", lambda other: asyncio.ensure_future(other.close()))

    async def _note_processes(self) -> None:
        session = await self._browser.new_browser_cdp_session()
        told = await session.send("SystemInfo.getProcessInfo")
        for one in told["processInfo"]:
            if one["type"] == "browser":
                driver, born = _stat(one["id"])
                self.processes |= {one["id"]: born, driver: _stat(driver)[1]}

    def close(self) -> None:
        """End page, browser and driver; by force what does not go by itself."""
        for ending in (self._end_browser(), self._end_driver(), self._proxy.end()):
            with suppress(Failed):
                self.run(ending, END_S)
        if self._kill():  # what reads their pipes has to see them end before the loop does
            with suppress(Failed):
                self.run(asyncio.sleep(0.3), END_S)
        with suppress(Failed):
            self.run(self._loop.shutdown_default_executor(), END_S)
        self._loop.close()

    def _kill(self) -> bool:
        """End by force what is still there; whether anything was."""
        left = [pid for pid, born in self.processes.items() if pid > 1 and _stat(pid)[1] == born]
        for pid in left:  # by its birth too: a number that was given anew is nobody of ours
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return bool(left)

    async def _end_browser(self) -> None:
        if self._browser is not None:
            await self._browser.close()

    async def _end_driver(self) -> None:
        if self._playwright is not None:
            await self._playwright.stop()

    def run(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """What it comes to, within a limit. Raises Failed."""
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, limit_s))
        except TimeoutError as error:
            raise Failed(f"{limit_s:g} seconds were over") from error
        except Exception as error:
            if type(error).__module__.startswith("playwright") or isinstance(error, OSError):
                raise Failed(first_line(error)) from error
            raise

    # -- what the page may ask for

    def let_change(self) -> None:
        """From now on the page may send what changes something."""
        self._may_change = True

    async def _pass_on(self, route: Any) -> None:
        request = route.request
        why, origin = self._why_not(request.method, request.url)
        with suppress(Exception):  # the page may have gone meanwhile
            if why:
                self.refused.append(why)
                await route.abort("blockedbyclient")
                return
            headers = {**await request.all_headers(), **self.headers.get(origin, {})}
            if self._may_change:
                await self._send_once(route, headers)
            else:
                await route.continue_(headers=headers)

    async def _send_once(self, route: Any, headers: dict[str, str]) -> None:
        """Chromium sends a request anew, even a POST, when a connection that it had used before is cut. So
        what may change something is sent by the driver, which sends it once."""
        request = route.request
        sent = Sent(request.method, urlsplit(request.url).path[:200])
        self.sent += [sent] if request.method not in READS else []
        try:
            answer = await route.fetch(headers=headers, max_redirects=0, max_retries=0)
        except Exception:
            sent.failed = True
            await route.abort("failed")
            raise
        sent.status = answer.status
        await route.fulfill(response=answer)

    def _why_not(self, method: str, url: str) -> tuple[str, str]:
        if urlsplit(url).scheme in INNER:
            return "", ""
        try:
            target = outbound.target_of(url)
        except outbound.Refused:
            return "an address that can't be called", ""
        if target.origin not in self.origins:
            return f"{target.origin}: not named by the kind", ""
        if method not in READS and not self._may_change:
            return f"{method} {target.path}: nothing may change yet"[:300], ""
        return "", target.origin


def first_line(error: Exception) -> str:
    """What went wrong, without Playwright's log of all that it tried."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _stat(pid: int) -> tuple[int, str]:
    """The parent of a process, and when it was born; (0, "") where the kernel doesn't say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[1]), words[19]
    except (OSError, ValueError, IndexError):
        return 0, ""
