"""Keep what drills showed that the command ran: `python -m dashboard.drilling.keep`, results on stdin.

For whoever holds the machine. Each line is a result as `manage.py drill --json` prints it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

import django


def main(lines: TextIO) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from dashboard.drilling import carry, line, room
    from dashboard.pages.shell import release
    from runs.access import SET_UP

    room.workspace()
    for result in map(json.loads, lines):
        line.keep(SET_UP, result["name"], carry.told_of(result), release())


if __name__ == "__main__":
    main(sys.stdin)
