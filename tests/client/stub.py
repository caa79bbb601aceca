"""A small real HTTP server that speaks the wire of the client, with one run's worth of memory and no
database.

It keeps the rules that the client leans on (Idempotency-Key, known keys, look, report) and misbehaves on
order: `lose(path)` answers nothing after doing the work, `say(path, …)` answers something else instead of
doing it.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Reply = tuple[int, Json]


@dataclass
class Call:
    """One request as it arrived, repeated ones included."""

    method: str
    path: str
    body: Json
    key: str | None
    at: float


@dataclass
class Order:
    """A misbehaviour, used for `times` requests whose path matches."""

    path: str
    method: str
    times: int
    status: int = 0
    text: str = ""
    lose: bool = False
    delay_s: float = 0
    retry_after: str = ""


@dataclass
class Stub:
    """The server's memory. `ttl_s`: how long a permit lasts."""

    ttl_s: float = 10.0
    status: str = "ACTIVE"
    version: int = 1
    calls: list[Call] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    runs: dict[str, Json] = field(default_factory=dict)
    steps: dict[str, Json] = field(default_factory=dict)
    effects: dict[str, Json] = field(default_factory=dict)
    permits: dict[str, Json] = field(default_factory=dict)
    replies: dict[str, tuple[str, Reply]] = field(default_factory=dict)
    stop_row: Json | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    # -- what a test says

    def stop(self, status: str = "CANCELLING") -> None:
        """Somebody presses Stop."""
        with self.lock:
            self.status, self.version = status, self.version + 1
            self.stop_row = {"id": "stp_1", "number": 7, "mode": "cancel", "deadline_at": None}

    def lose(self, path: str, method: str = "POST", times: int = 1) -> None:
        """Do the work, commit, and cut the wire before the answer."""
        self.orders.append(Order(path, method, times, lose=True))

    def say(
        self, path: str, status: int, text: str, method: str = "POST", times: int = 1, retry_after: str = ""
    ) -> None:
        """Answer this, and do nothing."""
        self.orders.append(Order(path, method, times, status=status, text=text, retry_after=retry_after))

    def slow(self, path: str, delay_s: float, method: str = "POST", times: int = 1) -> None:
        """Do the work, and answer late."""
        self.orders.append(Order(path, method, times, delay_s=delay_s))

    def seen(self, path: str, method: str = "POST") -> list[Call]:
        """The requests so far whose path matches."""
        return [c for c in self.calls if c.method == method and re.search(path, c.path)]

    def order_for(self, method: str, path: str) -> Order | None:
        with self.lock:
            for order in self.orders:
                if order.method == method and order.times and re.search(order.path, path):
                    order.times -= 1
                    return order
        return None

    # -- what the wire says

    def answer(self, call: Call, query: Json) -> tuple[Reply, bool]:
        """The reply and whether it is a stored one."""
        with self.lock:
            if call.method == "GET":
                return self._get(call.path, query), False
            needs_key = not call.path.endswith("/heartbeat") and not call.path.endswith("/stops")
            if needs_key and not call.key:
                return _problem(400, "idempotency-key-missing"), False
            same = json.dumps([call.path, call.body], sort_keys=True)
            if call.key in self.replies:
                kept, reply = self.replies[call.key]
                return (reply, True) if kept == same else (_problem(422, "idempotency-key-reused"), False)
            reply = self._post(call.path, call.body)
            if call.key and reply[0] < 500:
                self.replies[call.key] = (same, reply)
            return reply, False

    def _get(self, path: str, query: Json) -> Reply:
        permit = self.permits.get(path.rpartition("/")[2])
        if permit is None or query.get("claim_token") != permit["claim_token"]:
            return _problem(404, "not-found")
        look = "open"
        if permit["state"] != "OPEN":
            look = "ended"
        elif not self._open(permit["seen_version"]):
            look = "shut"
        elif time.monotonic() > permit["_ends"]:
            look = "expired"
        return 200, {"permit_id": permit["id"], "look": look, "run_status": self.status} | {
            "current_version": self.version,
            "looked_at": "2026-01-01T00:00:00Z",
            "an_unknown_field": [1],
        }

    def _post(self, path: str, body: Json) -> Reply:
        routes: list[tuple[str, Callable[[Json, str], Reply]]] = [
            (r"^/runs$", self._register),
            (r"^/runs/(.+)/heartbeat$", self._heartbeat),
            (r"^/runs/(.+)/complete$", self._complete),
            (r"^/runs/(.+)/fail$", self._fail),
            (r"^/runs/(.+)/steps$", self._claim),
            (r"^/steps/(.+)/finish$", self._finish),
            (r"^/steps/(.+)/release$", self._release),
            (r"^/runs/(.+)/effects$", self._effect),
            (r"^/runs/(.+)/permits$", self._permit_only),
            (r"^/permits/(.+)/report$", self._report),
            (r"^/runs/(.+)/stops$", self._stop),
        ]
        for pattern, verb in routes:
            if found := re.match(pattern, path):
                return verb(body, found[1] if found.groups() else "")
        return _problem(404, "not-found")

    def _register(self, body: Json, _: str) -> Reply:
        known = body["key"] in self.runs
        self.runs[body["key"]] = body
        return (200 if known else 201), self._run(body["key"])

    def _run(self, key: str) -> Json:
        return {"id": f"run_{key}", "key": key, "status": self.status, "cancel_version": self.version} | {
            "stop": self.stop_row,
            "url": "/runs/1",
            "an_unknown_field": True,
        }

    def _heartbeat(self, body: Json, _: str) -> Reply:
        renewed = len(body["claim_tokens"])
        return 200, {"status": self.status, "cancel_version": self.version, "stop": self.stop_row} | {
            "renewed": renewed
        }

    def _complete(self, body: Json, run: str) -> Reply:
        if not self._open(body["seen_version"]):
            return self._refusal(body["seen_version"])
        if any(s["status"] in ("CLAIMED", "DISPATCHED") for s in self.steps.values()):
            return _problem(409, "not-quiet")
        self.status = "COMPLETED"
        return 200, self._run(run)

    def _fail(self, body: Json, run: str) -> Reply:
        if self.status != "ACTIVE":
            return self._refusal(body.get("seen_version", 0))
        self.status = "FAILED"
        return 200, self._run(run) | {"summary": body.get("summary")}

    def _claim(self, body: Json, _: str) -> Reply:
        if not self._open(body["claim"]["seen_version"]):
            return self._refusal(body["claim"]["seen_version"])
        known = self.steps.get(body["key"])
        if known is not None and known["status"] != "PENDING":
            return 200, {k: v for k, v in known.items() if k != "claim_token"}
        step = {"id": f"ste_{body['key']}", "status": "CLAIMED", "claim_token": uuid.uuid4().hex} | body
        self.steps[body["key"]] = step
        return 201, step

    def _finish(self, body: Json, step_id: str) -> Reply:
        step = self._step(step_id, body["claim_token"])
        if step is None:
            return _problem(409, "lost-claim")
        step |= {"status": body["result"].upper(), "detail": body.get("detail")}
        return 200, step

    def _release(self, body: Json, step_id: str) -> Reply:
        step = self._step(step_id, body["claim_token"])
        if step is None:
            return _problem(409, "lost-claim")
        step["status"] = "PENDING"
        return 200, step

    def _step(self, step_id: str, claim_token: str) -> Json | None:
        return next(
            (s for s in self.steps.values() if (s["id"], s["claim_token"]) == (step_id, claim_token)), None
        )

    def _effect(self, body: Json, _: str) -> Reply:
        if not self._open(body["seen_version"]):
            return self._refusal(body["seen_version"])
        effect = self.effects.get(body["key"])
        if effect is not None and effect["settlement"] not in ("DECLARED", "NOT_APPLIED"):
            busy = effect["settlement"] in ("DISPATCHED", "UNKNOWN")
            known = {"known": "must_wait" if busy else "settled", "what_to_do": "Look it up first."}
            return 200, {"effect": effect, "permit": None, "result": effect["result"], **known}
        effect = effect or {"id": f"eff_{body['key']}", "key": body["key"], "result": None, "attempt": 0}
        effect |= {"settlement": "DISPATCHED", "attempt": effect["attempt"] + 1, "plan": body["plan"]}
        self.effects[body["key"]] = effect
        return 201, {"effect": effect, "permit": self._open_permit(body, effect["id"])}

    def _permit_only(self, body: Json, _: str) -> Reply:
        if not self._open(body["seen_version"]):
            return self._refusal(body["seen_version"])
        permit = self._open_permit(body, None)
        if key := body["step"].get("key"):
            step = {"id": permit["step_id"], "key": key, "status": "DISPATCHED"}
            self.steps[key] = step | {"claim_token": permit["claim_token"]}
        return 201, {"permit": permit}

    def _open_permit(self, body: Json, effect_id: str | None) -> Json:
        permit_id = f"prm_{uuid.uuid4().hex}"
        permit: Json = {"id": permit_id, "effect_id": effect_id, "state": "OPEN"} | {
            "claim_token": body["step"].get("claim_token") or uuid.uuid4().hex,
            "step_id": body["step"].get("id") or f"ste_{uuid.uuid4().hex}",
            "seen_version": body["seen_version"],
            "permit_ttl_s": self.ttl_s,
            "boundary": body.get("boundary", "dispatch"),
            "reports": 0,
            "_ends": time.monotonic() + self.ttl_s,
        }
        self.permits[permit_id] = permit
        return permit

    def _report(self, body: Json, permit_id: str) -> Reply:
        permit = self.permits.get(permit_id)
        if permit is None or permit["claim_token"] != body["claim_token"]:
            return _problem(409, "lost-claim")
        outcome = body["outcome"]
        if permit["reports"] and permit["outcome"] != outcome:
            return _problem(409, "already-reported")
        permit |= {"state": "NOT_SENT" if outcome == "not_sent" else "REPORTED", "outcome": outcome}
        permit |= {"reports": permit["reports"] + 1, "report": body}
        settled = {"applied": "CONFIRMED", "not_sent": "DECLARED"}.get(outcome, outcome.upper())
        effect = next((e for e in self.effects.values() if e["id"] == permit["effect_id"]), None)
        if effect is not None:
            effect |= {"settlement": settled, "result": body.get("result")}
        return 200, {"permit": permit, "effect": effect, "late": self.status != "ACTIVE"}

    def _stop(self, body: Json, _: str) -> Reply:
        self.stop()
        return 201, {"id": "stp_1", "created": True, **body}

    def _open(self, seen: int) -> bool:
        return self.status == "ACTIVE" and self.version == seen

    def _refusal(self, carried: int) -> Reply:
        name = "stopped" if self.status != "ACTIVE" else "stale-version"
        stop = {"stop_id": (self.stop_row or {}).get("id"), "run_status": self.status}
        versions = {"carried_version": carried, "current_version": self.version}
        told = {**versions, **stop, "boundary": "dispatch"}
        return _problem(409, name, **told, what_to_do="End at a safe point.")


def _problem(status: int, name: str, **more: Any) -> Reply:
    return status, {"type": f"/problems/{name}", "title": name, "status": status, "detail": name, **more}


class _Handler(BaseHTTPRequestHandler):
    server: StubServer

    def _serve(self) -> None:
        stub, address = self.server.stub, urllib.parse.urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = address.path.removeprefix("/api/v1")
        key = self.headers.get("Idempotency-Key")
        call = Call(self.command, path, json.loads(text) if text else {}, key, time.monotonic())
        stub.calls.append(call)
        order = stub.order_for(call.method, path)
        if order is not None and order.status:
            self._send(order.status, order.text, False, order.retry_after)
            return
        (status, data), replayed = stub.answer(call, dict(urllib.parse.parse_qsl(address.query)))
        if order is not None and order.lose:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if order is not None:
            time.sleep(order.delay_s)
        self._send(status, json.dumps(data), replayed)

    do_GET = _serve  # noqa: N815
    do_POST = _serve  # noqa: N815
    do_PUT = _serve  # noqa: N815

    def _send(self, status: int, text: str, replayed: bool, retry_after: str = "") -> None:
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(text.encode())))
        if replayed:
            self.send_header("Idempotency-Replayed", "true")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


class StubServer(ThreadingHTTPServer):
    """Serves one Stub on a free port of loopback."""

    daemon_threads = True

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is part of the tests."""
