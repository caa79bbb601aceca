"""One workspace's files: a folder that no path leads out of, and what an effect means to write there.

Every step of a path is opened from the folder before it and never through a link, so that neither `..` nor a
link that somebody puts there in time leads elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

OURS = ".allstop"  # journals, locks and kept contents; no effect may name it
FILES_MAX, DEPTH_MAX, NAME_MAX = 200, 20, 200  # files of an effect · folders deep · bytes of a name
DIGESTED_MAX = 64 * 1024 * 1024  # a stranger's larger file is told from ours by its size alone
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Unusable(ValueError):
    """A body that does not say which files to write, or a path that can't be used. Nothing was written."""


@dataclass(frozen=True)
class Entry:
    """One line of a manifest: what a file is to hold. `size` in bytes, `sha256` in hex."""

    path: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def told(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


def root_of(workspace_id: str) -> Path:
    """The folder of one workspace, below the installation's."""
    return Path(settings.ALLSTOP_FILES) / workspace_id


def manifest(body: bytes, below: str = "") -> list[Entry]:
    """The files of `{"files": [{"path", "text" or "base64"}]}`, each below a folder. Raises Unusable."""
    try:
        found = json.loads(body)["files"]
        entries = [_entry(one, below) for one in found]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable('the body is not {"files": [{"path", "text" or "base64"}]}') from error
    if not 1 <= len(entries) <= FILES_MAX:
        raise Unusable(f"1 to {FILES_MAX} files can be written at once")
    paths = [entry.path for entry in entries]
    if len(set(paths)) < len(paths):
        raise Unusable("a path is there twice")
    return entries


def _entry(one: dict[str, Any], below: str) -> Entry:
    path = "/".join([*(parts_of(below) if below else []), *parts_of(one["path"])])
    if ("text" in one) == ("base64" in one):
        raise Unusable(f"{path}: it needs text or base64")
    if "text" in one:
        return Entry(path, str(one["text"]).encode())
    return Entry(path, base64.b64decode(one["base64"], validate=True))


def parts_of(path: str) -> list[str]:
    """The names of a relative path. Raises Unusable for what could lead elsewhere, or look like another."""
    parts = path.split("/")
    if not path or len(parts) > DEPTH_MAX or unicodedata.normalize("NFC", path) != path:
        raise Unusable(f"{path[:80]!r}: not a path that can be used")
    for name in parts:
        if name in ("", ".", "..") or name.startswith(OURS) or len(name.encode()) > NAME_MAX:
            raise Unusable(f"{path[:80]!r}: {name[:40]!r} can't be a name in it")
        if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") or sign == "\\" for sign in name):
            raise Unusable(f"{path[:80]!r}: it holds a sign that can't be seen, or a backslash")
    return parts


@contextmanager
def inside(root: Path, names: list[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder below `root` that these names lead to; made on the way if asked.

    Raises OSError: FileNotFoundError when it is not there, ELOOP or ENOTDIR where a link or file is
    """
    if make:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=at)
            deeper = os.open(name, FOLDER, dir_fd=at)
            os.close(at)
            at = deeper
        yield at
    finally:
        os.close(at)


def write(at: int, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """A new file that is on the disk when this returns. Raises OSError, also when the name is taken."""
    target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=at)
    with os.fdopen(target, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class There:
    """What a path holds now; `sha256` is "" for what is no file, or too large to be ours."""

    size: int
    sha256: str


def there(root: Path, path: str) -> There | None:
    """What a path holds now, or None. Raises OSError when a link or a file stands in the way to it."""
    *folders, name = path.split("/")
    try:
        with inside(root, folders) as at:
            target = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except FileNotFoundError:
        return None
    with os.fdopen(target, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > DIGESTED_MAX:
            return There(found.st_size, "")
        return There(found.st_size, hashlib.file_digest(file, "sha256").hexdigest())
