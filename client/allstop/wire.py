"""One logical call to the server: repeated with the same key until it is answered, or until time is up.

Only calls to Allstop are repeated here, never a caller's function.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass

import httpx2

from allstop.errors import GateUnavailable, Json, from_problem
from allstop.talk import Answer, Ask

# Worth another try: the same Idempotency-Key makes it the same call.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Address:
    """Where the server is and who asks. timeout_s: one try of one call. give_up_s: all tries of one call."""

    url: str
    token: str
    timeout_s: float
    give_up_s: float

    @property
    def base_url(self) -> str:
        """Of the HTTP API."""
        return f"{self.url.rstrip('/')}/api/v1/"

    @property
    def headers(self) -> dict[str, str]:
        """Of every call."""
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}


class Patience:
    """The time that is left for one call, and the growing, jittered pauses between its tries. In seconds."""

    def __init__(self, ask: Ask, address: Address) -> None:
        within = address.give_up_s if ask.within_s is None else ask.within_s
        self._end = time.monotonic() + within
        self._timeout_s = address.timeout_s
        self._pause = 0.05
        self._told_s = 0.0
        self._ask = ask
        self.reason = "no time was left to ask"

    def left(self) -> float:
        """Until the call is given up. Not above 0: it is."""
        return self._end - time.monotonic()

    def timeout(self) -> float:
        """Of the next try."""
        return max(0.001, min(self._timeout_s, self.left()))

    def pause(self) -> float:
        """How long to wait before the next try: at least as long as the server said.

        When that is longer than the time that is left, the call is given up at once.
        """
        if self._told_s > self.left():
            self._end = time.monotonic()
        pause = max(self._told_s, self._pause * random.uniform(0.5, 1.5))  # noqa: S311
        self._pause, self._told_s = min(self._pause * 2, 2.0), 0.0
        return max(0.0, min(pause, self.left()))

    def taken(self, response: httpx2.Response) -> Answer | None:
        """The answer; None if another try may bring one. Raises what `errors.from_problem` makes of it."""
        told_s = _retry_after_s(response)
        if _worth_repeating(response) or (_is_busy_itself(response) and told_s < self.left()):
            self.reason = f"it answered {response.status_code}"
            self._told_s = told_s
            return None
        return _read(response)

    def missed(self, error: httpx2.RequestError) -> None:
        """A try brought no answer."""
        self.reason = f"{type(error).__name__}: {error}"

    def over(self) -> GateUnavailable:
        """No try brought one."""
        ask = self._ask
        return GateUnavailable(f"No usable answer from Allstop to {ask.method} {ask.path}: {self.reason}.")


class Wire:
    """The connection of one Client. Safe to share between threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._http = httpx2.Client(base_url=address.base_url, headers=address.headers)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, ask: Ask) -> Answer:
        """Ask once, however often it is tried.

        Raises GateUnavailable when no answer came in time, and for an answer of 400 and above what
        `errors.from_problem` says.
        """
        patience = Patience(ask, self.address)
        while patience.left() > 0:
            try:
                response = self._http.request(**request(ask, patience))
            except httpx2.RequestError as error:
                patience.missed(error)
            except RuntimeError as error:  # a beat that was still waiting when its client was closed
                if not self._http.is_closed:
                    raise
                raise GateUnavailable("This client was closed.") from error
            else:
                if answer := patience.taken(response):
                    return answer
            time.sleep(patience.pause())
        raise patience.over()


def request(ask: Ask, patience: Patience) -> Json:
    """The arguments of the HTTP client's `request` for the next try."""
    return {
        "method": ask.method,
        "url": ask.path,
        "json": ask.body,
        "params": ask.params,
        "headers": {"Idempotency-Key": ask.key} if ask.key else {},
        "timeout": patience.timeout(),
    }


def new_key() -> str:
    """An Idempotency-Key for one logical call."""
    return uuid.uuid4().hex


def _retry_after_s(response: httpx2.Response) -> float:
    """The seconds of Retry-After; 0 without it, and for a date."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _worth_repeating(response: httpx2.Response) -> bool:
    if response.status_code == 409:
        return str(_json(response).get("type", "")).endswith("/idempotency-key-in-progress")
    return response.status_code in _AGAIN


def _is_busy_itself(response: httpx2.Response) -> bool:
    """A run is not quiet, and only since Allstop sends something of it: it says when that may be over."""
    if response.status_code != 409 or not _retry_after_s(response):
        return False
    return str(_json(response).get("type", "")).endswith("/not-quiet")


def _read(response: httpx2.Response) -> Answer:
    data = _json(response)
    if response.status_code >= 400:
        raise from_problem(response.status_code, data)
    if response.status_code >= 300 or not data:
        raise GateUnavailable(f"Allstop answered {response.status_code} without JSON; is the address right?")
    return Answer(response.status_code, data, response.headers.get("Idempotency-Replayed") == "true")


def _json(response: httpx2.Response) -> Json:
    try:
        data = response.json()
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
