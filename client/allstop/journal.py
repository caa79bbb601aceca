"""A file of facts that outlives its process: one line a fact, checked, on the disk before anybody is told.

A line is `<crc32> <JSON>`: {"fact": …} or, once it needs no telling any more, {"done": key}. Whoever writes
holds the file's lock as long as it lives; a file whose lock is free has lost its owner and may be adopted.
Files belong to their user alone (0600): a fact holds the claim token that proves whose word it is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import uuid
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path

from allstop.errors import Json

try:
    import fcntl
except ImportError:  # not a POSIX system: there is no lock that ends with its process
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("allstop")

SUFFIX = ".facts"
CAN_LOCK = fcntl is not None
_OPEN = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_here: weakref.WeakSet[Journal] = weakref.WeakSet()


class Journal:
    """One file, locked for this process. Not for several threads at once. Raises OSError as the disk does."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        _here.add(self)

    @classmethod
    def create(cls, folder: Path) -> Journal:
        """A new file of this process."""
        while True:
            path = folder / f"{os.getpid()}-{uuid.uuid4().hex[:12]}{SUFFIX}"
            journal = cls(path, os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600))
            if journal.lock():
                _sync_folder(folder)
                return journal
            journal.close()  # somebody adopted it before it was locked; it is empty

    @classmethod
    def adopt(cls, path: Path) -> Journal | None:
        """The file of a process that is gone. None if it lives, or somebody else was first."""
        try:
            journal = cls(path, os.open(path, _OPEN))
        except OSError:
            return None
        if journal.is_ours() and journal.lock() and journal.end_last_line():
            return journal
        journal.close()
        return None

    def is_ours(self) -> bool:
        """A plain file of this user: whoever can write one here could speak in this worker's name."""
        seen = os.fstat(self._fd)
        return stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid()

    def lock(self) -> bool:
        """Whether this process now holds the file, and the file is still in its folder."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return os.fstat(self._fd).st_nlink > 0

    def end_last_line(self) -> bool:
        """What a dead process left half written must not swallow the next line. False if that can't be."""
        try:
            _write(self._fd, b"\n")
        except OSError:
            return False
        return True

    def append(self, record: Json, *, durable: bool) -> None:
        """Write one line; `durable`: return only when it is on the disk. Half a line never stays."""
        text = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        size = os.fstat(self._fd).st_size
        try:
            _write(self._fd, line)
            if durable:
                os.fsync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)
            raise

    def read(self) -> list[Json]:
        """The facts that are not done, in their order. What is half written or damaged is passed over."""
        facts: dict[str, Json] = {}
        for record in self._records():
            fact = record.get("fact")
            if isinstance(fact, dict):
                facts[str(fact.get("key"))] = fact
            else:
                facts.pop(str(record.get("done")), None)
        return list(facts.values())

    def _records(self) -> Iterator[Json]:
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        for number, line in enumerate(text.split(b"\n"), start=1):
            if not line:
                continue
            record = _checked(line)
            if record is None:
                log.warning("Line %s of %s is half written or damaged; it is passed over.", number, self.path)
            else:
                yield record

    def clear(self) -> None:
        """Nothing in it is needed any more."""
        os.ftruncate(self._fd, 0)

    def remove(self) -> None:
        """Take the file away, and let go of it."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.close()

    def close(self) -> None:
        """Let go of the file. What is in it is the next one's to tell."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _write(fd: int, line: bytes) -> None:
    while line:
        line = line[os.write(fd, line) :]


def _checked(line: bytes) -> Json | None:
    check, _, text = line.partition(b" ")
    try:
        if int(check, 16) != zlib.crc32(text):
            return None
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _after_fork() -> None:
    """A child must not keep its parent's files locked: the parent may die, the child live on."""
    for journal in list(_here):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
