"""Recompute the chain of evidence, or check a pack or a statement. Ends with 1 when a place does not fit."""

import json
import os
import re
import tempfile
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard import words
from dashboard.packs import verify as packs
from dashboard.packs.writing import VERIFIER
from dashboard.statements.rotation import public_keys
from dashboard.verify import Verdict, streams, verify_all
from effects.downloads import download
from runs.evidence import digest

STREAM = re.compile(r"(run|ws)_\w+|installation")
URL = re.compile(r"https?://", re.IGNORECASE)
LIMITS = (
    "A chain can't show what was never written, nor a stream that was rewritten whole: "
    "compare it with a statement that was kept elsewhere (--statement FILE)."
)


class Command(BaseCommand):
    help = (
        "Recompute the seals of all evidence (or of the streams named) and name the place of a break; "
        "or check a pack or a statement, a file or a URL, as the pack's own verify.py does."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = "id of a run or a workspace (default: all), or FILE or URL of a pack or a statement"
        parser.add_argument("what", nargs="*", help=what)
        parser.add_argument("--data", metavar="DIR", help="folder of the database")
        parser.add_argument("--json", action="store_true", help="one object a line and stream")
        parser.add_argument("--keys", action="store_true", help="print the public keys, and check nothing")
        parser.add_argument("--key", action="append", default=[], help="public key that you trust, or its id")
        parser.add_argument("--statement", action="append", default=[], help="file of a statement you kept")
        parser.add_argument("--unsigned", action="store_true", help="take a pack that nobody signed")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["keys"]:
            return self.tell_keys()
        named = [word for word in options["what"] if STREAM.fullmatch(word) and not Path(word).exists()]
        outside = [word for word in options["what"] if word not in named]
        if named and outside:
            raise CommandError("Either streams of this database, or files and URLs.")
        fits = self.check_outside(outside, options) if outside else self.check_database(named, options)
        if not fits:
            raise SystemExit(1)
        return None

    # packs and statements ----------------------------------------------------------------------------

    def check_outside(self, places: list[str], options: dict[str, Any]) -> bool:
        """Files and URLs, by the verifier that is in each pack. The database is not asked."""
        verdicts = []
        for place in places:
            try:
                verdicts.append(checked(place, options))
            except (OSError, ValueError, ConnectionError) as error:
                raise CommandError(f"{place} can't be checked: {error}") from error
        for verdict in verdicts:
            if options["json"]:
                self.stdout.write(json.dumps({**asdict(verdict), "intact": verdict.intact}))
                continue
            for line in packs.lines_of(verdict, bool(options["key"])):
                self.stdout.write(line)
        return all(verdict.intact for verdict in verdicts)

    def tell_keys(self) -> None:
        told = public_keys()
        self.stdout.write(f"Installation {told['installation'] or 'unknown: nothing was signed yet'}")
        for number, key in enumerate(told["keys"]):
            first = "without a hand-over" if number else "the first one"
            by = f"handed over to by {key['follows']}" if key["follows"] else first
            self.stdout.write(f"{key['id']}  {key['public']}  since {key['since']}, {by}")
        self.stdout.write(f"verify.py of this release: SHA-256 {digest(VERIFIER.read_bytes())}")

    # the database ------------------------------------------------------------------------------------

    def check_database(self, named: list[str], options: dict[str, Any]) -> bool:
        absent = sorted(set(named) - set(streams())) if named else []
        if absent:
            raise CommandError(f"There is no evidence of {', '.join(absent)}.")
        given, fits = self.given(options)
        verdicts = []
        for verdict in verify_all(named or None, given):
            verdicts.append(verdict)
            self.tell(verdict, as_json=options["json"])
        if not options["json"]:
            self.sum_up(verdicts)
        return fits and all(verdict.intact for verdict in verdicts)

    def given(self, options: dict[str, Any]) -> tuple[list[packs.Statement], bool]:
        """The statements beside the database, and whether they are genuine."""
        if not options["statement"]:
            return [], True
        try:
            kept = [packs.statement_in(name) for name in options["statement"]]
            ids = {name for key in options["key"] for name in packs.key_ids(key)}
        except (OSError, ValueError) as error:
            raise CommandError(f"A statement or a key can't be read: {error}") from error
        verdict = packs.check_statements(kept, ids or {key["id"] for key in public_keys()["keys"]})
        for found in verdict.breaks:
            self.stdout.write(packs.shown(f"{found.where}: {found.what}. {found.says}"))
        return kept, verdict.intact

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


def checked(place: str, options: dict[str, Any]) -> packs.Verdict:
    """A file as it lies, a URL from a file that is gone afterwards. Raises OSError, ValueError."""
    given = (options["key"], options["statement"], options["unsigned"])
    if not URL.match(place):
        return packs.check(place, *given)
    with tempfile.NamedTemporaryFile(prefix="allstop-verify-") as file:
        token = os.environ.get("ALLSTOP_TOKEN", "")
        download(place, file.file, {"Authorization": f"Bearer {token}"} if token else {})
        file.flush()
        verdict = packs.check(file.name, *given)
    if verdict.subject.endswith(file.name):
        verdict.subject = place
    return verdict
