"""The data folder: database, keys, logs. Standard library only, it is read before Django is set up."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this installation keeps its data; never the checkout. Need not exist yet."""
    if given := environ.get("ALLSTOP_DATA"):
        return Path(given).expanduser().absolute()
    home = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    return Path(home) / "allstop"


def prepare(data: Path) -> None:
    """Make the folder and its secret key, both readable by their owner alone. Raises OSError."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "logs").mkdir(mode=0o700, exist_ok=True)
    key = data / "secret_key"
    if key.exists():
        return
    # Written aside and linked into place: two processes that start together agree on one key.
    fresh = data / f"secret_key.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(fresh, key)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def secret_key(data: Path) -> str:
    """The key that `prepare` made, or nothing: a system check then says what to do."""
    try:
        return (data / "secret_key").read_text().strip()
    except OSError:
        return ""
