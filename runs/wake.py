"""Pokes and wake-ups, delivered after the commit by one thread, never by a request.

A message is a hint: rows are the truth, so a lost one costs seconds (the sweeper and the
pages' polling make good what is lost), and a silent Redis can delay no stop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery import current_app
from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

LIMIT_S = 1.0
_waiting: queue.Queue[Hint | Job] = queue.Queue(maxsize=10_000)
_started = threading.Lock()
_thread: threading.Thread | None = None
_loop: asyncio.AbstractEventLoop | None = None


@dataclass(frozen=True)
class Hint:
    """Something under these topics changed; `seq` is the newest evidence line."""

    topics: tuple[str, ...]
    seq: int


@dataclass(frozen=True)
class Job:
    """A task worth running now instead of at the next sweep."""

    task: str
    args: tuple[Any, ...]


def group_of(topic: str) -> str:
    """The channel layer's name for a topic: opaque, and safe whatever the topic holds."""
    return "t." + hashlib.sha256(topic.encode()).hexdigest()[:40]


def attach(loop: asyncio.AbstractEventLoop) -> None:
    """Deliver hints on this loop: the in-memory layer is fast only on the server's own."""
    global _loop
    _loop = loop


def poke(topics: Sequence[str], seq: int) -> None:
    """Tell the pages after a commit. Never blocks, never fails."""
    _put(Hint(tuple(topics), seq))


def run_soon(task: str, *args: Any) -> None:
    """Ask a worker to run a task now. Never blocks, never fails."""
    _put(Job(task, args))


def waiting() -> int:
    """How many hints and tasks of this process wait to be delivered."""
    return _waiting.qsize()


def _put(message: Hint | Job) -> None:
    _start()
    while True:
        try:
            _waiting.put_nowait(message)
            return
        except queue.Full:  # the oldest hint is worth least
            try:
                _waiting.get_nowait()
            except queue.Empty:
                continue


def _start() -> None:
    global _thread
    if _thread is not None and _thread.is_alive():
        return
    with _started:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_deliver_all, name="allstop-wake", daemon=True)
            _thread.start()


def _deliver_all() -> None:
    own = asyncio.new_event_loop()
    while True:
        message = _waiting.get()
        try:
            if isinstance(message, Hint):
                _send_hint(message, own)
            else:
                current_app.send_task(message.task, args=message.args, retry=False)
        except Exception as error:  # a hint may be lost; the rows are not
            log.info("a hint was not delivered: %s", type(error).__name__)


def _send_hint(hint: Hint, own: asyncio.AbstractEventLoop) -> None:
    work = asyncio.wait_for(_to_groups(hint), LIMIT_S)
    if _loop is not None and _loop.is_running():
        asyncio.run_coroutine_threadsafe(work, _loop).result(LIMIT_S + 0.5)
    else:
        own.run_until_complete(work)


async def _to_groups(hint: Hint) -> None:
    layer: Any = get_channel_layer()
    if layer is None:
        return
    for topic in hint.topics:
        message = {"type": "hint", "topics": [topic], "seq": hint.seq}
        await layer.group_send(group_of(topic), message)
