"""A transition is one UPDATE: the database decides, django-fsm draws the graph.

Knows no table. See docs/decisions/0001-a-transition-is-an-update.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, cast

from django.db import models
from django.db.models import Expression, Q
from django_fsm import TransitionNotAllowed
from django_fsm import transition as fsm_transition

P = ParamSpec("P")
Changes = dict[str, Any]
Guard = Callable[..., Q]


class Refused(TransitionNotAllowed):
    """Zero rows: the compare-and-set said no. Nothing was changed."""


class MovedByMachine(TypeError):
    """This column is written by a transition only; call the transition."""


class JoinedFilter(TypeError):
    """A guarded UPDATE has a join; filter by the row's own columns, and put the rest into EXISTS.

    Django would compile it to `id IN (SELECT …)`, and after a lock wait PostgreSQL checks only
    that again: two workers were told "1 row" in a third of the races measured.
    """


class MachineQuerySet(models.QuerySet[Any]):
    """A queryset that can't write the columns a machine moves, nor any through a join."""

    def update(self, **changes: Any) -> int:
        self._refuse_moved(changes)
        self._refuse_joins()
        return super().update(**changes)

    def bulk_create(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_moved(kwargs.get("update_fields") or ())
        return super().bulk_create(*args, **kwargs)

    def advance(self, target_changes: Changes) -> int:
        """The one way past `update()`; called by a transition."""
        self._refuse_joins()
        return super().update(**target_changes)

    def _refuse_moved(self, columns: Iterable[str]) -> None:
        held = self.model.moved.intersection(columns)
        if held:
            raise MovedByMachine(f"{self.model.__name__}.{', '.join(sorted(held))}")

    def _refuse_joins(self) -> None:
        if self.query.count_active_tables() > 1:
            raise JoinedFilter(f"an UPDATE of {self.model.__name__} through a join")


class Machine(models.Model):
    """A row whose `moved` columns change by transition, never by `save()`."""

    moved: ClassVar[frozenset[str]] = frozenset({"status"})
    objects = MachineQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert, or update named fields that no transition owns; else MovedByMachine."""
        fields: Iterable[str] | None = kwargs.get("update_fields")
        if not self._state.adding and (fields is None or self.moved.intersection(fields)):
            raise MovedByMachine(f"{type(self).__name__}.save() would write a moved column")
        super().save(*args, **kwargs)


def transition(
    *,
    source: list[str],
    target: str,
    field: str = "status",
    guard: Guard | None = None,
) -> Callable[[Callable[P, Changes]], Callable[Concatenate[Any, P], int]]:
    """Declare an arrow once: graph, buttons and the guarded UPDATE come from it.

    The decorated static body returns the rest of the SET clause. Call the arrow on a row
    (1, or `Refused`) or on a queryset of own-row filters (the number of rows moved).
    """

    def decorate(body: Callable[P, Changes]) -> Callable[Concatenate[Any, P], int]:
        plain: Any = body.__func__ if isinstance(body, staticmethod) else body
        fsm_transition(field=field, source=source, target=target)(plain)

        @wraps(plain)
        def move(rows: Any, *args: P.args, **kwargs: P.kwargs) -> int:
            changes: Changes = {field: target, **plain(*args, **kwargs)}
            one = isinstance(rows, models.Model)
            chosen = type(rows)._default_manager.filter(pk=rows.pk) if one else rows
            allowed = Q(**{f"{field}__in": source})
            if guard is not None:
                allowed &= guard(*args, **kwargs)
            moved: int = chosen.filter(allowed).advance(changes)
            if one:
                _reflect(rows, changes, moved, move.__name__)
            return moved

        return cast(Callable[Concatenate[Any, P], int], move)

    return decorate


def _reflect(row: models.Model, changes: Changes, moved: int, name: str) -> None:
    if not moved:
        raise Refused(f"{name}: {type(row).__name__} {row.pk} was not where it had to be")
    for column, value in changes.items():
        if isinstance(value, Expression) or hasattr(value, "resolve_expression"):
            row.__dict__.pop(column, None)  # read again on next access
        else:
            setattr(row, column, value)
