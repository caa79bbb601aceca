"""Duplicates that are known: keys under which a look-up or a webhook saw more than one object.

Never estimated. A key that nobody could count under, or that nobody looked up, is in neither number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from .models import Compensation, Effect

TWICE = 2


@dataclass(frozen=True)
class Known:
    """Of keys: `seen_twice` of the `counted` ones; `uncounted` were looked up, and could not be counted."""

    seen_twice: int = 0
    counted: int = 0
    uncounted: int = 0

    @property
    def sentence(self) -> str:
        """In words; "" where nothing was looked up."""
        if self.counted:
            keys = "key" if self.counted == 1 else "keys"
            text = f"{self.seen_twice} of {self.counted} {keys} counted at the provider had 2 objects or more"
            return text + (f"; {self.uncounted} more could not be counted" if self.uncounted else "")
        return f"none of {self.uncounted} keys looked up could be counted" if self.uncounted else ""

    def __add__(self, other: Known) -> Known:
        return Known(
            self.seen_twice + other.seen_twice, self.counted + other.counted, self.uncounted + other.uncounted
        )


def known(*, workspace_id: str = "", run_id: str = "", kind_id: str = "") -> Known:
    """What is known of duplicates in a workspace, of a run or of a kind: two queries, each one pass."""
    named = {"run__workspace_id": workspace_id, "run_id": run_id, "kind_id": kind_id}
    asked = {name: value for name, value in named.items() if value}
    if not asked:
        raise TypeError("Name a workspace, a run or a kind")
    return _of(Effect.objects.filter(**asked)) + _of(Compensation.objects.filter(**asked))


def _of(rows: QuerySet[Any]) -> Known:
    counted = Q(counted__isnull=False)
    found = rows.aggregate(
        twice=Count("pk", filter=Q(counted__gte=TWICE)),
        could=Count("pk", filter=counted),
        could_not=Count("pk", filter=~counted & Q(checks__gt=0)),
    )
    return Known(found["twice"], found["could"], found["could_not"])


def of_one(counted: int | None) -> str:
    """What is said of one effect: "2 objects under this key", "" where there is nothing to say."""
    return f"{counted} objects under this key" if counted is not None and counted >= TWICE else ""
