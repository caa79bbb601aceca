"""Facts on their way to the server, on the disk so that they outlive their process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from allstop.errors import Json
from allstop.facts import Fact, is_final
from allstop.journal import CAN_LOCK, SUFFIX, Journal

log = logging.getLogger("allstop")

MAX_BYTES = 64 * 1024 * 1024
REJECTED = "rejected.jsonl"


@dataclass
class Entry:
    """A fact that waits. journal: where it is kept, if it is. busy: somebody tells it at this moment."""

    fact: Fact
    journal: Journal | None
    busy: bool


class Outbox:
    """Safe to share between threads. folder: None keeps nothing on the disk."""

    def __init__(self, folder: Path | None, *, told_by: str, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.told_by = told_by
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._own: Journal | None = None
        self._adopted: list[Journal] = []
        self._pid = os.getpid()
        self.when_left: Callable[[], None] = lambda: None

    # -- telling

    def keep(self, fact: Fact) -> bool:
        """Have it on the disk before it is told. False if it has to wait for an earlier one.

        A disk that is full or away costs the copy, with a warning, and never the report itself.
        """
        with self._lock:
            self._after_fork()
            first = not self._is_behind(fact)
            kept = None if self.folder is None else self._write(fact)
            self._entries[fact.key] = Entry(fact, kept, busy=True)
            return first

    def done(self, fact: Fact) -> None:
        """It was heard."""
        with self._lock:
            self._forget(fact)

    def leave(self, fact: Fact, error: BaseException) -> None:
        """It was not heard: it waits, or is put aside with the reason if it never will be."""
        with self._lock:
            entry = self._entries.get(fact.key)
            if entry is None:
                return
            entry.busy = False
            never = is_final(error, fact, self.told_by)
            if self.folder is None or (never and self._put_aside(asdict(fact), str(error))):
                self._forget(fact)
        self.when_left()

    def is_kept(self, key: str) -> bool:
        """Whether this fact will outlive the process."""
        entry = self._entries.get(key)
        return entry is not None and entry.journal is not None

    def take(self, but: Collection[str] = ()) -> Fact | None:
        """The next fact to tell: nobody is at it, and what it has to wait for is told."""
        with self._lock:
            earlier: set[str] = set()
            for entry in self._entries.values():
                fact = entry.fact
                in_turn = not fact.waits or fact.step not in earlier
                if in_turn and not entry.busy and fact.key not in but:
                    entry.busy = True
                    return fact
                earlier.add(fact.step)
        return None

    @property
    def waiting(self) -> int:
        """How many facts were not heard yet."""
        return len(self._entries)

    # -- what other processes left

    def adopt(self) -> None:
        """Take over the facts of processes that are gone. What can't be read is left where it is."""
        if self.folder is None:
            return
        with self._lock, contextlib.suppress(OSError):
            self._after_fork()
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                left = None if self._own and path == self._own.path else Journal.adopt(path)
                if left is not None:
                    self._adopt(left)

    def _adopt(self, left: Journal) -> None:
        self._adopted.append(left)
        for kept in left.read():
            try:
                fact = Fact.read(kept)
            except ValueError as error:
                self._put_aside(kept, str(error))
            else:
                self._entries.setdefault(fact.key, Entry(fact, left, busy=False))
        self._drop_if_empty(left)

    def close(self) -> None:
        """Let go of the files. What was not heard is for the next client with this folder."""
        with self._lock:
            lost = sum(entry.journal is None for entry in self._entries.values())
            if lost:
                log.critical("%s reports are lost with this client: they could not be kept on disk.", lost)
            self._entries = {key: e for key, e in self._entries.items() if e.journal is not None}
            for mine in [*self._adopted, *([self._own] if self._own else [])]:
                self._drop_if_empty(mine, for_good=True)
                mine.close()
            self._own, self._adopted, self._entries = None, [], {}

    # -- with the lock held

    def _is_behind(self, fact: Fact) -> bool:
        return fact.waits and any(entry.fact.step == fact.step for entry in self._entries.values())

    def _write(self, fact: Fact) -> Journal | None:
        assert self.folder is not None
        try:
            if self._size() > self._max_bytes:
                raise OSError(f"more than {self._max_bytes // 1024} KiB wait there to be delivered")
            self._own = self._own or Journal.create(self.folder)
            self._own.append({"fact": asdict(fact)}, durable=True)
        except OSError as error:
            log.warning("No copy in %s; this report is lost if its process dies now: %s", self.folder, error)
            return None
        return self._own

    def _size(self) -> int:
        assert self.folder is not None
        with os.scandir(self.folder) as found:
            return sum(file.stat(follow_symlinks=False).st_size for file in found)

    def _forget(self, fact: Fact) -> None:
        entry = self._entries.pop(fact.key, None)
        if entry is None or entry.journal is None:
            return
        if not self._drop_if_empty(entry.journal):
            with contextlib.suppress(OSError):  # told twice under one key, it counts once
                entry.journal.append({"done": fact.key}, durable=False)

    def _drop_if_empty(self, kept: Journal, *, for_good: bool = False) -> bool:
        """Whether nothing waits in it: then it is emptied, and taken away if its owner is gone."""
        if any(entry.journal is kept for entry in self._entries.values()):
            return False
        with contextlib.suppress(OSError):
            kept.clear()
        if kept is not self._own or for_good:
            kept.remove()
        if kept in self._adopted and not for_good:
            self._adopted.remove(kept)
        return True

    def _put_aside(self, kept: Json, why: str) -> bool:
        """Keep a fact that nobody will take, without its claim token. False if it can't be written."""
        log.error("The server will not take this report: %s (%s)", why, kept.get("path"))
        if self.folder is None:
            return False
        body = kept.get("body")
        body = {k: v for k, v in body.items() if k != "claim_token"} if isinstance(body, dict) else body
        line = {"at": datetime.now(UTC).isoformat(), "why": why, "fact": {**kept, "body": body}}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            if self._size() > self._max_bytes:
                return False
            with os.fdopen(os.open(self.folder / REJECTED, flags, 0o600), "ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
                os.fsync(file.fileno())
        except OSError as error:
            log.warning("It could not be put aside: %s", error)
            return False
        return True

    def _after_fork(self) -> None:
        """A child tells only its own: its parent is still at what it had begun."""
        if self._pid != os.getpid():
            self._pid, self._own, self._adopted, self._entries = os.getpid(), None, [], {}


def find_folder(buffer: str | os.PathLike[str] | bool | None, url: str) -> Path | None:
    """The folder for facts to this server, made if need be. None: nothing is kept on the disk.

    buffer: a folder, or False; by default ALLSTOP_BUFFER (a folder, or "off"), else the user's state folder.
    A folder that was asked for and can't be used raises OSError; the default is then done without, with a
    warning.
    """
    buffer = os.environ.get("ALLSTOP_BUFFER") or None if buffer in (None, True) else buffer
    if buffer is False or buffer == "off":
        return None
    if buffer is not None:
        return _usable(Path(os.fspath(str(buffer))), url)
    try:
        return _usable(_state_folder() / "allstop", url)
    except (OSError, RuntimeError) as error:
        log.warning("Reports are not kept on disk; what is not delivered dies with its process: %s", error)
        return None


def digest(text: str) -> str:
    """Short, and nothing that could be used in the text's place."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _state_folder() -> Path:
    told = os.environ.get("XDG_STATE_HOME", "")
    return Path(told) if told.startswith("/") else Path.home() / ".local" / "state"


def _usable(folder: Path, url: str) -> Path:
    """A folder of this user alone, for this server. Raises OSError."""
    if not CAN_LOCK:
        raise OSError("this system has no file locks that end with their process")
    place = re.sub(r"[^\w.-]", "_", urlsplit(url).netloc.rpartition("@")[2])
    mine = folder.expanduser() / f"{place}-{digest(url.rstrip('/'))}"
    mine.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = mine.stat()
    if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise OSError(f"{mine} is open to others; it must be this user's alone (chmod 700)")
    if not os.access(mine, os.W_OK | os.X_OK):
        raise OSError(f"{mine} can't be written to")
    return mine
