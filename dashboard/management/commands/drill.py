"""Make failures on purpose and check what they leave: manage.py drill --all --json"""

import os
import sys

from django.core.management.base import BaseCommand

from dashboard.drills.processes import ROOT


class Command(BaseCommand):
    help = "Carry out drills: failures made on purpose, and the evidence that each must leave."
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """The drills know nothing of the server: this process becomes theirs."""
        sys.stdout.flush()
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "client")])}
        os.execve(sys.executable, [sys.executable, "-m", "dashboard.drills", *argv[2:]], environ)
