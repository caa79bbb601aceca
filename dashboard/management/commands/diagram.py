"""The state graphs in the documents: printed from the machines, compared, or written anew."""

import re
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from effects.models import Approval, Compensation, Delivery, Effect
from runs.diagram import mermaid, table
from runs.machine import Machine
from runs.models import Permit, Run, Step

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "docs/states.md")
MACHINES: dict[str, tuple[type[Machine], str]] = {
    "run": (Run, "status"),
    "step": (Step, "status"),
    "permit": (Permit, "state"),
    "effect": (Effect, "settlement"),
    "delivery": (Delivery, "state"),
    "compensation": (Compensation, "state"),
    "approval": (Approval, "state"),
}
BLOCK = re.compile(r"<!-- (diagram|arrows): (\w+) -->\n.*?<!-- end -->", re.DOTALL)


class Command(BaseCommand):
    help = "Print the state graphs; --check compares the documents with them, --write brings them up to date."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        one = parser.add_mutually_exclusive_group()
        one.add_argument("--check", action="store_true", help="fail when a document shows another graph")
        one.add_argument("--write", action="store_true", help="write the marked blocks of the documents")

    def handle(self, *args: Any, **options: Any) -> None:
        stale = [path for path in DOCUMENTS if fresh(read(path)) != read(path)]
        if options["write"]:
            for path in stale:
                (ROOT / path).write_text(fresh(read(path)))
            self.stdout.write(f"Written: {', '.join(stale) or 'nothing, all were up to date'}.")
        elif not options["check"]:
            self.stdout.write("\n\n".join(drawing(name) for name in MACHINES))
        elif stale:
            raise CommandError(
                f"Another graph than the machine's: {', '.join(stale)}. Run: manage.py diagram --write"
            )


def read(path: str) -> str:
    return (ROOT / path).read_text()


def fresh(text: str) -> str:
    """The text with each marked block as the machines say it now. Raises CommandError on an unknown name."""
    return BLOCK.sub(_block, text)


def _block(found: "re.Match[str]") -> str:
    what, name = found.groups()
    if name not in MACHINES:
        raise CommandError(f"There is no machine called {name!r}; there are {', '.join(MACHINES)}.")
    return f"<!-- {what}: {name} -->\n{PRINTERS[what](name)}\n<!-- end -->"


def drawing(name: str) -> str:
    return f"```mermaid\n{mermaid(*MACHINES[name])}\n```"


def listing(name: str) -> str:
    return table(*MACHINES[name])


PRINTERS: dict[str, Callable[[str], str]] = {"diagram": drawing, "arrows": listing}
