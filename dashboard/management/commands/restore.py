"""Restore a backup: manage.py restore FILE [--replace]. All of it, or nothing."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.db import DatabaseError, OperationalError

from dashboard import words
from dashboard.backup import BadBackup
from dashboard.management.commands.up import address, reach_database
from dashboard.restore import NotEmpty, Restored, holds_something, restore

WORD = "replace"


class Command(BaseCommand):
    help = "Put a backup into an empty database, or in the place of one. Every gate stays shut then."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--data", metavar="DIR", help="folder of the database")
        parser.add_argument("--replace", action="store_true", help="drop what is there; you will be asked")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"]
        reach_database()
        try:
            if options["replace"] and holds_something():
                self.ask()
            restored = restore(file, replace=options["replace"])
        except NotEmpty:
            raise CommandError(
                f"{address()} holds an installation already. Nothing was changed. Restore into an empty "
                "database, or add --replace to give up what is there."
            ) from None
        except BadBackup as error:
            raise CommandError(f"{file} can't be restored. {error} Nothing was changed.") from None
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror}. Nothing was changed.") from None
        except OperationalError as error:
            raise CommandError(
                f"The database said: {str(error).strip()}. Nothing was changed. Stop every web server, "
                "worker and beat that uses it, then try again."
            ) from None
        except DatabaseError as error:
            raise CommandError(f"The database refused it: {error}. Nothing was changed.") from None
        call_command(
            "migrate", interactive=False, verbosity=0
        )  # its signals make what Django keeps of models
        self.tell(restored)

    def ask(self) -> None:
        """A slip guard: what is replaced is gone, with every stop in it."""
        self.stdout.write(
            f"Everything in {address()} will be dropped, with every stop that was recorded there. Make a "
            f"backup of it first. Type {WORD} to go on:"
        )
        self.stdout.flush()
        if sys.stdin.readline().strip() != WORD:
            raise CommandError("Nothing was changed.")

    def tell(self, restored: Restored) -> None:
        header, tally = restored.taken.header, restored.tally
        at = f"{restored.restore.restored_at:%Y-%m-%d %H:%M:%S} UTC"
        taken = f"{header.taken_at:%Y-%m-%d %H:%M:%S} UTC"
        rows = words.count(sum(restored.taken.rows.values()), "row")
        self.stdout.write(f"Restored {rows} from the backup of {taken}, at {at}.")
        self.stdout.write(
            f"MISSING: whatever was recorded between {taken} and {at}. A STOP THAT WAS ACKNOWLEDGED IN THAT "
            "TIME IS LOST: record it again before you open a gate."
        )
        self.stdout.write(
            "BACK AGAIN: tokens that were revoked, people who were removed, roles that were taken away and "
            "passwords that were changed in that time. See to them before you open a gate."
        )
        gates = words.count(len(tally.gates), "gate is", "gates are")
        runs = words.count(tally.runs, "run that had not ended", "runs that had not ended")
        permits = words.count(tally.permits, "permit is", "permits are")
        effects = words.count(tally.effects, "effect is", "effects are")
        self.stdout.write(
            f"{gates} shut, until an admin opens each. {runs} found, {tally.paused} at work: held, until "
            f"each is resumed. {permits} lost, {effects} unknown, to be looked up. Workers from before are "
            "refused; what they report late still counts."
        )
        self.stdout.write(f"Next: docs/runbooks/restore.md. SHA-256 of the backup: {restored.taken.digest}")
