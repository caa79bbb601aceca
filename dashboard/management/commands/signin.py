"""Let a person in without their password: manage.py signin EMAIL prints a link that works once."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.base import BaseCommand
from django.urls import reverse

from dashboard import words
from runs import links
from runs.access import NotFound


class Command(BaseCommand):
    help = "Print a link that signs this person in, once, within ten minutes."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--data", metavar="DIR", help="folder of the database and the key")
        parser.add_argument(
            "--url", help="where Allstop answers (default: where `up` does, or ALLSTOP_ORIGINS)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.SECRET_KEY:
            raise CommandError(
                "There is no secret key to sign a link with. Give the server's: SECRET_KEY, or --data DIR."
            )
        try:
            person, text = links.make_link(email=options["email"])
        except NotFound:
            raise CommandError(
                f"Nobody here who may sign in has the address {words.clean(options['email'])}. An admin adds "
                "people on the page People."
            ) from None
        url = (options["url"] or where()).rstrip("/")
        self.stdout.write(f"{url}{reverse('sign-in-link', args=[text])}")
        self.stdout.write(
            f"It signs in {words.clean(person)} ({person.email}), once, within ten minutes, and is on "
            "record. Hand it to nobody else."
        )


def where() -> str:
    """The address of this installation: as it was set, as `up` wrote it down, or the usual one."""
    if "ALLSTOP_ORIGINS" not in os.environ:
        try:
            return Path(settings.ALLSTOP_DATA, "address").read_text().strip()
        except OSError:
            pass
    return str(settings.ALLSTOP_ORIGINS[0])
