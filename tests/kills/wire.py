"""A wire to the database that can be cut: in front of PostgreSQL, byte by byte, like a network that fails."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field

WRITES = (b"INSERT INTO", b"UPDATE ")  # but not the COMMIT of a connection that is only being set up
RESET = struct.pack("ii", 1, 0)


@dataclass
class Relayed:
    """One connection: to us, and from us to the database."""

    near: socket.socket
    far: socket.socket
    wrote: bool = False
    loses: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def cut(self) -> None:
        """Both ends see a reset, as when a machine has gone."""
        self.ended.set()
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads, which would keep it open
            end.close()


class Wire:
    """Relays 127.0.0.1:`port` to the database at `target`.

    how: "open" · "refuse" (nobody listens, all connections are gone) · "reset" (a connection is cut as soon
    as something is asked on it) · "lose" (a COMMIT reaches the database, its answer is lost, then the wire).
    """

    def __init__(self, target: int) -> None:
        self.target, self.how = target, "open"
        self.lost = 0
        self.relayed: list[Relayed] = []
        self.listener = self._listen(0)
        self.port: int = self.listener.getsockname()[1]

    def set(self, how: str) -> None:
        """From now on."""
        self.how = how
        if how == "refuse":
            self.close()
        elif self.listener.fileno() < 0:
            self.listener = self._listen(self.port)

    def close(self) -> None:
        """Nobody listens any more."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.relayed:
            one.cut()
        self.relayed.clear()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            one = Relayed(near, socket.create_connection(("127.0.0.1", self.target)))
            self.relayed.append(one)
            for way in (self._ask, self._answer):
                threading.Thread(target=way, args=(one,), daemon=True).start()

    def _ask(self, one: Relayed) -> None:
        with contextlib.suppress(OSError):
            while data := one.near.recv(65536):
                if self.how == "reset":
                    break
                one.wrote = one.wrote or any(word in data for word in WRITES)
                one.loses = self.how == "lose" and one.wrote and b"COMMIT" in data
                one.wrote = one.wrote and b"COMMIT" not in data
                one.far.sendall(data)
        one.cut()

    def _answer(self, one: Relayed) -> None:
        with contextlib.suppress(OSError):
            while data := one.far.recv(65536):
                if one.loses:  # the database has answered: it is committed
                    self.lost += 1
                    break
                one.near.sendall(data)
        one.cut()
