"""typeset(): data in, PDF out, by typst in a process of its own: bounded in number, time and memory.

A process, because a layout that never ends can't be called back from a thread. It gets the template and
the data, no environment and no network; typst opens no other file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings

AT_ONCE, WAIT_S, LIMIT_S = 2, 10.0, 30.0
TEMPLATE = Path(settings.BASE_DIR) / "templates" / "report" / "report.typ"
TYPESETTER = Path(__file__).with_name("typesetter.py")
_places = BoundedSemaphore(AT_ONCE)


class NoPdf(Exception):
    """There is no PDF now. Print the page instead; the JSON holds everything."""


class NoTypst(NoPdf):
    """PDF can’t be made here: typst is not installed (pip install typst). Print the page instead."""


class Busy(NoPdf):
    """Other PDFs are being made. Try again in a moment, or print the page."""


class TooSlow(NoPdf):
    """This report took too long to set as PDF. Print the page instead; the JSON holds everything."""


class Failed(NoPdf):
    """This report could not be set as PDF. Print the page instead; the JSON holds everything."""


def typeset(data: dict[str, Any], at: datetime, form: str = "pdf") -> bytes:
    """The PDF of `data`; `at` is its date, so that the same data make the same bytes.

    Raises NoTypst, Busy, TooSlow, Failed.
    """
    if find_spec("typst") is None:
        raise NoTypst
    if not _places.acquire(timeout=WAIT_S):
        raise Busy
    try:
        return _run(job(data, at, form))
    finally:
        _places.release()


def job(data: dict[str, Any], at: datetime, form: str = "pdf") -> str:
    """What the process reads."""
    told = json.dumps(data, ensure_ascii=False)
    return json.dumps({"template": str(TEMPLATE), "data": told, "at": int(at.timestamp()), "form": form})


def _run(text: str) -> bytes:
    command = [sys.executable, "-I", str(TYPESETTER)]
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=LIMIT_S, env={}, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TooSlow from error
    if done.returncode != 0:
        raise Failed(done.stderr.decode(errors="replace")[-2000:])
    return done.stdout
