"""Pieces of the report's queries: counted and plain parts of one union, the run, and people's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import (
    Case,
    CharField,
    DateTimeField,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Concat

from dashboard import words
from runs.access import NotFound
from runs.models import Evidence, Restore, Run, Seal, Token, User
from runs.store import Now


def read_run(run_id: str) -> Any:
    """The run with its newest line, its newest seal and the database's clock; NotFound if none."""
    lines = Evidence.objects.filter(stream=OuterRef("pk")).order_by("-seq")
    seals = Seal.objects.filter(stream=OuterRef("pk")).order_by("-upto_seq")
    restores = Restore.objects.filter(restored_at__gte=OuterRef("admitted_at")).order_by("-pk")
    run = (
        Run.objects.filter(pk=run_id)
        .select_related("workspace", "session")
        .annotate(
            as_of=Now(),
            last_seq=newest(lines),
            sealed_seq=Subquery(seals.values("upto_seq")[:1]),
            sealed_head=Subquery(seals.values("head")[:1]),
            restored_from=Subquery(restores.values("taken_at")[:1]),
            restored_at=Subquery(restores.values("restored_at")[:1]),
        )
        .first()
    )
    if run is None:
        raise NotFound("run")
    return run


def newest(lines: QuerySet[Evidence]) -> Subquery:
    return Subquery(lines.values("seq")[:1])


def first(condition: Q) -> Case:
    """An ordering: rows that meet the condition before the rest."""
    return Case(When(condition, then=Value(0)), default=Value(1), output_field=IntegerField())


def only_where(condition: Q, text: Subquery) -> Case:
    """The text where the condition holds, "" elsewhere."""
    return Case(When(condition, then=text), default=Value(""), output_field=TextField())


NOTHING = Cast(Value(None), DateTimeField())


def counted(what: str, rows: QuerySet[Any], name: str, number: Any, at: Any = None) -> QuerySet[Any, Any]:
    """(what, name, number, at) per name."""
    named = rows.order_by().annotate(what=Value(what, CharField())).values("what", name)
    moments = at if at is not None else Max(NOTHING, output_field=DateTimeField())
    told: QuerySet[Any, Any] = named.annotate(number=number, moment=moments)
    return told.values_list("what", name, "number", "moment")


def plain(what: str, rows: QuerySet[Any], *columns: str) -> QuerySet[Any, Any]:
    """(what, name, number, at) per row."""
    told: QuerySet[Any, Any] = rows.order_by().annotate(what=Value(what, CharField()))
    return told.values_list("what", *columns)


def outcome_and_final() -> Case:
    """ "final:completed" or "open:awaiting verification": two facts in the one text column."""
    return Case(
        When(final=True, then=Concat(Value("final:"), "outcome")),
        default=Concat(Value("open:"), "outcome"),
        output_field=CharField(),
    )


def name_actors(actors: Iterable[str]) -> dict[str, str]:
    """Actor ids as names: people and tokens by theirs, Allstop itself, the rest as they are."""
    ids = {actor for actor in actors if actor}
    people = [i.removeprefix("user:") for i in ids if i.startswith("user:")]
    tokens = [i.removeprefix("token:") for i in ids if i.startswith("token:")]
    users = User.objects.filter(pk__in=[pk for pk in people if pk.isdecimal()])
    named = {i: i for i in ids} | words.OURS
    of_people = users.values_list(Concat(Value("user:"), Cast("pk", CharField())), "name", "email")
    of_tokens = Token.objects.filter(pk__in=tokens).values_list(
        Concat(Value("token:"), "pk"), "name", Value("", CharField())
    )
    for actor, name, email in of_people.union(of_tokens, all=True):
        named[actor] = (name or email) if actor.startswith("user:") else f"token “{name}”"
    return named
