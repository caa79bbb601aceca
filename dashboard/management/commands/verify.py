"""Recompute the chain of evidence: manage.py verify [STREAM…]. Ends with 1 when a place does not fit."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard import words
from dashboard.verify import Verdict, streams, verify_all

LIMITS = (
    "A chain can't show what was never written, nor a stream that was rewritten whole: "
    "compare its head with one that was printed on a report."
)


class Command(BaseCommand):
    help = "Recompute the seals of all evidence (or of the streams named) and name the place of a break."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("stream", nargs="*", help="id of a run or a workspace (default: all)")
        parser.add_argument("--data", metavar="DIR", help="folder of the database")
        parser.add_argument("--json", action="store_true", help="one object a line and stream")

    def handle(self, *args: Any, **options: Any) -> None:
        named: list[str] = options["stream"]
        absent = sorted(set(named) - set(streams())) if named else []
        if absent:
            raise CommandError(f"There is no evidence of {', '.join(absent)}.")
        verdicts = []
        for verdict in verify_all(named or None):
            verdicts.append(verdict)
            self.tell(verdict, as_json=options["json"])
        if not options["json"]:
            self.sum_up(verdicts)
        if any(not verdict.intact for verdict in verdicts):
            raise SystemExit(1)

    def tell(self, verdict: Verdict, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({**asdict(verdict), "intact": verdict.intact}))
            return
        for found in verdict.breaks:
            self.stdout.write(f"{verdict.stream}, {found.place}: {found.what}. {found.says}")

    def sum_up(self, verdicts: list[Verdict]) -> None:
        broken = sum(not verdict.intact for verdict in verdicts)
        lines = sum(verdict.lines for verdict in verdicts)
        state = f"{broken} broken" if broken else "intact up to their newest seals"
        unsealed = words.count(sum(v.unsealed for v in verdicts), "line is", "lines are")
        removed = words.count(sum(v.removed for v in verdicts), "body was", "bodies were")
        counted = f"{words.count(len(verdicts), 'stream')}, {words.count(lines, 'line')}"
        self.stdout.write(f"{counted}: {state}. {unsealed} not sealed yet; {removed} removed by rule.")
        self.stdout.write(LIMITS)
