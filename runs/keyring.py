"""Key files: 32 random bytes each, in hex, for their owner alone; never in the database.

`up` makes them, every process reads them. Standard library only: `up` makes them before Django is set up.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

SEAL, REDACTION = "seal.key", "redaction.key"
NAMES = (SEAL, REDACTION)
SIZE = 32  # bytes: an Ed25519 seed, and a key of HMAC-SHA-256
OTHERS = 0o077

# By path, with what the file looked like: a key that was rotated is read again, others once a process.
_read: dict[Path, tuple[tuple[int, int], bytes]] = {}


class KeyUnreadable(Exception):
    """The key file can't be used; the message says why, and names no content of it."""


def folder() -> Path:
    """Where the key files are: ALLSTOP_KEYS, by default the data folder."""
    from django.conf import settings

    return Path(settings.ALLSTOP_KEYS)


def read(name: str) -> bytes:
    """The 32 bytes of a key. Makes none. Raises KeyUnreadable."""
    path = folder() / name
    try:
        found = path.stat()
        looks = (found.st_ino, found.st_mtime_ns)
        known = _read.get(path)
        if known is None or known[0] != looks:
            _read[path] = known = (looks, parsed(name, path.read_text("ascii")))
    except OSError as error:
        raise KeyUnreadable(f"{name} can't be read ({error.strerror})") from None
    except ValueError:
        raise KeyUnreadable(f"{name} is no key of {SIZE} bytes in hex") from None
    return known[1]


def parsed(name: str, text: str) -> bytes:
    """The bytes that a key file's text stands for. Raises ValueError."""
    key = bytes.fromhex(text.strip())
    if len(key) != SIZE:
        raise ValueError(name)
    return key


def prepare(place: Path) -> None:
    """Make the key files that are not there yet. Raises OSError."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in NAMES:
        if not (place / name).exists():
            make(place / name)


def make(path: Path, key: bytes | None = None) -> None:
    """Make a key file whole or not at all, unless somebody else just did. Raises OSError.

    Written aside, to the disk, and linked into place: processes that start together agree on one key.
    """
    fresh = written_aside(path, key or secrets.token_bytes(SIZE))
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def replace(path: Path, key: bytes) -> None:
    """Put another key into the file, at once. Raises OSError."""
    written_aside(path, key).replace(path)


def written_aside(path: Path, key: bytes) -> Path:
    """A file beside `path` that holds this key, safely on the disk."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return fresh


def open_to_others(name: str) -> bool:
    """Whether somebody else than the file's owner may read or change it."""
    try:
        return bool(stat.S_IMODE((folder() / name).stat().st_mode) & OTHERS)
    except OSError:
        return False
