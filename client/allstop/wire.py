"""One logical call to the server: repeated with the same key until it is answered, or until time is up.

Only calls to Allstop are repeated here, never a caller's function.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2

from allstop.errors import GateUnavailable, Json, from_problem

# Worth another try: the same Idempotency-Key makes it the same call.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Answer:
    """status: the HTTP status (below 400) · data: the JSON object · replayed: stored from an earlier try."""

    status: int
    data: Json
    replayed: bool = False


class Wire:
    """The connection of one Client. Safe to share between threads. Times are in seconds."""

    def __init__(self, url: str, token: str, *, timeout_s: float, give_up_s: float) -> None:
        self.give_up_s = give_up_s
        self._timeout_s = timeout_s
        self._http = httpx2.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(
        self, path: str, *, params: dict[str, str] | None = None, within_s: float | None = None
    ) -> Answer:
        """Read `path`. Raises as `post` does."""
        return self._ask("GET", path, {}, params=params, within_s=within_s)

    def put(self, path: str, body: Json) -> Answer:
        """Write `path`. Raises as `post` does."""
        return self._ask("PUT", path, {}, body=body)

    def post(self, path: str, body: Json, *, key: str | None = None, within_s: float | None = None) -> Answer:
        """Post once, however often it is tried. `key`: the Idempotency-Key, a fresh one by default.

        Raises GateUnavailable without an answer after `within_s` (default: give_up_s), and for an answer of
        400 and above what `errors.from_problem` says.
        """
        return self._ask("POST", path, {"Idempotency-Key": key or new_key()}, body=body, within_s=within_s)

    def tell(self, path: str, body: Json) -> Answer:
        """Post what may arrive any number of times, such as a heartbeat: no key. Raises as `post` does."""
        return self._ask("POST", path, {}, body=body)

    def _ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        *,
        body: Json | None = None,
        params: dict[str, str] | None = None,
        within_s: float | None = None,
    ) -> Answer:
        reason = "no time was left to ask"
        for left in _attempts(self.give_up_s if within_s is None else within_s):
            try:
                response = self._http.request(
                    method,
                    path,
                    json=body,
                    params=params,
                    headers=headers,
                    timeout=min(self._timeout_s, left),
                )
            except httpx2.RequestError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if not _worth_repeating(response):
                return _read(response)
            reason = f"it answered {response.status_code}"
        raise GateUnavailable(f"No usable answer from Allstop to {method} {path}: {reason}.")


def new_key() -> str:
    """An Idempotency-Key for one logical call."""
    return uuid.uuid4().hex


def _attempts(within_s: float) -> Iterator[float]:
    """Yields the seconds left before each attempt; sleeps a growing, jittered while between two."""
    end = time.monotonic() + within_s
    pause = 0.05
    while (left := end - time.monotonic()) > 0:
        yield left
        time.sleep(max(0.0, min(pause * random.uniform(0.5, 1.5), end - time.monotonic())))  # noqa: S311
        pause = min(pause * 2, 2.0)


def _worth_repeating(response: httpx2.Response) -> bool:
    if response.status_code == 409:
        return str(_json(response).get("type", "")).endswith("/idempotency-key-in-progress")
    return response.status_code in _AGAIN


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
