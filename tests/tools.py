"""Finding and installing the programs that tests need: servers and a browser."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import pytest


class Missing(Exception):
    """A program that the tests need is not on this machine; the text says how to get it."""


def absent(reason: str) -> NoReturn:
    """Skip the test that needs what is missing; on CI a test that can't run has failed."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def setting_up() -> bool:
    """`manage.py test` may install what is missing; a plain pytest only looks."""
    return os.environ.get("ALLSTOP_TEST_SET_UP") == "1"


def quick_folder(megabytes: int) -> str | None:
    """Where a database that need not outlive the machine is written sooner: memory, if there is that much.

    It still syncs whatever it would sync; there is only no disk that takes milliseconds each time.
    """
    memory = Path("/dev/shm")  # noqa: S108
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < megabytes << 20:
        return None
    return str(memory)


def works(program: str | Path) -> bool:
    """Whether it starts and tells its version: a wrapper without its program does not."""
    try:
        done = subprocess.run([str(program), "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def first_working(candidates: Iterable[str | Path | None]) -> Path | None:
    for candidate in candidates:
        if candidate and works(candidate):
            return Path(candidate)
    return None


def can_apt_get() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and bool(shutil.which("apt-get"))


def run(command: list[str], *, seconds: float = 600) -> bool:
    """Run an installer, its words on stderr. Whether it went well."""
    print("set-up:", " ".join(command), file=sys.stderr, flush=True)  # noqa: T201
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return (
            subprocess.run(command, stdout=sys.stderr, timeout=seconds, env=environ, check=False).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def apt_get(package: str, program: str) -> Path | None:
    """Install a Debian package. Its program in /usr/bin, which a shell's PATH may leave out."""
    if not can_apt_get():
        return None
    run(["apt-get", "-qq", "update"])
    run(["apt-get", "-qq", "install", "--no-install-recommends", "-y", package])
    return first_working([Path("/usr/bin") / program])


def die_with_parent() -> Callable[[], None] | None:
    """For Popen's preexec_fn: a server must not outlive the tests, even when they are killed (Linux).

    It hears SIGINT like a program in a terminal, also when the tests were started in the background.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        prctl(1, signal.SIGKILL)

    return prepare


def obey_permissions() -> None:
    """For Popen's preexec_fn: take from root the right to write where permissions forbid it (Linux)."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
