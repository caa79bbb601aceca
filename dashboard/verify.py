"""Recompute the seals of evidence, and name the place where a chain breaks.

A stream's lines are hashed one after the other from the first; each seal holds the hash up to its line
(`runs.evidence.chain`). A break is named by its lines: exactly when a line or a body is gone or changed
beside its digest, otherwise by the range of the seal that does not fit. Lines after the newest seal are
not broken, only not sealed yet.

What a chain can't show: what was never written; a stream rewritten from its first line with all its seals.
For that, compare a head with one that left the database: in a statement that somebody kept, or printed on an
issued report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from django.db.models import Max, OuterRef, Subquery

from dashboard.packs.verify import Statement as Given
from dashboard.statements.witness import Witness
from effects.models import Report
from runs.evidence import canonical, chain, digest
from runs.models import Evidence, EvidencePayload, Refusal, Run, Seal

What = Literal["edited", "missing", "reordered", "body", "seal", "report", "fork", "older", "statement"]
PAIRS_UP_TO = 64  # lines of a range in which each pair is tried the other way round


@dataclass(frozen=True)
class Break:
    """A place that is not as it was written: lines `first` to `last`, and a sentence about them."""

    what: What
    first: int
    last: int
    says: str

    @property
    def place(self) -> str:
        return f"line {self.first}" if self.first == self.last else f"lines {self.first} to {self.last}"


@dataclass
class Verdict:
    """What was found in one stream. `head` is that of its newest seal; `unsealed` lines follow it."""

    stream: str
    lines: int = 0
    sealed_upto: int = 0
    head: str = ""
    unsealed: int = 0
    removed: int = 0
    breaks: list[Break] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        return not self.breaks


def streams() -> list[str]:
    """Every stream that has lines or seals, or must have lines: each run has its admission."""
    named: set[str] = set(Evidence.objects.values_list("stream", flat=True).distinct().order_by("stream"))
    named |= set(Seal.objects.values_list("stream", flat=True).distinct().order_by("stream"))
    return sorted(named | set(Run.objects.values_list("pk", flat=True)))


def verify_all(names: Iterable[str] | None = None, given: Sequence[Given] = ()) -> Iterator[Verdict]:
    """A verdict for each stream, one after the other; `given`: statements that were kept elsewhere."""
    stated = Witness(given)
    for stream in streams() if names is None else names:
        yield verify(stream, stated)


def verify(stream: str, stated: Witness | None = None) -> Verdict:
    """Check one stream. Its witnesses are read before its lines: what is written meanwhile is no break."""
    witnesses = Witnesses(stream, stated or Witness())
    seals = list(Seal.objects.filter(stream=stream).order_by("upto_seq"))
    verdict = Verdict(stream)
    ranges = Ranges(stream)
    head, upto = "", 0
    for seal in seals:
        lines = ranges.take(seal.upto_seq)
        verdict.breaks += check_range(head, upto, lines, seal)
        count(verdict, lines)
        head, upto = seal.head, seal.upto_seq  # from here on each range is judged by itself
    tail = ranges.take(None)
    count(verdict, tail)
    verdict.breaks += [*gaps(upto, tail, upto), *bodies(tail)]
    verdict.sealed_upto, verdict.head, verdict.unsealed = upto, head, len(tail)
    verdict.breaks += witnesses.against(seals, max(upto, tail[-1].seq if tail else 0))
    return verdict


def count(verdict: Verdict, lines: Sequence[Any]) -> None:
    verdict.lines += len(lines)
    verdict.removed += sum(line.removed_at is not None for line in lines)


class Ranges:
    """The lines of a stream in their order, handed out a range at a time."""

    def __init__(self, stream: str) -> None:
        bodies = EvidencePayload.objects.filter(stream=OuterRef("stream"), seq=OuterRef("seq"))
        rows = Evidence.objects.filter(stream=stream).annotate(
            body=Subquery(bodies.values("body")[:1]), removed_at=Subquery(bodies.values("removed_at")[:1])
        )
        self.rows: Iterator[Any] = rows.order_by("seq").iterator()
        self.ahead: Any = next(self.rows, None)

    def take(self, upto: int | None) -> list[Any]:
        """The next lines, up to this number (None: to the end)."""
        taken: list[Any] = []
        while self.ahead is not None and (upto is None or self.ahead.seq <= upto):
            taken.append(self.ahead)
            self.ahead = next(self.rows, None)
        return taken


def check_range(head: str, after: int, lines: list[Any], seal: Seal) -> list[Break]:
    """The lines between two seals: all there, in their order, leading to the second one's head."""
    missing = gaps(after, lines, seal.upto_seq)
    if missing:
        return [*missing, *bodies(lines)]
    if follow(head, lines) == seal.head:
        return bodies(lines)
    moved = other_order(head, lines, seal.head)
    if moved:
        says = "They stand in another order than the one that was sealed."
        return [Break("reordered", moved[0], moved[-1], says)]
    says = f"They were changed, or the seal at line {seal.upto_seq} was: the chain does not lead to it."
    return [Break("edited", after + 1, seal.upto_seq, says), *bodies(lines)]


def follow(head: str, lines: Iterable[Evidence]) -> str:
    """The head after these lines."""
    for line in lines:
        head = chain(head, line)
    return head


def gaps(after: int, lines: Sequence[Evidence], upto: int) -> list[Break]:
    """The numbers that are missing, up to the last line or `upto`."""
    found, expected = [], after + 1
    for seq in [*(line.seq for line in lines), max(upto, lines[-1].seq if lines else 0) + 1]:
        if seq > expected:
            found.append(
                Break("missing", expected, seq - 1, "Numbers are given without a gap; these are gone.")
            )
        expected = max(expected, seq + 1)
    return found


def bodies(lines: Iterable[Any]) -> list[Break]:
    """Bodies that do not fit the digest on their line. One that was removed by rule is no break."""
    return [Break("body", line.seq, line.seq, says) for line in lines if (says := wrong_body(line))]


def wrong_body(line: Any) -> str:
    if line.removed_at is not None:
        return ""
    if line.payload_digest and line.body is None:
        return "Its body is gone, and no rule says under which it was removed."
    if (digest(line.body) if line.body else "") != line.payload_digest:
        return "Its body is not the one whose digest it holds."
    return ""


def other_order(head: str, lines: list[Any], sealed: str) -> list[int]:
    """The numbers whose contents changed places, if another order leads to the sealed head; else []."""
    for order in orders(lines):
        if follow(head, placed(order, lines)) == sealed:
            return [here.seq for here, there in zip(lines, order, strict=True) if here is not there]
    return []


def orders(lines: list[Any]) -> Iterator[list[Any]]:
    """By their times first; then, where they are few, each pair the other way round."""
    yield sorted(lines, key=lambda line: line.at)
    if len(lines) > PAIRS_UP_TO:
        return
    for one, two in combinations(range(len(lines)), 2):
        order = list(lines)
        order[one], order[two] = order[two], order[one]
        yield order


def placed(order: Iterable[Any], lines: Iterable[Any]) -> Iterator[Any]:
    """These contents under those numbers."""
    for line, place in zip(order, lines, strict=True):
        moved = copy(line)
        moved.seq = place.seq
        yield moved


class Witnesses:
    """What other rows know of a stream: refusals name their lines, reports and statements seals and lines."""

    def __init__(self, stream: str, stated: Witness) -> None:
        self.stream = stream
        self.stated, self.false = list(stated.heads(stream)), list(stated.wrong(stream))
        self.reports = list(Report.objects.filter(run=stream).order_by("version"))
        self.refusal = (
            Refusal._default_manager.filter(run=stream).aggregate(top=Max("evidence_seq"))["top"] or 0
        )
        self.is_run = Run.objects.filter(pk=stream).exists()

    def against(self, seals: list[Seal], last: int) -> list[Break]:
        """Where they disagree with the lines and seals that were found."""
        known = max([self.refusal, int(self.is_run), *(report.upto_seq for report in self.reports)])
        known = max([known, *(one.upto for one in self.stated if not one.given)])
        found: list[Break] = []
        if known > last:
            says = "The end was cut off: a refusal, a report, a statement or the run itself knows of these."
            found.append(Break("missing", last + 1, known, says))
        heads = {seal.upto_seq: seal.head for seal in seals}
        found += self._stated(heads, last)
        for report in self.reports:
            found += self._report(report, heads)
        numbers = [report.version for report in self.reports]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(Break("report", 0, 0, f"Of its report only these versions are left: {numbers}."))
        return found

    def _stated(self, heads: dict[int, str], last: int) -> Iterator[Break]:
        for one in self.stated:
            if one.upto > last and one.given:
                says = f"{one.who} knew of these: a backup was restored, or the end was cut off."
                yield Break("older", last + 1, one.upto, says)
            elif heads.get(one.upto) != one.head and one.upto <= last:
                says = f"{one.who} holds another head for it than the one that is here."
                yield Break("fork", one.upto, one.upto, says)
        yield from (Break("statement", 0, 0, says) for says in self.false)

    def _report(self, report: Report, heads: dict[int, str]) -> Iterator[Break]:
        place = report.upto_seq
        if digest(report.body) != report.digest or not self._issued(report):
            says = f"Version {report.version} of the report is not the one that was issued."
            yield Break("report", place, place, says)
        sealed = _seal_in(report.body)
        if sealed and heads.get(sealed["upto_seq"]) != sealed["head"]:
            says = f"Version {report.version} of the report names another seal than the one that is here."
            yield Break("seal", sealed["upto_seq"], sealed["upto_seq"], says)

    def _issued(self, report: Report) -> bool:
        """Whether the line of its issue, which is sealed, holds this version's digest."""
        told = {
            "version": report.version,
            "digest": report.digest,
            "outcome": report.outcome,
            "final": report.final,
        }
        lines = Evidence.objects.filter(stream=self.stream, kind="report.issued")
        return lines.filter(payload_digest=digest(canonical(told))).exists()


def _seal_in(body: str) -> dict[str, Any] | None:
    try:
        sealed: dict[str, Any] | None = json.loads(body).get("seal")
    except (ValueError, AttributeError):
        return None
    return sealed
