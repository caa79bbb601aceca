"""A migration may take longer than anything else may: what the limits are while it runs, and after it."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import pre_migrate

from dashboard.management.commands.migrate import LIMITS


def limits() -> list[str]:
    with connection.cursor() as cursor:
        return [cursor.execute(f"SHOW {name}").fetchone()[0] for name in LIMITS]


@pytest.mark.only("postgresql")
@pytest.mark.django_db(transaction=True)
def test_a_migration_has_no_limit_of_time_and_what_comes_after_it_has() -> None:
    seen: list[list[str]] = []

    def look(**told: Any) -> None:
        seen.append(limits())

    before = limits()
    pre_migrate.connect(look, weak=False)
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        pre_migrate.disconnect(look)
    assert seen
    assert all(each == ["0", "0"] for each in seen)
    assert limits() == before != ["0", "0"]
