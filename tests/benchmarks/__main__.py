"""Run benchmarks on the database that ALLSTOP_TEST_DATABASE names, in a database of their own."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

NAMES = ("gate", "stop", "race", "step", "http")


def main() -> int:
    parser = argparse.ArgumentParser(prog="manage.py bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--scale", type=int, default=1, help="repeat more (default: 1)")
    words = parser.parse_args()
    unknown = set(words.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    server = _start_database()
    try:
        for name in words.names or NAMES:
            for figure in importlib.import_module(f"tests.benchmarks.{name}").measure(words.scale):
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
