"""Kinds of effects: what each answers before any effect of it, and what is known of its effects so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from dashboard import kind_words, words
from dashboard.pages.hiding import body_lines
from dashboard.pages.shell import build_shell, signed_in, workspace_of
from effects import coverage, duplicates, presets
from effects.coverage import KindUse
from effects.kinds import Said, answers_of
from effects.models import Effect, Kind, Settlement
from effects.reconcile import CANT_TELL
from runs import access
from runs.coverage import DAYS
from runs.models import Evidence, EvidencePayload, Workspace
from runs.rules import rules_of

BACK = {True: "can be compensated", False: "can’t be called back", None: "not said"}
LOOKED_AT = 100  # effects whose last look-up is read


@dataclass(frozen=True)
class Row:
    """One kind of the list; `preset` says whether its effects can be called back."""

    of: KindUse
    preset: presets.Preset

    @property
    def class_word(self) -> str:
        return words.CLASS.get(self.of.op_class, "")

    @property
    def back(self) -> str:
        return BACK[self.preset.can]


def rows_of(workspace: Workspace) -> tuple[list[Row], list[KindUse], bool]:
    """The registered kinds by name, the opaque ones in use, and whether there are more of either."""
    found = coverage.of_workspace(workspace.pk)
    names = [one.name for one in found.registered]
    said = Kind.objects.filter(workspace=workspace, name__in=names).values_list(
        "name", "reversible", "provider"
    )
    of = {name: presets.named(reversible, provider) for name, reversible, provider in said}
    rows = [Row(one, of.get(one.name, presets.UNSAID)) for one in found.registered]
    return rows, found.opaque, found.more


@require_GET
@signed_in
def kinds_page(request: HttpRequest) -> HttpResponse:
    """GET /kinds/ : the registered kinds of a workspace, and the opaque ones in use."""
    workspace = workspace_of(request)
    shell = build_shell(request, "stops", workspace)
    rows, opaque, more = rows_of(workspace)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "rows": rows, "opaque": opaque}
    told |= {"more": more, "days": DAYS, "lists": (presets.CAN, presets.CANNOT)}
    return render(request, "kinds/page.html", told)


class KindPage:
    """One kind. Five queries, however many effects it has."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    @property
    def class_word(self) -> str:
        return words.CLASS.get(self.kind.op_class, self.kind.op_class)

    @property
    def answers(self) -> list[tuple[str, Said]]:
        """The six questions with their answers, in their order."""
        return [(kind_words.QUESTION[said.name], said) for said in answers_of(self.kind)]

    @property
    def sent(self) -> list[kind_words.Pair]:
        return [*kind_words.sent(self.kind), *self._forwarding()]

    def _forwarding(self) -> Iterator[kind_words.Pair]:
        if not self.kind.send.get("cancel"):
            return
        let = rules_of(self.kind.workspace_id).forward_stops
        yield "Rules", "they forward a cancel to it" if let else "they forward no stop, so nobody asks it"

    @property
    def asked(self) -> list[kind_words.Pair]:
        return list(kind_words.asked(self.kind))

    @property
    def afterwards(self) -> list[kind_words.Pair]:
        return list(kind_words.afterwards(self.kind))

    @property
    def template(self) -> str:
        """The body of its compensation, with its placeholders, as a person reads it."""
        body = self.kind.compensate.get("body") or ""
        return "\n".join(body_lines(str(body).encode())) if body else ""

    @cached_property
    def settled(self) -> list[tuple[words.Term, int]]:
        """How many of its effects stand where; requests to cancel are none of them."""
        rows = Effect.objects.filter(kind=self.kind, asks_about__isnull=True).order_by()
        found = dict(rows.values_list("settlement").annotate(n=Count("pk")))
        return [(words.SETTLEMENT[state], found[state]) for state in Settlement.values if found.get(state)]

    @property
    def total(self) -> int:
        return sum(number for _, number in self.settled)

    @cached_property
    def failed(self) -> tuple[int, int]:
        """Of the newest effects that were looked up: whose last look-up could not tell, and how many."""
        told = [json.loads(body or "{}") for body in self._last_look_ups() if body is not None]
        return sum(one.get("answer") == CANT_TELL for one in told), len(told)

    def _last_look_ups(self) -> QuerySet[Any, Any]:
        mine = Evidence.objects.filter(stream=OuterRef("run_id"), effect_key=OuterRef("key"))
        seq = Subquery(mine.filter(kind="effect.looked_up").order_by("-seq").values("seq")[:1])
        bodies = EvidencePayload.objects.filter(stream=OuterRef("run_id"), seq=OuterRef("last"))
        rows = Effect.objects.filter(kind=self.kind, checks__gt=0).annotate(last=seq)
        told = rows.annotate(answer=Subquery(bodies.values("body")[:1])).order_by("-pk")
        answers: QuerySet[Any, Any] = told.values_list("answer", flat=True)[:LOOKED_AT]
        return answers

    @cached_property
    def duplicates(self) -> str:
        return duplicates.known(kind_id=self.kind.pk).sentence


@require_GET
@signed_in
def kind_page(request: HttpRequest, name: str) -> HttpResponse:
    """GET /kinds/<name> : the six answers, its look-up, what is said of afterwards, and its effects."""
    workspace = workspace_of(request)
    kind = Kind.objects.filter(workspace=workspace, name=name).first()
    if kind is None:
        raise access.NotFound("kind")
    shell = build_shell(request, "stops", workspace)
    return render(request, "kinds/kind.html", {"shell": shell, "now": shell.now, "page": KindPage(kind)})
