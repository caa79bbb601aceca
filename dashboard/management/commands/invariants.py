"""The table of promises and their tests: compared with the marks of the tests, or written anew."""

from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Compare docs/invariants.md with the marks of the tests; --write brings it up to date."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--write", action="store_true", help="write the document")

    def handle(self, *args: Any, **options: Any) -> None:
        tests = import_module("tests.invariants")  # the tests are no part of an installation
        found = tests.all_proofs()
        wanted, document = tests.table(found), tests.DOCUMENT
        if options["write"]:
            document.write_text(wanted, encoding="utf-8")
            self.stdout.write(f"Written: {document.name}, {len(found)} marks.")
        elif not document.exists() or document.read_text(encoding="utf-8") != wanted:
            raise CommandError(
                "docs/invariants.md is not what the tests say. Run: manage.py invariants --write"
            )
        if missing := tests.without_proof(found):
            raise CommandError(f"No test proves {', '.join(missing)}.")
