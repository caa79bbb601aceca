"""A provider of jobs on loopback: it accepts them, says how far they are, and takes requests to cancel.

POST /jobs {…} with Idempotency-Key → 201 {id, key, status} · GET /jobs?key=K and GET /jobs/<id> → 200 or 404
POST /jobs/<id>/cancel → 202, or what `cancels` says; `asked` keeps each request with its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.effects.outside import answer, server, url_of
from tests.worlds import a_kind

RULES = {
    "path": "status",
    "accepted": ["queued"],
    "running": ["running"],
    "completed": ["done"],
    "failed": ["failed", "cancelled"],
}


@dataclass
class JobSite:
    """What the provider knows, and what it was asked, in order: (method, path, key)."""

    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    cancels: int = 202  # the status of its answer; 0: it hangs up

    def says(self, status: str) -> None:
        """Each job stands so from now on."""
        for job in self.jobs.values():
            job["status"] = status

    @property
    def cancelled(self) -> list[tuple[str, str, str]]:
        return [one for one in self.asked if one[1].endswith("/cancel")]

    def kind(self, workspace: Any, **fields: Any) -> Any:
        """The kind `render.video` of this provider."""
        send = {"url": f"{self.url}/jobs", "cancel": {"url": f"{self.url}/jobs/{{ref}}/cancel"}}
        lookup = {
            "url": f"{self.url}/jobs?key={{key}}",
            "key_path": "key",
            "job": {**RULES, "url": f"{self.url}/jobs/{{ref}}"},
        }
        given = {"op_class": "external_job", "provider": "job", "send": send, "lookup": lookup, **fields}
        return a_kind(workspace, "render.video", **given)


@contextmanager
def job_site() -> Iterator[JobSite]:
    site = JobSite()

    def handle(handler: Any) -> None:
        key = handler.headers.get("Idempotency-Key", "")
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        site.asked.append((handler.command, handler.path, key))
        if handler.path.endswith("/cancel"):
            return _hang_up(handler) if not site.cancels else answer(handler, site.cancels, b"{}")
        if handler.command == "POST":
            number = f"job-{len(site.jobs) + 1}"
            site.jobs[key] = {"id": number, "key": key, "status": "queued"}
            return answer(handler, 201, json.dumps(site.jobs[key]).encode())
        parts = urlsplit(handler.path)
        wanted = parse_qs(parts.query).get("key", [""])[0] or parts.path.rsplit("/", 1)[1]
        found = [job for job in site.jobs.values() if wanted in (job["key"], job["id"])]
        return answer(handler, 200 if found else 404, json.dumps(found[0] if found else {}).encode())

    with server(handle) as made:
        site.url = url_of(made)
        yield site


def _hang_up(handler: Any) -> None:
    handler.close_connection = True
    handler.connection.close()
