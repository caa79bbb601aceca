"""The runs of a stop of many, a page at a time: each with what the stop came to there, and its report."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from django.db.models import Count
from django.urls import reverse

from dashboard import words
from dashboard.scope_words import RESULT
from effects import delivery_moves
from effects.close import outcome, repairs_by_run
from effects.models import Effect
from runs import cursors
from runs.models import INCONSEQUENTIAL, Permit, StopPart, StopRequest

from .scope_model import PartRow
from .scope_rows import EVER_SENT, KNOWN, WITHOUT_A_STOP

PAGE = 50


def page_of(
    stop: StopRequest, cursor: str = "", result: str = "", limit: int = PAGE
) -> tuple[list[PartRow], str | None]:
    """The next runs, newest first, and the cursor after them (None: no more). Four queries.

    Raises Problem for a cursor that is none of ours.
    """
    rows = StopPart.objects.filter(stop=stop).select_related("run", "run__workspace", "run_stop")
    found, after = cursors.page(rows.filter(result=result) if result else rows, cursor, limit, by="run_id")
    return _rows(found), after


def _rows(parts: list[StopPart]) -> list[PartRow]:
    ids = [part.run_id for part in parts]
    settled: dict[str, Counter[str]] = defaultdict(Counter)
    counts = Effect.objects.filter(run__in=ids).order_by().values_list("run", "settlement")
    for run_id, state, number in counts.annotate(n=Count("pk")):
        settled[run_id][state] = number
    messages, repairs = delivery_moves.states_of(ids), repairs_by_run(ids)
    permits = Permit.objects.filter(run__in=ids).exclude(op_class__in=INCONSEQUENTIAL)
    sent = set(permits.order_by().values_list("run", flat=True).distinct())
    told = []
    for part in parts:
        mine = settled[part.run_id]
        counted: dict[str, Any] = {"deliveries": messages[part.run_id], "consequential": part.run_id in sent}
        ended_as = outcome(part.run.status, list(mine), repairs[part.run_id], **counted)
        told.append(_row(part, mine, ended_as))
    return told


def _row(part: StopPart, settled: Counter[str], ended_as: str) -> PartRow:
    run, stop = part.run, part.run_stop
    return PartRow(
        id=run.pk,
        key=words.clean(run.key),
        name=words.clean(run.name),
        result=str(part.result),
        result_term=RESULT[part.result],
        status=str(run.status),
        outcome=ended_as,
        term=words.run_chip(run.status, ended_as, quiet=bool(stop and stop.quiet_at)),
        known=sum(settled[state] for state in KNOWN),
        sent=sum(settled[state] for state in EVER_SENT),
        unknown=settled["UNKNOWN"],
        stop=stop.number if stop else None,
        closed=part.result in WITHOUT_A_STOP or bool(stop and stop.closed_at),
        report=reverse("report", args=[run.pk]),
    )
