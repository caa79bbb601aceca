"""A real web site on loopback with one form that changes something, and a counter: `with Page() as page: …`.

GET /form: a page with fields and a button · POST /orders: counts an order under its key · GET /orders/<key>:
the page of an order, or of none · GET /api/orders?key=: the same as data.
`page.fault(…)`, for the next POST: drop (counts, then cuts the connection) · hold (counts, answers after
`release()`) · refuse (counts nothing, shows why) · blank (counts, shows nothing) · away (counts, leads to
another place). `page.state.html` is what the page of the form holds besides.
"""

from __future__ import annotations

import html
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

FORM = """<!doctype html><title>Order</title><form method="post" action="/orders">
<input name="key" id="key"><input name="what" id="what">
<select name="size" id="size"><option>small<option>large</select><button id="buy">Buy</button></form>"""


@dataclass
class State:
    """`asked`: method and path of each request, in order. `orders`: the fields of each, in order."""

    asked: list[str] = field(default_factory=list)
    orders: list[dict[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    html: str = ""
    away: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        state, address = self.server.state, urlsplit(self.path)
        state.asked.append(f"GET {self.path}")
        state.headers.append(dict(self.headers))
        if address.path == "/form":
            self._say(200, FORM + state.html)
        elif address.path == "/api/orders":
            key = parse_qs(address.query)["key"][0]
            mine = [order for order in state.orders if order["key"] == key]
            self._say(200 if mine else 404, json.dumps({"key": key, "orders": mine}), "application/json")
        elif address.path.startswith("/orders/"):
            self._say(200, self._order(unquote(address.path.removeprefix("/orders/"))))
        else:
            self._say(404, "<p>nothing here")

    def _order(self, key: str) -> str:
        mine = [order for order in self.server.state.orders if order["key"] == key]
        rows = "".join(f"<p class='order'>Order {html.escape(order['key'])}: taken" for order in mine)
        return rows or "<p class='none'>No such order"

    def do_POST(self) -> None:
        state = self.server.state
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        state.asked.append(f"POST {self.path}")
        fault = state.faults.pop(0) if state.faults else ""
        if fault == "refuse":
            self._say(422, "<p class='error'>Not in stock")
            return
        order = {name: values[0] for name, values in parse_qs(text).items()}
        state.orders.append(order)
        if fault == "hold":
            state.held.set()
            state.released.wait(60)
        if fault == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault == "blank":
            self._say(200, "<p>Thank you")
        else:
            self._lead(state.away if fault == "away" else f"/orders/{order.get('key', '')}")

    def _lead(self, place: str) -> None:
        self.send_response(303)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _say(self, status: int, text: str, content_type: str = "text/html; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, state: State) -> None:
        self.state = state
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that vanished is daily life here."""


class Page:
    """The site in threads of this process."""

    def __init__(self) -> None:
        self.state = State()
        self._server = _Server(self.state)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def asked(self) -> list[str]:
        return self.state.asked

    @property
    def changes(self) -> list[str]:
        """The requests that were no questions."""
        return [one for one in self.asked if not one.startswith("GET ")]

    def orders(self, key: str) -> int:
        """The counter: how many orders were taken under a key."""
        return sum(order.get("key") == key for order in self.state.orders)

    def fault(self, *faults: str) -> None:
        """How the next orders are treated, one each."""
        self.state.faults.extend(faults)

    def release(self) -> None:
        """Answer what was held."""
        self.state.released.set()

    def wait_for(self, key: str, within_s: float = 20) -> None:
        """Until an order was taken under this key."""
        end = time.monotonic() + within_s
        while not self.orders(key):
            assert time.monotonic() < end, f"no order {key} came"
            time.sleep(0.01)

    def __enter__(self) -> Page:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
