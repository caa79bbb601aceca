"""record(): the only writer of evidence, in the transaction of what it tells of."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Max, OuterRef, Subquery
from django.db.models.functions import Coalesce

from . import redaction, wake
from .models import Evidence, EvidencePayload, Installation, Run, Seal, Workspace
from .rows import Each, insert
from .store import Now, database_time, verb


@dataclass(frozen=True)
class Line:
    """One line to be: `kind` is dotted past tense, `actor` an id, `payload` a JSON object."""

    kind: str
    actor: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    boundary: str = ""
    carried_version: int | None = None
    current_version: int | None = None
    ground: str = ""
    stop_id: str = ""
    step_id: str = ""
    permit_id: str = ""
    effect_key: str = ""
    worker: str = ""
    reported_at: datetime | None = None


COLUMNS = tuple(name for name in Line.__dataclass_fields__ if name != "payload")
# What an operator's log tells too, by ids alone: a body may hold what somebody typed.
log = logging.getLogger("allstop.runs")
LOGGED = ("stop.", "run.")
WARNINGS = frozenset({"stop.timed_out", "stop.deadline_forced"})
A_HINT = 50  # topics: their delivery has a second
AT_A_TIME = 2_000  # lines hashed under one lock: some tens of milliseconds
AT_ONCE = 500  # lines a statement: PostgreSQL ends a transaction that is silent for seconds


# What rooms above write beside lines of some kinds, in the same transaction; registered when they load.
Holder = Run | Workspace | Installation
Written = tuple[Holder, int, Line]  # a line, its seq, and the row in whose stream it stands
Listener = Callable[[Sequence[Written]], None]
_listeners: dict[str, list[Listener]] = {}


def listen(kinds: Iterable[str], listener: Listener) -> None:
    """Have `listener([(holder, seq, line), …])` called for lines of these kinds, under the holders' locks.

    It inserts rows of its own in one statement and no more: a stop waits for it. Registered once.
    """
    for kind in kinds:
        if listener not in _listeners.setdefault(kind, []):
            _listeners[kind].append(listener)


def _tell_listeners(written: Iterable[Written]) -> None:
    heard: dict[Listener, list[Written]] = {}
    for one in written:
        for listener in _listeners.get(one[2].kind, ()):
            heard.setdefault(listener, []).append(one)
    for listener, those in heard.items():
        listener(those)


def body_of(line: Line) -> str:
    """The body of a line as it is kept: without secrets, whoever wrote it."""
    return canonical(redaction.redact(line.payload)) if line.payload else ""


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str
    )


def digest(text: str | bytes) -> str:
    """SHA-256 of the bytes, in hex."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def record(holder: Holder, *lines: Line, last_seq: int | None = None) -> int:
    """Append lines to the stream of a row whose lock the caller holds; returns the last seq.

    The seq is given under that lock, so lines commit in order and no reader skips one.
    `last_seq` spares the query when the caller read it under the same lock.
    """
    if last_seq is None:
        last_seq = last_line(holder.pk)
    for start in range(0, len(lines), AT_ONCE):
        _append(holder.pk, last_seq + start, lines[start : start + AT_ONCE])
    _tell_listeners((holder, seq, line) for seq, line in enumerate(lines, last_seq + 1))
    seq = last_seq + len(lines)
    transaction.on_commit(partial(wake.poke, topics_of(holder), seq), robust=True)
    if logged := [line for line in lines if line.kind.startswith(LOGGED)]:
        transaction.on_commit(partial(_log, holder, logged), robust=True)
    return seq


def record_many(workspace_id: str, written: Sequence[tuple[Run, int, Sequence[Line]]]) -> None:
    """The same for many runs of one workspace whose locks the caller holds, each with its last seq.

    A few statements whatever their number. Pages of the workspace are told once, those of the runs by a hint
    for many; of each kind the log gets one event with the number of runs.
    """
    lines = [(run, seq, line) for run, last, some in written for seq, line in enumerate(some, last + 1)]
    at = database_time()
    for start in range(0, len(lines), AT_ONCE):
        _insert_alike(lines[start : start + AT_ONCE], at)
    _tell_listeners(lines)
    topics = [f"workspace:{workspace_id}:runs", *(f"run:{run.pk}" for run, _, _ in written)]
    for start in range(0, len(topics), A_HINT):
        transaction.on_commit(partial(wake.poke, topics[start : start + A_HINT], 0), robust=True)
    told = Counter(line.kind for _, _, line in lines if line.kind.startswith(LOGGED))
    transaction.on_commit(partial(_log_many, workspace_id, told), robust=True)


def _insert_alike(lines: Sequence[Written], at: datetime) -> None:
    """Lines of which most columns are alike."""
    bodies = [canonical(line.payload) if line.payload else "" for _, _, line in lines]
    alike = dict(zip(bodies, (line for _, _, line in lines), strict=True))
    clean = {raw: body_of(line) for raw, line in alike.items()}
    bodies = [clean[raw] for raw in bodies]
    digests = {body: digest(body) if body else "" for body in set(bodies)}
    place = {"stream": Each(holder.pk for holder, _, _ in lines), "seq": Each(seq for _, seq, _ in lines)}
    told = {name: Each(getattr(line, name) for _, _, line in lines) for name in COLUMNS}
    insert(Evidence, {**place, "at": at, "payload_digest": Each(digests[body] for body in bodies), **told})
    kept = [(holder.pk, seq, body) for (holder, seq, _), body in zip(lines, bodies, strict=True) if body]
    if kept:
        streams, seqs, texts = zip(*kept, strict=True)
        insert(EvidencePayload, {"stream": Each(streams), "seq": Each(seqs), "body": Each(texts)})


def _log_many(workspace_id: str, told: Mapping[str, int]) -> None:
    for kind, runs in told.items():
        log.info(kind, extra={"workspace": workspace_id, "runs": runs})


def _log(holder: Holder, lines: Sequence[Line]) -> None:
    """One event for each line, after the commit: what is logged has happened."""
    place: dict[str, Any] = {"workspace": holder.pk}
    if isinstance(holder, Run):
        place = {"run": holder.pk, "version": holder.cancel_version, "workspace": holder.workspace_id}
    for line in lines:
        level = logging.WARNING if line.kind in WARNINGS else logging.INFO
        fields = {**place, "stop": line.stop_id, "version": line.current_version or place.get("version")}
        log.log(level, line.kind, extra={name: value for name, value in fields.items() if value})


def _append(stream: str, last_seq: int, lines: Iterable[Line]) -> None:
    rows: list[Evidence] = []
    bodies: list[EvidencePayload] = []
    for seq, line in enumerate(lines, last_seq + 1):
        body = body_of(line)
        rows.append(
            Evidence(
                stream=stream,
                seq=seq,
                at=Now(),
                payload_digest=digest(body) if body else "",
                **{name: getattr(line, name) for name in COLUMNS},
            )
        )
        if body:
            bodies.append(EvidencePayload(stream=stream, seq=seq, body=body))
    Evidence.objects.bulk_create(rows)
    if bodies:
        EvidencePayload.objects.bulk_create(bodies)


def last_line(stream: str) -> int:
    """The newest seq of a stream (0 when empty); exact under the holder's lock."""
    return Evidence.objects.filter(stream=stream).aggregate(last=Max("seq"))["last"] or 0


def topics_of(holder: Holder) -> list[str]:
    """The pages' topics that a change of this row concerns."""
    if isinstance(holder, Run):
        return [f"run:{holder.pk}", f"workspace:{holder.workspace_id}:runs"]
    return [f"workspace:{holder.pk}:runs"]


def seal(holder: Holder, most: int | None = None) -> Seal | None:
    """Chain the stream's lines since its last seal, at most so many; the caller holds the row's lock."""
    last = Seal.objects.filter(stream=holder.pk).order_by("-upto_seq").first()
    lines = Evidence.objects.filter(stream=holder.pk, seq__gt=last.upto_seq if last else 0).order_by("seq")
    head, upto = last.head if last else "", 0
    for line in lines[:most] if most else lines.iterator():
        head, upto = chain(head, line), line.seq
    if not upto:
        return None
    return Seal.objects.create(stream=holder.pk, upto_seq=upto, head=head)


def chain(head: str, line: Evidence) -> str:
    """The next head: SHA-256 over the one before and each field with its length in front."""
    text = hashlib.sha256(b"\x00" + head.encode())
    for value in _fields(line):
        data = value.encode()
        text.update(len(data).to_bytes(8, "big") + data)
    return text.hexdigest()


def _fields(line: Evidence) -> Iterable[str]:
    yield line.stream
    yield str(line.seq)
    yield line.at.isoformat()
    yield line.payload_digest
    for name in COLUMNS:
        value = getattr(line, name)
        yield value.isoformat() if isinstance(value, datetime) else str(value)


def seal_stream(stream: str) -> Seal | None:
    """Seal one stream, AT_A_TIME lines under its row's lock: a stop waits for no more.

    Up to the line that is its last one now. Answers its newest seal, or None when nothing is new.
    """
    goal, newest = last_line(stream), None
    while (sealed := _seal_some(stream)) is not None:
        newest = sealed
        if sealed.upto_seq >= goal:
            break
    return newest


def _model_of(stream: str) -> Any:
    """Whose rows lock this stream: ids of runs and workspaces begin with what they are."""
    if stream.startswith("run_"):
        return Run
    return Workspace if "_" in stream else Installation


@verb
def _seal_some(stream: str) -> Seal | None:
    holder = _model_of(stream).objects.select_for_update(no_key=True).filter(pk=stream).first()
    return seal(holder, AT_A_TIME) if holder else None


def streams_to_seal(limit: int = 500) -> list[str]:
    """Streams with lines newer than their last seal."""
    newest = Seal.objects.aggregate(at=Max("at"))["at"]
    lines = Evidence.objects.all()
    if newest is not None:
        # a line may commit after a seal with a later clock: look back past the longest statement
        lines = lines.filter(at__gt=newest - timedelta(seconds=60))
    sealed = Seal.objects.filter(stream=OuterRef("stream")).order_by("-upto_seq").values("upto_seq")[:1]
    open_ones = (
        lines.values("stream")
        .annotate(top=Max("seq"), sealed=Coalesce(Subquery(sealed), 0))
        .filter(top__gt=F("sealed"))
    )
    return list(open_ones.order_by("stream").values_list("stream", flat=True)[:limit])


class Round:
    """Goes through all streams, a slice at a time, and begins again.

    It finds what the look at new lines missed: streams that could not be sealed within a minute, were
    too many for one pass when the process ended, or have lines from before the clock was set back.
    """

    SLICE = 500

    def __init__(self) -> None:
        self.after = ""

    def next(self) -> list[str]:
        """Of the next slice of streams, those with lines newer than their last seal."""
        rows = [row for model in (Installation, Run, Workspace) for row in self._rows(model)][: self.SLICE]
        self.after = rows[-1][0] if len(rows) == self.SLICE else ""
        return [stream for stream, top, sealed in rows if (top or 0) > (sealed or 0)]

    def _rows(self, model: type[Holder]) -> Iterable[tuple[str, int | None, int | None]]:
        lines = Evidence.objects.filter(stream=OuterRef("pk")).order_by("-seq").values("seq")[:1]
        seals = Seal.objects.filter(stream=OuterRef("pk")).order_by("-upto_seq").values("upto_seq")[:1]
        holders: Any = model.objects.filter(pk__gt=self.after).order_by("pk")
        rows = holders.annotate(top=Subquery(lines), sealed=Subquery(seals))
        return list(rows.values_list("pk", "top", "sealed")[: self.SLICE])
