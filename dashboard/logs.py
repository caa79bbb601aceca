"""How a process says what happens: one event a line, as text or as JSON, without anything secret.

An event carries ids (request, run, stop, version, workspace), never a header, a body or a name. What an
exception says is cut after its first line: the rest of it often quotes the row or the input. What looks like
a secret is taken out of each value, and of the whole line (runs/redaction.py).
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any

from structlog import contextvars, stdlib
from structlog.processors import TimeStamper
from structlog.typing import EventDict, WrappedLogger

from runs import redaction

FIELDS = ("request_id", "task", "run", "stop", "version", "workspace")
SAID = 300  # characters of what an exception says
CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), 127, 0x2028, 0x2029] if code != 9}


def told(error: BaseException) -> str:
    """Where an error arose, and the first line of what it says; its causes before it."""
    lines: list[str] = []
    for one in reversed([*_chain(error)]):
        lines += traceback.format_tb(one.__traceback__)
        said = (redaction.text(str(one)).splitlines() or [""])[0][:SAID]
        lines.append(f"{type(one).__module__}.{type(one).__qualname__}: {said}\n")
    return "".join(lines)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def exceptions(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """The exception of an event, in words."""
    info = event.pop("exc_info", None)
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = told(error)
    event.pop("exc_text", None)
    event.pop("stack", None)
    return event


def without_secrets(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Before a format escapes anything that a secret could be told by."""
    return {key: redaction.redact(value) for key, value in event.items()}


def as_json(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """One JSON object."""
    first = {key: event.pop(key) for key in ("at", "level", "logger", "event") if key in event}
    return json.dumps({**first, **event}, ensure_ascii=True, default=str)


def as_text(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """One line for a person, and an exception below it."""
    at, level, origin = (event.pop(key, "") for key in ("at", "level", "logger"))
    said, below = str(event.pop("event", "")).translate(CONTROL), event.pop("exception", "")
    fields = "".join(f" {key}={str(value).translate(CONTROL)}" for key, value in event.items())
    return f"{at} {str(level).upper()} {origin}: {said}{fields}" + (f"\n{below}".rstrip() if below else "")


class Formatter(stdlib.ProcessorFormatter):
    """`kind`: text or json."""

    def __init__(self, kind: str = "text") -> None:
        super().__init__(
            foreign_pre_chain=[
                contextvars.merge_contextvars,
                stdlib.add_log_level,
                stdlib.add_logger_name,
                stdlib.ExtraAdder(allow=FIELDS),
                TimeStamper(fmt="iso", utc=True, key="at"),
            ],
            processors=[
                stdlib.ProcessorFormatter.remove_processors_meta,
                exceptions,
                without_secrets,
                as_json if kind == "json" else as_text,
            ],
        )

    def format(self, record: logging.LogRecord) -> str:
        return redaction.text(super().format(record))


def formatter(kind: str) -> Formatter:
    """What the settings name. ValueError for a format that there is not."""
    if kind not in ("text", "json"):
        raise ValueError(f"ALLSTOP_LOG_FORMAT is {kind!r}; it can be text or json.")
    return Formatter(kind)


def logging_of(kind: str, level: str) -> dict[str, Any]:
    """Django's LOGGING. Stops are told at INFO unless `level` says otherwise; all else from WARNING on."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"event": {"()": "dashboard.logs.formatter", "kind": kind}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "event"}},
        "loggers": {"allstop": {"level": level or "INFO"}},
        "root": {"handlers": ["console"], "level": level or "WARNING"},
    }
