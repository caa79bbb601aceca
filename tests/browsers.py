"""The browser that tests drive: found, or installed by `manage.py test`."""

import os
import shutil
import sys
from functools import cache
from pathlib import Path

from tests.tools import Missing, absent, apt_get, first_working, run, setting_up

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
MISSING = (
    "No browser was found. Install one: python3 -m playwright install chromium, or apt-get install chromium; "
    "or set ALLSTOP_CHROMIUM to one."
)


def own_places() -> list[Path]:
    """Where Playwright keeps what it downloaded."""
    caches = {"darwin": "Library/Caches"}.get(sys.platform, ".cache")
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    root = Path(given) if given not in ("", "0") else Path.home() / caches / "ms-playwright"
    programs = ("chrome", "headless_shell", "chrome-headless-shell", "Chromium")
    return sorted(path for name in programs for path in root.glob(f"chromium*/*/**/{name}") if path.is_file())


def find() -> Path | None:
    return first_working([os.environ.get("ALLSTOP_CHROMIUM"), *own_places(), *map(shutil.which, NAMES)])


@cache
def chromium() -> Path:
    """A Chromium that starts. Raises Missing, with the commands to run."""
    if found := find():
        return found
    if setting_up():
        run([sys.executable, "-m", "playwright", "install", "chromium"], seconds=300)
        if found := find():
            return found
        if found := apt_get("chromium", "chromium"):
            return found
    raise Missing(MISSING)


def of_ours() -> str:
    """The program for kinds of provider browser. Without one, a test is skipped; on CI it fails."""
    try:
        return str(chromium())
    except Missing as missing:
        absent(str(missing))
