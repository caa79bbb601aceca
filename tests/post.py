"""A real mail server on loopback that keeps what it was given: `with Post() as post: …`.

`post.letters` are the messages it took, in order; `post.heard` all that it was told but the texts.
`post.fault(…)`: refuse (says no to the receiver) · refuse_sender · refuse_data (no text wanted) · leave (ends
when the text is announced) · refuse_text (says no after the text) · drop (takes the text and cuts the
connection without an answer) · hold (takes the text and answers after `release()`).
`post.refuse(address, code)`: says no to this one receiver, always.
"""

from __future__ import annotations

import email
import socketserver
import threading
import time
from dataclasses import dataclass, field
from email.message import Message
from typing import Any


@dataclass
class State:
    """What the server took, and how it will treat the next connections."""

    letters: list[Message] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    no: dict[str, int] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        state = self.server.state
        fault = state.faults.pop(0) if state.faults else ""
        self._say(220, "post")
        while line := self.rfile.readline():
            word = line[:4].upper().decode()
            state.heard.append(line.decode().strip())
            if word == "DATA" and fault not in ("refuse_data", "leave"):
                self._say(354, "go on")
                if not self._take(fault):
                    break
            elif word == "QUIT" or (word == "DATA" and fault == "leave"):
                break
            else:
                self._say(self._code(word, line.decode(), fault), "so")

    def _code(self, word: str, line: str, fault: str) -> int:
        address = line.partition("<")[2].partition(">")[0]
        refused = {"RCPT": "refuse", "MAIL": "refuse_sender", "DATA": "refuse_data"}.get(word)
        if word == "RCPT" and address in self.server.state.no:
            return self.server.state.no[address]
        return 550 if fault and fault == refused else 250

    def _take(self, fault: str) -> bool:
        """The text; False when the connection ends without an answer to it."""
        state, text = self.server.state, self._text()
        if fault == "refuse_text":
            self._say(554, "not this one")
            return True
        state.letters.append(email.message_from_bytes(text))
        if fault == "hold":
            state.held.set()
            state.released.wait(30)
        if fault == "drop":
            return False
        self._say(250, "taken")
        return True

    def _text(self) -> bytes:
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        return b"".join(lines)

    def _say(self, code: int, text: str) -> None:
        self.wfile.write(f"{code} {text}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, state: State) -> None:
        self.state = state
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that vanished is daily life here."""


class Post:
    """The server in threads of this process."""

    def __init__(self) -> None:
        self.state = State()
        self._server = _Server(self.state)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def letters(self) -> list[Message]:
        return self.state.letters

    def fault(self, *faults: str) -> None:
        """How the next connections are treated, one each."""
        self.state.faults.extend(faults)

    @property
    def heard(self) -> list[str]:
        return self.state.heard

    def refuse(self, address: str, code: int) -> None:
        """Say no to this receiver, always."""
        self.state.no[address] = code

    def release(self) -> None:
        """Answer what was held."""
        self.state.released.set()

    def settle(self, settings: Any) -> None:
        """Have Django send through this server."""
        settings.EMAIL_CONFIGURED = True
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", self.port
        settings.EMAIL_TIMEOUT = 5

    def wait_for(self, count: int, within_s: float = 10) -> list[Message]:
        """The letters, as soon as there are so many."""
        end = time.monotonic() + within_s
        while len(self.letters) < count:
            assert time.monotonic() < end, f"{len(self.letters)} of {count} letters came"
            time.sleep(0.01)
        return self.letters

    def __enter__(self) -> Post:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
