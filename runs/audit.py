"""What people and agents did besides what verbs change: refusals, sign-ins, exports; stops of single runs.

No request waits for a workspace's lock to leave its mark here, and no stop for such a mark: `note()` puts a
row down by itself, and a task takes the rows to the streams some seconds later, a few lines under a lock.
The same again is a count: a line at once, and another an hour later at the earliest, with how often by then;
of what was not refused a minute later.
What a flood brings beyond its room is counted in one row. A count is "at least": the process may die first.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F, Max, Min, Q, QuerySet

from .access import DRILLS
from .evidence import Line, canonical, digest, record
from .models import AuditNote, Installation, Membership, Press, Workspace
from .store import Now, no_waiting, verb

INSTALLATION = "installation"  # the stream of what belongs to no workspace
NOBODY = "nobody"  # the actor where nobody is known
MORE = "audit.more"
HELD_MOST, ROWS_MOST = 500, 1_000  # different marks: in one process, and on their way to one stream
QUIET_S = 5.0  # the same mark is put down once in so many seconds; meanwhile it is counted
LINE_EVERY, SOON = timedelta(hours=1), timedelta(minutes=1)  # of refusals; of what people did
A_PASS, AT_ONCE = 200, 100
LATE_MS = 60_000  # a press has its id so long before its commit at most


@dataclass(frozen=True)
class Mark:
    """What happened; `told` is canonical JSON. Two equal ones are the same again."""

    kind: str
    actor: str
    stream: str = ""
    person: int | None = None
    told: str = ""
    stop_id: str = ""

    @property
    def same(self) -> str:
        return digest(canonical([*vars(self).values()]))


class Held:
    """Marks of this process that are not put down yet, with how often, and when the others were."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[Mark, int] = {}
        self.put: dict[Mark, float] = {}

    def add(self, mark: Mark, times: int = 1) -> None:
        with self.lock:
            full = mark not in self.counts and len(self.counts) >= HELD_MOST
            mark = Mark(MORE, NOBODY, INSTALLATION) if full else mark
            self.counts[mark] = self.counts.get(mark, 0) + times

    def take(self) -> list[tuple[Mark, int]]:
        """Those that were not put down a moment ago; whoever takes them puts them down, or back."""
        now = time.monotonic()
        with self.lock:
            self.put = {mark: at for mark, at in self.put.items() if now - at < QUIET_S}
            due = [(mark, times) for mark, times in self.counts.items() if mark not in self.put]
            for mark, _ in due:
                del self.counts[mark]
                self.put[mark] = now
        return due

    def forget(self) -> None:
        """Begin anew."""
        with self.lock:
            self.counts, self.put = {}, {}


held = Held()


def note(
    kind: str,
    actor: str,
    *,
    stream: str = "",
    person: int | None = None,
    wait: bool = True,
    **told: Any,
) -> None:
    """Leave a mark. Never raises for the store's sake: what it does not take now is tried at the next mark.

    Without a `stream` it goes to the workspaces of `person`, or to the installation's stream where there
    are none. `told` holds ids and words of ours, nothing typed. `wait=False`: not even for the store's lock.
    """
    held.add(Mark(kind, actor, stream, person, canonical(told) if told else ""))
    flush(wait=wait)


def flush(*, wait: bool = True) -> None:
    """Put down what this process holds and is due."""
    due = held.take()
    try:
        with nullcontext() if wait or connection.vendor != "sqlite" else no_waiting():
            while due:
                with transaction.atomic():
                    keep(*due[-1])
                due.pop()
    except DatabaseError:
        for mark, times in due:
            held.add(mark, times)


def keep(mark: Mark, times: int = 1) -> None:
    """Put one mark down, or count it where it stands already, in the caller's transaction."""
    if _count(mark, times):
        return
    if mark.kind != MORE and AuditNote.objects.filter(stream=mark.stream).count() >= ROWS_MOST:
        mark = Mark(MORE, NOBODY, mark.stream or INSTALLATION)
        if _count(mark, times):
            return
    row = AuditNote(same=mark.same, count=times, **vars(mark))
    AuditNote.objects.bulk_create([row], ignore_conflicts=True)


def _count(mark: Mark, times: int) -> int:
    return AuditNote.objects.filter(same=mark.same).update(count=F("count") + times, last_at=Now())


# where it belongs ---------------------------------------------------------------------------------


def unplaced() -> list[int]:
    """Notes of which it is not known yet whose workspace they belong to."""
    return list(AuditNote.objects.filter(stream="").order_by("pk").values_list("pk", flat=True)[:A_PASS])


@verb
def place(note_id: int) -> None:
    """Give a note to each workspace that its person belongs to, or to the installation."""
    row = AuditNote.objects.select_for_update().filter(pk=note_id, stream="").first()
    if row is None:
        return
    mark = Mark(row.kind, row.actor, "", row.person, row.told, row.stop_id)
    for stream in homes_of(row.person):
        keep(replace(mark, stream=stream), row.count)
    row.delete()


def homes_of(person: int | None) -> list[str]:
    """The streams that tell of this person; everybody's drills are nobody's home."""
    if person is None:
        return [INSTALLATION]
    mine = Membership.objects.filter(user_id=person).exclude(workspace__slug=DRILLS)
    found = list(mine.order_by("workspace_id").values_list("workspace_id", flat=True)[:A_PASS])
    return found or [INSTALLATION]


# stops of single runs -----------------------------------------------------------------------------


def take_presses() -> None:
    """Note the presses of Stop whose lines stand in the streams of runs: found by their ids, not told of.

    Nothing of this is in a stop's transaction. Each press counts towards its stop, person and answer.
    """
    Installation.objects.get_or_create(pk=INSTALLATION)
    upto = Installation.objects.values_list("pressed_upto", flat=True).get(pk=INSTALLATION)
    newest = Press.objects.aggregate(pk=Max("pk"))["pk"] or ""
    fresh = Press.objects.filter(_is_fresh("pk", "at", upto), _of_a_run(), pk__lte=newest)
    stops = sorted(set(fresh.order_by().values_list("stop_id", flat=True)))
    for start in range(0, len(stops), A_PASS):
        _note_presses(stops[start : start + A_PASS], upto)
    Installation.objects.filter(pk=INSTALLATION, pressed_upto__lt=newest).update(pressed_upto=newest)


def _is_fresh(pk: str, at: str, upto: str) -> Q:
    """Not looked at yet, or perhaps: it may have been committed after a newer one. Notes live longer."""
    late = Q(**{f"{pk}__gt": _before(upto), f"{at}__gt": Now() - LINE_EVERY / 2})
    return Q(**{f"{pk}__gt": upto}) | late


def _of_a_run() -> Q:
    """Those of wider stops stand in the workspace's stream already; children's follow from a parent's."""
    single = Q(stop__scope__in=("run", "step"), stop__run__isnull=False)
    return single & Q(stop__scope_stop=None, parent_stop=None)


def _before(press_id: str) -> str:
    """An id as it was made a little earlier: ids begin with their millisecond, in 12 hex digits."""
    prefix, _, text = press_id.partition("_")
    return f"{prefix}_{max(0, int(text[:12], 16) - LATE_MS):012x}" if text else ""


def _note_presses(stops: list[str], upto: str) -> None:
    alike = ("stop__workspace_id", "stop_id", "stop__run_id", "stop__scope", "actor", "mode", "answer", "via")
    rows = Press.objects.filter(_of_a_run(), stop__in=stops).order_by().values(*alike)
    told = rows.annotate(n=Count("pk"), newest=Max("pk"), first=Min("at"), last=Max("at"))
    for row in told.filter(_is_fresh("newest", "last", upto)).order_by("first"):
        _set(row)


@verb
def _set(row: dict[str, Any]) -> None:
    told = {"run": row["stop__run_id"], "scope": row["stop__scope"]}
    told |= {name: row[name] for name in ("mode", "answer", "via")}
    mark = Mark(
        "stop.noted", row["actor"], row["stop__workspace_id"], None, canonical(told), stop_id=row["stop_id"]
    )
    moments = {"count": row["n"], "first_at": row["first"], "last_at": row["last"]}
    mine = AuditNote.objects.filter(same=mark.same)
    if not mine.filter(count__gte=row["n"]).exists() and not mine.update(**moments):
        AuditNote.objects.bulk_create(
            [AuditNote(same=mark.same, **vars(mark), **moments)], ignore_conflicts=True
        )


# into the streams ---------------------------------------------------------------------------------


def _due() -> QuerySet[AuditNote]:
    refused = Q(kind__endswith=".refused") | Q(kind__endswith="_failed") | Q(kind=MORE)
    late = Q(written=0) | Q(written_at__lt=Now() - LINE_EVERY) | ~refused & Q(written_at__lt=Now() - SOON)
    return AuditNote.objects.filter(late, count__gt=F("written")).exclude(stream="")


def due() -> list[str]:
    """Streams that have something to be written."""
    return list(_due().order_by("stream").values_list("stream", flat=True).distinct()[:A_PASS])


@verb
def write(stream: str) -> int:
    """Write the next lines of one stream, AT_ONCE at most under its lock; answers how many."""
    holder: Any = holder_of(stream)
    rows = list(_due().filter(stream=stream).order_by("pk")[:AT_ONCE]) if holder else []
    if rows:
        record(holder, *map(_line, rows))
        for row in rows:
            row.written = row.count
        AuditNote.objects.bulk_update(rows, ["written"])
        AuditNote.objects.filter(pk__in=[row.pk for row in rows]).update(written_at=Now())
    return len(rows)


def holder_of(stream: str) -> Workspace | Installation | None:
    """The row under whose lock a stream is written, locked."""
    if stream != INSTALLATION:
        return Workspace.objects.select_for_update(no_key=True).filter(pk=stream).first()
    Installation.objects.get_or_create(pk=INSTALLATION)
    return Installation.objects.select_for_update(no_key=True).get(pk=INSTALLATION)


def _line(row: AuditNote) -> Line:
    told = json.loads(row.told) if row.told else {}
    if row.person is not None and row.actor != f"user:{row.person}":
        told["person"] = f"user:{row.person}"
    told |= {"times": row.count, "first_at": row.first_at.isoformat(), "last_at": row.last_at.isoformat()}
    return Line(row.kind, row.actor, told, stop_id=row.stop_id)


def forget() -> int:
    """Delete notes that stand in their stream, and did not happen again for their time."""
    done = AuditNote.objects.filter(written__gte=F("count"), written_at__lt=Now() - LINE_EVERY)
    ids: Iterable[int] = list(done.order_by("pk").values_list("pk", flat=True)[:ROWS_MOST])
    return AuditNote.objects.filter(pk__in=ids, written__gte=F("count")).delete()[0] if ids else 0
