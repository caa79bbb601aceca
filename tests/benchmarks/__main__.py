"""Run benchmarks on the database that ALLSTOP_TEST_DATABASE names, in a database of their own."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

NAMES = ("gate", "stop", "race", "step", "http", "scope", "pages")
LONG = ("memory", "disk", "lossy")  # only when it is named


def main() -> int:
    parser = argparse.ArgumentParser(prog="manage.py bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: these), {', '.join(LONG)}"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--scale", type=int, default=1, help="repeat more (default: 1)")
    parser.add_argument("--minutes", type=float, default=60, help="for how long memory is watched (60)")
    parser.add_argument("--case", default="", help="of pages: only cases whose names hold this word")
    parser.add_argument("--times", type=int, default=30, help="of pages: how often each is asked (30)")
    words = parser.parse_args()
    unknown = set(words.names) - {*NAMES, *LONG}
    if unknown:
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES + LONG)}"
        )
    server = _start_database()
    try:
        for name in words.names or NAMES:
            how_much = words.minutes if name == "memory" else words.scale
            more = {"case": words.case, "times": words.times} if name == "pages" else {}
            for figure in importlib.import_module(f"tests.benchmarks.{name}").measure(how_much, **more):
                print(figure.json() if words.json else figure.line(), flush=True)
    finally:
        _end(server)
    return 0


def _start_database() -> Any:
    from tests import servers

    server = servers.start_postgresql() if servers.kind() == "postgresql" else None
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    os.environ["ALLSTOP_DATA"] = str(settings.ALLSTOP_DATA)
    call_command("migrate", verbosity=0)
    return server


def _end(server: Any) -> None:
    from django.db import connection, connections

    connections.close_all()
    if connection.vendor == "postgresql":
        pool = getattr(connection, "pool", None)
        if pool is not None:
            pool.close()
    if server is not None:
        server.stop()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    sys.exit(main())
