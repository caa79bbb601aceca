"""The HTTP API, as any program with a token may use it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import httpx2

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """An answer. `status` is 0 when none came."""

    status: int
    data: Any = None

    @property
    def problem(self) -> str:
        """The type of the problem that was answered, or nothing."""
        told = self.data.get("type", "") if isinstance(self.data, dict) and self.status >= 400 else ""
        return str(told).rpartition("/")[2]


class Unexpected(RuntimeError):
    """The API answered a plain question otherwise than with success."""


class Api:
    """url: of the server. token: of the workspace that drills run in. Times are in seconds."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url.rstrip("/"), token
        self._http = httpx2.Client(
            base_url=f"{self.url}/api/v1/", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", within_s: float = 10
    ) -> Said:
        """One call, whatever it comes to."""
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = self._http.request(method, path, json=body, headers=headers, timeout=within_s)
        except httpx2.RequestError:
            return Said(0)
        try:
            return Said(answer.status_code, answer.json())
        except ValueError:
            return Said(answer.status_code)

    def get(self, path: str) -> Any:
        """What stands there. Raises Unexpected."""
        return _well(self.ask("GET", path), path)

    def post(self, path: str, body: object, key: str = "") -> Any:
        """One call that has to go well. Raises Unexpected."""
        return _well(self.ask("POST", path, body, key=key or uuid.uuid4().hex), path)

    def ready(self) -> int:
        """The status of /readyz: 200 when a stop can be recorded."""
        try:
            return self._http.get(f"{self.url}/readyz", timeout=10).status_code
        except httpx2.RequestError:
            return 0

    # -- what drills read most

    def run_of(self, key: str) -> Json | None:
        """The run with this key, if it is registered."""
        found = [run for run in self.get(f"runs?q={key}")["items"] if run["key"] == key]
        return found[0] if found else None

    def lines(self, run_id: str) -> list[Json]:
        """The evidence of a run, in its order."""
        found: list[Json] = []
        while page := self.get(f"runs/{run_id}/evidence?limit=200&after={len(found)}")["items"]:
            found += page
        return found


def _well(said: Said, path: str) -> Any:
    if said.status not in (200, 201, 202):
        raise Unexpected(
            f"{path.partition('?')[0]} was answered with {said.status or 'nothing'}: {said.data}"
        )
    return said.data
