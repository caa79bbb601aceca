"""Fills the database of a server that a browser will visit: `python -m tests.browser.seed`; prints JSON."""

from __future__ import annotations

import json
import os
import sys

import django


def main() -> None:
    """A process of its own: the server that serves these rows did not write them."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from tests.browser.rows import fill

    json.dump(fill(), sys.stdout)


if __name__ == "__main__":
    main()
