"""The data folder: database, keys, logs. Standard library only, it is read before Django is set up."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from runs import keyring

# Commands that take --data DIR.
COMMANDS = ("up", "backup", "restore", "verify", "seal", "signin")


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this installation keeps its data; never the checkout. Need not exist yet."""
    if given := environ.get("ALLSTOP_DATA"):
        return Path(given).expanduser().absolute()
    home = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".local" / "share"
    return Path(home) / "allstop"


def keys(data: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the key files: where ALLSTOP_KEYS says, otherwise the data folder."""
    return Path(environ.get("ALLSTOP_KEYS") or data).expanduser().absolute()


def prepare(data: Path) -> None:
    """Make the folder and its keys, all readable by their owner alone. Raises OSError."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "logs").mkdir(mode=0o700, exist_ok=True)
    keyring.prepare(keys(data))
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


def choose(argv: list[str]) -> None:
    """Take `--data DIR` of our own commands before the settings are read; two of them make the folder."""
    if not argv[1:2] or argv[1] not in COMMANDS:
        return
    for at, word in enumerate(argv):
        if word == "--data" and at + 1 < len(argv):
            os.environ["ALLSTOP_DATA"] = str(Path(argv[at + 1]).absolute())
        elif word.startswith("--data="):
            os.environ["ALLSTOP_DATA"] = str(Path(word.partition("=")[2]).absolute())
    if argv[1] in ("up", "restore"):
        prepare_or_say(folder(), argv[1])


def prepare_or_say(data: Path, command: str) -> None:
    try:
        prepare(data)
    except OSError as error:
        raise SystemExit(
            f"manage.py: The data folder {data} can't be written ({error.strerror}). "
            f"Choose another: python3 manage.py {command} --data DIR"
        ) from None
