"""Measure, on both databases, against raw baselines of the same run: manage.py bench gate stop --json"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

ROOT = Path(__file__).resolve().parents[3]
DATABASES = ("sqlite", "postgresql")


class Command(BaseCommand):
    help = "Benchmarks: figure, baseline, ratio, n, spread, met or not. Memory, disk, lossy only when named."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = "gate, stop, race, step, http, scope, pages; memory, disk, lossy"
        parser.add_argument("names", nargs="*", metavar="NAME", help=names)
        parser.add_argument("--database", choices=DATABASES, help="one of them (default: both)")
        parser.add_argument("--json", action="store_true", help="one JSON object a line")
        parser.add_argument("--scale", type=int, default=1, help="repeat more (default: 1)")

        parser.add_argument("--minutes", type=float, default=60, help="how long memory is watched (60)")
        parser.add_argument("--case", default="", help="of pages: only cases whose names hold this word")
        parser.add_argument("--times", type=int, default=30, help="of pages: how often each is asked (30)")

    def handle(self, *args: Any, **options: Any) -> None:
        words = [
            *options["names"],
            "--scale",
            str(options["scale"]),
            "--minutes",
            str(options["minutes"]),
            "--case",
            options["case"],
            "--times",
            str(options["times"]),
            *(["--json"] if options["json"] else []),
        ]
        chosen = [options["database"]] if options["database"] else list(DATABASES)
        codes = [measure(database, words) for database in chosen]
        if any(codes):
            sys.exit(max(codes))


def measure(database: str, words: list[str]) -> int:
    """One process a database: settings are read once. The exit code."""
    environ = {
        **os.environ,
        "ALLSTOP_TEST_DATABASE": database,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "tests.benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
