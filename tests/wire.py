"""The API as an agent sees it: a token, requests, answers. Through Django's test client, without a server."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from runs import access, people
from runs.models import Run, Token, User, Workspace

ALL = ("runs:read", "runs:write", "stop:write", "kinds:write", "notices:write")
SIX = {
    "commits": "When the bank books it.",
    "tells_apart": ["booked", "declined"],
    "key": "The effect key.",
    "compensation": "bank.refund",
    "durable_before_pause": "The key and the amount.",
    "when_unknown": "It is looked up, not repeated.",
}
NONE = {"none_because": "a test"}
_keys = itertools.count(1)
Json = dict[str, Any]


def new_key() -> str:
    return f"key-{next(_keys)}"


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int
    data: Any
    headers: dict[str, str]
    text: str = ""

    @property
    def problem(self) -> str:
        """The name of its problem type, or "" when it is none."""
        if self.headers.get("Content-Type") != "application/problem+json":
            return ""
        return str(self.data["type"]).removeprefix("/problems/")

    @property
    def replayed(self) -> bool:
        return self.headers.get("Idempotency-Replayed") == "true"


@dataclass
class Wire:
    """Calls as one token, or as nobody without one."""

    token: str = ""
    client: Client = field(default_factory=Client)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        raw: bytes | None = None,
        **headers: str,
    ) -> Said:
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if key is not None:
            headers["Idempotency-Key"] = key
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        got = self.client.generic(
            method, f"/api/v1{path}", sent, content_type="application/json", headers=named
        )
        text = got.getvalue().decode("utf-8", "replace")
        data = json.loads(text) if "json" in got.headers.get("Content-Type", "") else None
        return Said(got.status_code, data, dict(got.headers), text)

    def get(self, path: str, **headers: Any) -> Said:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, *, key: str | None = None, **more: Any) -> Said:
        """With a fresh Idempotency-Key unless one is given."""
        return self.call("POST", path, body if body is not None else {}, key=key or new_key(), **more)

    def put(self, path: str, body: Any) -> Said:
        return self.call("PUT", path, body)

    # what an agent does most ------------------------------------------------------------------

    def run(self, key: str = "close-books", **fields: Any) -> Json:
        said = self.post("/runs", {"key": key, **fields})
        assert said.status in (200, 201), said.text
        return dict(said.data)

    def effect(self, run: Json, key: str = "charge:7", **fields: Any) -> Said:
        """Register and dispatch in one call."""
        return self.post(f"/runs/{run['id']}/effects", effect_body(run, key, **fields))

    def permitted(self, run: Json, key: str = "charge:7", **fields: Any) -> Json:
        said = self.effect(run, key, **fields)
        assert said.status == 201, said.text
        return dict(said.data)

    def report(self, permit: Json, outcome: str = "applied", **fields: Any) -> Said:
        body = {"claim_token": permit["claim_token"], "outcome": outcome, **fields}
        return self.post(f"/permits/{permit['id']}/report", body)

    def look(self, permit: Json, token: str | None = None) -> Said:
        return self.get(f"/permits/{permit['id']}?claim_token={token or permit['claim_token']}")

    def claimed(self, run: Json, key: str = "pay", op_class: str = "external_write") -> Json:
        claim = {"worker": "w-1", "seen_version": run["cancel_version"]}
        said = self.post(f"/runs/{run['id']}/steps", {"key": key, "class": op_class, "claim": claim})
        assert said.status in (200, 201), said.text
        return dict(said.data)

    def stop(self, run: Json, body: Any = None, **more: Any) -> Said:
        return self.call("POST", f"/runs/{run['id']}/stops", body, **more)


def effect_body(run: Json, key: str = "charge:7", **fields: Any) -> Json:
    given = {
        "key": key,
        "kind": "bank.charge",
        "step": {"key": key},
        "worker": "w-1",
        "seen_version": run["cancel_version"],
        "body": '{"amount": 100}',
        "plan": NONE,
    }
    return {**given, **fields}


def kind_body(**fields: Any) -> Json:
    return {"class": "external_write", **SIX, **fields}


def token_text(workspace: Workspace, *scopes: str, run: Run | None = None, by: User | None = None) -> str:
    """The text of a new token; without scopes it may do all that an agent may."""
    granted = list(scopes or ALL)
    token, text = people.issue_token(
        actor=access.SET_UP, workspace_id=workspace.pk, name="agent", scopes=granted, run=run
    )
    Token.objects.filter(pk=token.pk).update(created_by=by)
    return text


def agent_of(workspace: Workspace, *scopes: str, run: Run | None = None) -> Wire:
    """An agent of this workspace, with a new token."""
    return Wire(token_text(workspace, *scopes, run=run))
