"""What a call did to the world, as far as its caller can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allstop.errors import NotApplied

NAMES = ("applied", "partial", "not_applied", "unknown")
# A 4xx says that the request was turned away, except these: the server may have begun, or says "later".
_UNSURE_4XX = (408, 409, 425, 429)


@dataclass(frozen=True)
class Outcome:
    """One report. Return it from the function you send when a plain value doesn't say enough.

    name: applied · partial · not_applied · unknown. result: JSON, at most 64 KiB; given back for this key
    later. items: the parts of a batch. usage: what the provider says of the call, e.g. {"input_tokens": 812}.
    Of a model turn: spend (model, tokens_in, tokens_out, cost), and the partial_output of one that was cut
    off; see Turn.
    """

    name: str
    result: Any = None
    provider_ref: str | None = None
    items: list[Any] | None = None
    detail: str | None = None
    usage: dict[str, Any] | None = None
    spend: dict[str, Any] | None = None
    partial_output: str | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"An outcome is one of {', '.join(NAMES)}, not {self.name!r}.")


def plain_outcome(value: object) -> Outcome:
    """The default: a value means applied, an exception means unknown unless it is NotApplied.

    A returned HTTP response is judged by its status: a 500 that nobody raised is not an applied effect.
    """
    if isinstance(value, Outcome):
        return value
    if isinstance(value, NotApplied):
        return Outcome("not_applied", detail=str(value) or None)
    if isinstance(value, BaseException):
        return Outcome("unknown", detail=f"The call raised {type(value).__name__}.")
    return http_outcome(value) if _status(value) is not None else Outcome("applied", result=value)


def http_outcome(value: object) -> Outcome:
    """Judge an HTTP response, or the exception that came in its place.

    2xx applied · 4xx not applied, except 408, 409, 425 and 429 · connection refused before any byte not
    applied · all else unknown. Not for a transport that retries by itself: only its last attempt shows here.
    """
    if isinstance(value, (Outcome, NotApplied)):
        return plain_outcome(value)
    status = _status(value)
    if status is None:
        return _of_exception(value) if isinstance(value, BaseException) else plain_outcome(value)
    return Outcome(_by_status(status), result=_body(value), detail=f"HTTP {status}")


def _by_status(status: int) -> str:
    if 200 <= status < 300:
        return "applied"
    return "not_applied" if 400 <= status < 500 and status not in _UNSURE_4XX else "unknown"


def _of_exception(error: BaseException) -> Outcome:
    if _refused_before_any_byte(error):
        return Outcome("not_applied", detail="The connection was refused before anything was sent.")
    return Outcome("unknown", detail=f"The call raised {type(error).__name__}.")


def _refused_before_any_byte(error: BaseException | None) -> bool:
    """Follows only what an exception wraps or was raised from. What merely came before it (`__context__`) may
    belong to another attempt, and the last one did send.
    """
    while error is not None:
        if type(error).__name__ == "MaxRetryError":  # urllib3: the last of several attempts
            return False
        wrapped = (error, getattr(error, "reason", None), *error.args)
        if any(isinstance(e, ConnectionRefusedError) for e in wrapped):
            return True
        error = error.__cause__
    return False


def _status(value: object) -> int | None:
    """The HTTP status of a response, or of an exception that carries one (httpx, requests, urllib)."""
    inner = getattr(value, "response", None) if isinstance(value, BaseException) else None
    holder = value if inner is None else inner
    if not hasattr(holder, "headers"):
        return None
    for name in ("status_code", "status", "code"):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 100 <= status < 600:
            return int(status)
    return None


def _body(value: object) -> Any:
    try:
        return value.json()  # type: ignore[attr-defined]
    except Exception:  # no body, not JSON, already consumed: the status is the outcome, the body a bonus
        return None
