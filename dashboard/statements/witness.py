"""What statements know of a stream: heads that were signed, or that somebody kept elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dashboard.packs.verify import Statement as Given
from effects.models import Report
from runs.models import Run

from .models import SealKey, Statement, StatementKind
from .signing import Signed, key_id, told

AT_FIRST = timedelta(seconds=5)  # a key is known from the first version on that it signs; that is older
Named = tuple[str, int, str]  # stream, last line, head


@dataclass(frozen=True)
class Head:
    """A head that a statement holds for a line. `given`: the statement came from outside of the database."""

    who: str
    upto: int
    head: str
    given: bool = False


class Witness:
    """Statements of the database, each read once, and those that were given beside it."""

    def __init__(self, given: Sequence[Given] = ()) -> None:
        self.given = given
        self._days: dict[str, dict[str, list[Head]]] = {}
        self._false: dict[str, list[str]] = {}

    def heads(self, stream: str) -> Iterator[Head]:
        """What all of them hold for this stream."""
        for row in Statement.objects.filter(report__run=stream):
            yield from _heads(row, stream)
        yield from self._of_days(workspace_of(stream)).get(stream, [])
        for one in self.given:
            yield from (Head(one.where, upto, head, True) for name, upto, head in one.heads if name == stream)

    def wrong(self, stream: str) -> Iterator[str]:
        """Sentences about statements of this stream that were changed, or are gone."""
        for row in Statement.objects.filter(report__run=stream):
            if not is_genuine(row):
                yield f"{name_of(row)} was changed, or its signature was."
        yield from self.other_reports(stream)
        self._of_days(stream)
        yield from self._false.get(stream, [])
        first = SealKey.objects.order_by("since").first()
        if first is not None:
            reports = Report.objects.filter(run=stream, issued_at__gt=first.since - AT_FIRST, statement=None)
            for version in reports.values_list("version", flat=True):
                yield f"The statement of version {version} of the report is gone."

    def other_reports(self, stream: str) -> Iterator[str]:
        """Sentences about report versions of which a given statement names another digest."""
        for one in self.given:
            if one.report.get("run") == stream:
                kept = Report.objects.filter(run=stream, version=one.report.get("version") or 0)
                if not kept.filter(digest=one.report.get("digest")).exists():
                    yield f"{one.where} names another digest for version {one.report.get('version')}."

    def _of_days(self, workspace_id: str) -> dict[str, list[Head]]:
        if workspace_id not in self._days:
            found: dict[str, list[Head]] = {}
            for row in Statement.objects.filter(workspace=workspace_id, kind=StatementKind.DAILY):
                if not is_genuine(row):
                    self._false.setdefault(workspace_id, []).append(f"{name_of(row)} was changed.")
                for stream, upto, head in named_in(row.body):
                    found.setdefault(stream, []).append(Head(name_of(row), upto, head))
            self._days[workspace_id] = found
        return self._days[workspace_id]


def workspace_of(stream: str) -> str:
    run = Run.objects.filter(pk=stream).values_list("workspace_id", flat=True).first()
    return run or stream


def name_of(row: Statement) -> str:
    return f"The statement of {row.day}" if row.day else f"The statement {row.pk}"


def _heads(row: Statement, stream: str) -> Iterator[Head]:
    yield from (Head(name_of(row), upto, head) for name, upto, head in named_in(row.body) if name == stream)


def named_in(body: str) -> list[Named]:
    """The heads that a statement's text names; none where it can't be read."""
    try:
        return [(one["stream"], one["upto_seq"], one["head"]) for one in json.loads(body)["streams"]]
    except (ValueError, KeyError, TypeError):
        return []


def is_genuine(row: Statement) -> bool:
    """Whether the row is as it was signed; one that says that it is not signed has nothing to compare."""
    return bool(row.unsigned) or is_signed(told(row))


def is_signed(signed: Signed) -> bool:
    try:
        raw = base64.b64decode(signed.public, validate=True)
        Ed25519PublicKey.from_public_bytes(raw).verify(
            base64.b64decode(signed.signature, validate=True), signed.text.encode()
        )
    except (ValueError, InvalidSignature):
        return False
    return key_id(raw) == signed.key
