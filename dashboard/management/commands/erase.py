"""Erase a person: manage.py erase PERSON, by id or e-mail address."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard import erasing
from runs.access import SET_UP, NotFound


class Command(BaseCommand):
    help = "Take a person's name, address and texts that name them out of the database. Can't be taken back."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("person", help="id or e-mail address")
        parser.add_argument("--dry-run", action="store_true", help="count only; nothing is changed")
        parser.add_argument("--yes", action="store_true", help="don't ask again")
        parser.add_argument("--data", metavar="DIR", help="folder of the database")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = erasing.find(options["person"])
        except NotFound:
            raise CommandError("There is no such person.") from None
        self.tell(erasing.preview(user))
        if options["dry_run"]:
            return
        if not options["yes"] and input(f"Type {user.email} to erase them for good: ") != user.email:
            raise CommandError("Nothing was changed.")
        try:
            erasing.erase(actor=SET_UP, user_id=user.pk)
        except erasing.CannotErase as error:
            raise CommandError(str(type(error).__doc__)) from None
        self.stdout.write(f"user:{user.pk} is a person who was erased. Backups still hold them.")

    def tell(self, found: erasing.Erased) -> None:
        self.stdout.write(
            f"{found.person}: {found.memberships} memberships, {found.tokens} live tokens,"
            f" {found.bodies} bodies of evidence"
        )
        for name, rows in found.texts.items():
            self.stdout.write(f"  {name}: {rows}")
