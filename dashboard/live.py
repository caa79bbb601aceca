"""The one socket: it hands out hints {seq, topics} and never state, and takes nothing but topics.

Whoever gets a hint fetches the page's region over HTTP, where every right is asked again.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.urls import path

from runs import access, counts, wake
from runs.models import User
from runs.wake import group_of

SIGNED_OUT, FORBIDDEN, MALFORMED, TOO_MUCH = 4401, 4403, 4400, 4429
MESSAGE_BYTES, MESSAGES_PER_S, TOPICS = 16_384, 20, 50
RECHECK_S = 5.0


def current_user(session_key: str | None) -> User | None:
    """Who this session signs in right now; None after a sign-out, expiry or deactivation."""
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(SimpleNamespace(session=store))  # type: ignore[arg-type]
    return user if isinstance(user, User) else None


def can_read(user: User, topic: str) -> bool:
    """Whether the person may see `run:<id>`, `workspace:<id>:runs` or `drills`; False for any other text."""
    match topic.split(":"):
        case ["run", run_id]:
            return access.can_read_run(user, run_id)
        case ["workspace", workspace_id, "runs"]:
            return access.can_read_workspace(user, workspace_id)
        case ["drills"]:
            return user.is_active  # of the whole installation: everybody may read them
    return False


def verdict(session_key: str | None, topics: frozenset[str]) -> int:
    """0 when the session still stands and may see every topic, else the code to close with."""
    user = current_user(session_key)
    if user is None:
        return SIGNED_OUT
    return 0 if all(can_read(user, topic) for topic in topics) else FORBIDDEN


def parse_topics(text: str | None) -> frozenset[str] | None:
    """The topics of {"topics": [...]}; None for anything else."""
    try:
        message = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or set(message) != {"topics"}:
        return None
    topics = message["topics"]
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        return None
    return frozenset(topics)


class Live(AsyncWebsocketConsumer):
    """One open page. It joins the groups of its topics and is asked about its rights every 5 s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.topics: frozenset[str] = frozenset()
        self.checked_at = 0.0
        self.allowance = float(MESSAGES_PER_S)
        self.counted_at = time.monotonic()
        self.closing = self.open = False
        self.watch: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Accept first: a refused handshake reaches the page as 1006, which says nothing."""
        wake.attach(asyncio.get_running_loop())  # the in-memory layer delivers at once only on this loop
        await self.accept()
        counts.SOCKETS.inc()
        self.open = True
        if not await self.still_allowed(self.topics):
            return
        self.watch = asyncio.create_task(self.keep_checking())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Take {"topics": [...]}, add them if the person may see each one; answer with a first hint."""
        size = len(bytes_data or b"") + len((text_data or "").encode())
        if size > MESSAGE_BYTES or not self.within_rate():
            return await self.end(TOO_MUCH)
        wanted = parse_topics(text_data)
        if wanted is None:
            return await self.end(MALFORMED)
        if len(self.topics | wanted) > TOPICS:
            return await self.end(TOO_MUCH)
        if not await self.still_allowed(self.topics | wanted):
            return None
        for topic in wanted - self.topics:
            await self.channel_layer.group_add(group_of(topic), self.channel_name)
        self.topics |= wanted
        return await self.tell(sorted(wanted), 0)

    async def hint(self, message: dict[str, Any]) -> None:
        """From the layer. A person who lost the right since the last check learns nothing more."""
        mine = [topic for topic in message["topics"] if topic in self.topics]
        if not mine or self.closing:
            return
        if time.monotonic() - self.checked_at > RECHECK_S and not await self.still_allowed(self.topics):
            return
        await self.tell(mine, message["seq"])

    async def disconnect(self, code: int) -> None:
        self.closing = True
        if self.open:
            self.open = False
            counts.SOCKETS.dec()
        if self.watch is not None:
            self.watch.cancel()
        for topic in self.topics:
            await self.channel_layer.group_discard(group_of(topic), self.channel_name)

    async def tell(self, topics: list[str], seq: int) -> None:
        await self.send(text_data=json.dumps({"seq": seq, "topics": topics}))

    async def still_allowed(self, topics: frozenset[str]) -> bool:
        """Ask the database, the only thing this consumer asks it; close when the answer is no."""
        session = self.scope.get("session")
        code = await database_sync_to_async(verdict)(session.session_key if session else None, topics)
        self.checked_at = time.monotonic()
        if code:
            await self.end(code)
        return not code

    async def keep_checking(self) -> None:
        with suppress(asyncio.CancelledError):
            while not self.closing:
                await asyncio.sleep(RECHECK_S)
                await self.still_allowed(self.topics)

    async def end(self, code: int) -> None:
        if not self.closing:
            self.closing = True
            await self.close(code)

    def within_rate(self) -> bool:
        """A bucket of 20 messages that refills at 20 a second."""
        now = time.monotonic()
        refill = (now - self.counted_at) * MESSAGES_PER_S
        self.allowance, self.counted_at = min(MESSAGES_PER_S, self.allowance + refill), now
        if self.allowance < 1:
            return False
        self.allowance -= 1
        return True


websocket_urlpatterns = [path("live/", Live.as_asgi())]
