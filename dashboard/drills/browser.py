"""The browser of a drill: looked for when it is needed, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
PROGRAMS = ("chrome", "headless_shell", "chrome-headless-shell", "Chromium")
NO_PLAYWRIGHT = (
    "Playwright is not installed, so no browser can be driven. Run it with the development packages: "
    "python -m pip install --require-hashes -r requirements/dev.txt"
)
NO_BROWSER = (
    "No browser was found. Install one: python3 -m playwright install chromium, or apt-get install "
    "chromium; or set ALLSTOP_CHROMIUM to one."
)


def find() -> tuple[str, str]:
    """A Chromium that starts, and nothing; or nothing, and the sentence that says what is missing."""
    if find_spec("playwright") is None:
        return "", NO_PLAYWRIGHT
    given = os.environ.get("ALLSTOP_CHROMIUM")
    places = [given] if given else [*_of_playwright(), *map(shutil.which, NAMES)]
    found = next((str(place) for place in places if place and _starts(str(place))), "")
    return found, "" if found else NO_BROWSER


def _of_playwright() -> list[str]:
    """What Playwright has downloaded."""
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    kept = [Path.home() / ".cache" / "ms-playwright", Path.home() / "Library" / "Caches" / "ms-playwright"]
    roots = [Path(given)] if given not in ("", "0") else kept
    found = (path for root in roots for name in PROGRAMS for path in root.glob(f"chromium*/*/**/{name}"))
    return sorted(str(path) for path in found if path.is_file())


def _starts(program: str) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
