"""Django's migrate without the limits that keep a stop from waiting: a migration takes the time it takes."""

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

LIMITS = ("idle_in_transaction_session_timeout", "statement_timeout")


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor != "postgresql":
            super().handle(*args, **options)
            return
        # Between two statements Django renders models: on a slow machine for longer than a session may be
        # silent in a transaction. A lock is still not waited for: that would hold up every gate behind it.
        with connection.cursor() as cursor:
            for name in LIMITS:
                cursor.execute(f"SET {name} = 0")
        try:
            super().handle(*args, **options)
        finally:
            with connection.cursor() as cursor:
                for name in LIMITS:
                    cursor.execute(f"RESET {name}")
