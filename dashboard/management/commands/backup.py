"""Take a backup: manage.py backup [FILE]. Serving goes on meanwhile; an existing file is never replaced."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.base import BaseCommand
from django.db import DatabaseError
from django.utils import timezone

from dashboard import backup, words
from dashboard.pages.shell import release


class Command(BaseCommand):
    help = "Write all rows of this moment to a new file, which `restore` reads into either database."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="default: a new one in the data folder")
        parser.add_argument("--data", metavar="DIR", help="folder of the database")

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"] or in_data_folder()
        try:
            taken = backup.take(file.expanduser().absolute(), release())
        except FileExistsError:
            raise CommandError(f"{file} is there already. A backup replaces no file: name another.") from None
        except OSError as error:
            raise CommandError(f"No backup was written to {file}: {error.strerror}.") from None
        except DatabaseError as error:
            raise CommandError(f"No backup was written: the database said: {error}") from None
        self.tell(taken)

    def tell(self, taken: backup.Taken) -> None:
        rows = words.count(sum(taken.rows.values()), "row")
        self.stdout.write(f"Backup of {taken.header.taken_at:%Y-%m-%d %H:%M:%S} UTC: {rows} in {taken.file}")
        self.stdout.write(f"SHA-256 of its contents: {taken.digest}")
        self.stdout.write(
            "It is as secret as the database: password hashes and digests of tokens are in it. Sessions, the "
            "secret key and the files that agents had written are not. A stop that is recorded from now on "
            "is not in it: restore it, and that stop is lost."
        )


def in_data_folder() -> Path:
    """A name of its own for each second."""
    folder: Path = settings.ALLSTOP_DATA / "backups"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"allstop-{timezone.now():%Y%m%dT%H%M%SZ}.jsonl.gz"
