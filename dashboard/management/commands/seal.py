"""The key that statements are signed with: manage.py seal --rotate."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard.statements.rotation import rotate
from runs import keyring


class Command(BaseCommand):
    help = "Have the key in use hand over to a new one; running processes take it up by themselves."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rotate", action="store_true", required=True, help="make the next key")
        parser.add_argument("--data", metavar="DIR", help="folder of the database and of the keys")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            key = rotate()
        except (keyring.KeyUnreadable, OSError) as error:
            raise CommandError(f"Nothing was changed: {error}") from error
        self.stdout.write(f"{key.follows} handed over to {key.pk} ({key.public}).")
        self.stdout.write("What the old key signed stays valid. Tell those who keep your key.")
