"""A conversation with the server, written once.

It is a generator: it yields what is to be asked, or done, and is sent the answer. Who carries it out may
wait in a thread (`carry_out`) or in an event loop (`allstop.aio`); what is asked, and what follows from an
answer, is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from allstop.errors import Json

T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """One logical call to the server. key: its Idempotency-Key. within_s: all tries of it, in seconds."""

    method: str
    path: str
    body: Json | None = None
    key: str | None = None
    params: dict[str, str] | None = None
    within_s: float | None = None


@dataclass(frozen=True)
class Answer:
    """status: the HTTP status (below 400) · data: the JSON object · replayed: stored from an earlier try."""

    status: int
    data: Json
    replayed: bool = False


@dataclass(frozen=True)
class Do:
    """Work that waits for the disk. An event loop has it done in a thread."""

    work: Callable[[], Any]


# What is sent back is the Answer to an Ask and what the work of a Do returned.
Talk = Generator[Ask | Do, Any, T]


def asked(ask: Ask) -> Talk[Answer]:
    """A conversation of one call."""
    answer: Answer = yield ask
    return answer


def carry_out(talk: Talk[T], send: Callable[[Ask], Answer]) -> T:
    """Have the conversation in this thread. Whatever `send` raises is raised inside of it."""
    try:
        item = next(talk)
        while True:
            try:
                got = item.work() if isinstance(item, Do) else send(item)
            except BaseException as error:
                item = talk.throw(error)
            else:
                item = talk.send(got)
    except StopIteration as end:
        value: T = end.value
        return value
