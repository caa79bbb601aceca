"""Make failures on purpose and check what they leave: manage.py drill --all --json"""

import os
import subprocess
import sys

from django.core.management.base import BaseCommand

from dashboard.drills.processes import ROOT


class Command(BaseCommand):
    help = "Carry out drills: failures made on purpose, and the evidence that each must leave."
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """The drills know nothing of the server: they have a process of their own."""
        sys.exit(run(argv[2:]))


def run(words: list[str]) -> int:
    """The exit code: 0 all passed, 1 one failed, 2 one inconclusive and none failed."""
    found_at = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    command = [sys.executable, "-m", "dashboard.drills", *words]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": found_at})
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C reached the drills too, which end what they started
