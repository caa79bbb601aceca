"""The evidence of one run, line by line: what the pages' links point at."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from dashboard import words
from dashboard.event_words import event
from dashboard.pages.facts import name_actors
from dashboard.pages.shell import actor_of, page, signed_in
from runs import access
from runs.models import Evidence, EvidencePayload, Run, Seal

LINES = 100


@dataclass(frozen=True)
class LineRow:
    """One line with its body, or the word that the body was removed."""

    line: Evidence
    word: str
    who: str
    body: str
    removed: str
    sealed: bool


class EvidencePage:
    """A hundred lines from `first` on; the last page may still grow."""

    def __init__(self, run: Run, at: int) -> None:
        self.run = run
        self.first = max(1, (at - 1) // LINES * LINES + 1)
        mine = Evidence.objects.filter(stream=run.pk)
        lines = list(mine.filter(seq__gte=self.first).order_by("seq")[: LINES + 1])
        self.more = len(lines) > LINES
        self.rows = self._rows(lines[:LINES])

    def _rows(self, lines: list[Evidence]) -> list[LineRow]:
        last = lines[-1].seq if lines else 0
        bodies = EvidencePayload.objects.filter(stream=self.run.pk, seq__range=(self.first, last))
        body_of = {body.seq: body for body in bodies}
        newest = Seal.objects.filter(stream=self.run.pk).order_by("-upto_seq").first()
        sealed = newest.upto_seq if newest else 0
        names = name_actors(line.actor for line in lines)
        return [row(line, body_of.get(line.seq), names, sealed) for line in lines]

    @property
    def older(self) -> int | None:
        return self.first - LINES if self.first > 1 else None

    @property
    def newer(self) -> int | None:
        return self.first + LINES if self.more else None


def row(line: Evidence, body: EvidencePayload | None, names: dict[str, str], sealed: int) -> LineRow:
    """A line, readable; its body is a stranger's text and is shown as text only."""
    removed = f"removed under {body.removed_under}" if body and body.removed_at else ""
    who = words.clean(names.get(line.actor, line.actor))
    return LineRow(line, event(line.kind), who, pretty(body), removed, line.seq <= sealed)


def pretty(body: EvidencePayload | None) -> str:
    """The canonical JSON, indented for people; control characters are already escaped in it."""
    if body is None or not body.body:
        return ""
    try:
        text = json.dumps(json.loads(body.body), indent=2, ensure_ascii=False)
    except ValueError:
        text = body.body
    return "\n".join(words.clean_end(line) for line in text.splitlines())


def number(text: str) -> int:
    """A line number from the address; 1 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 1


@require_GET
@signed_in
def evidence_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/evidence?at=<seq> : the hundred lines around one."""
    run = access.find_run(actor_of(request), run_id)
    told = EvidencePage(run, number(request.GET.get("at", "1")))
    return page(request, "run/evidence.html", current="runs", workspace=run.workspace, run=run, told=told)
