"""What is unknown, read from its rows: effects, deliveries and compensations alike, never a copy.

An unknown falls due `Kind.due_after` after it became one; people look at what is due first.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import (
    DateTimeField,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce

from runs import access
from runs.access import Actor, NotFound
from runs.models import Evidence, EvidencePayload, Press, Run, User, Workspace
from runs.problems import invalid
from runs.store import Now, after, database_time

from .deliveries import shown_target
from .models import Attachment, Care, Compensation, Delivery, Effect, Kind, Matter, Resolution

Row = Effect | Delivery | Compensation
MODELS: dict[str, type[Row]] = {
    Matter.EFFECT: Effect,
    Matter.DELIVERY: Delivery,
    Matter.COMPENSATION: Compensation,
}
PREFIX = {"eff": Matter.EFFECT, "dlv": Matter.DELIVERY, "cmp": Matter.COMPENSATION}
UNKNOWN, ACCEPTED = "UNKNOWN", "ACCEPTED_UNKNOWN"
BODIES = {Matter.EFFECT: ("body", "plan"), Matter.DELIVERY: ("body",), Matter.COMPENSATION: ("body",)}
RESOLVED_H = 24
LINES = 300
MOST = 1_000  # a count stops here
BY_IMPACT = 10_000  # so many are ordered by their amounts


@dataclass(frozen=True)
class Unknown:
    """One thing that is, or was, unknown. `row` is what it was read from; `kind` None: not registered.

    `state` and `why` are the row's; `due_at` None: it never was unknown. `asking`: somebody asks about it
    at this moment. `assignee` looks after it since `taken_at`.
    """

    matter: str
    id: str
    run: Run
    row: Row
    key: str
    kind: Kind | None
    kind_name: str
    op_class: str
    title: str
    target: str
    amount: str
    state: str
    ground: str
    contradicted: bool
    why: str
    attempt: int
    checks: int
    unknown_since: datetime | None
    settled_at: datetime | None
    due_at: datetime | None
    overdue: bool
    next_check_at: datetime | None
    check_until: datetime | None
    asking: bool
    assignee: User | None
    taken_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state == UNKNOWN


@dataclass(frozen=True)
class Wanted:
    """Which ones: by assignee (a user's id; 0: nobody's), overdue or not, kind, and who pressed a stop.

    `kind` is a kind's name, or "delivery". `stopped_by` is an actor's id. `due_before` a moment. `until` and
    `since`: what became unknown up to then, or later; so a list that somebody reads stays as it is.
    """

    assignee: int | None = None
    overdue: bool | None = None
    due_before: datetime | None = None
    kind: str = ""
    stopped_by: str = ""
    matter: str = ""
    run_id: str = ""
    until: datetime | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Said:
    """One answer so far: an evidence line about it. `payload` is as it was recorded."""

    seq: int
    at: datetime
    kind: str
    actor: str
    ground: str
    permit_id: str
    payload: dict[str, Any]


ANY = Wanted()
_FIGURE = re.compile(r"\d[\d.,'’ \u00a0\u202f]*")
_BEFORE_A_MARK = re.compile(r"[1-9]\d{0,2}(\.\d{3})*")  # what stands before a mark of thousands


def figure_of(amount: str) -> float:
    """The first number in an amount's text, to order by; 0: there is none. `1.200,50` is 1200.5."""
    found = _FIGURE.search(amount)
    digits = re.sub(r"['’\s]", "", found[0]).rstrip(".,") if found else ""
    whole, _, part = digits.replace(",", ".").rpartition(".")
    if len(part) == 3 and _BEFORE_A_MARK.fullmatch(whole):
        whole, part = whole + part, ""
    text = f"{whole.replace('.', '')}.{part}" if whole else part
    return float(text or 0)


# lists --------------------------------------------------------------------------------------------------


def open_in(
    workspace_ids: str | Iterable[str], wanted: Wanted = ANY, *, cursor: str = "", limit: int = 50
) -> tuple[list[Unknown], str | None]:
    """What is unknown now, what falls due first first; and the cursor after it (None: no more).

    Five queries, whatever their number.
    """
    after_this = _read(cursor) if cursor else None
    found: list[Any] = []
    for matter in _matters(wanted):
        rows = _open(matter, _ids(workspace_ids), wanted)
        if after_this is not None:
            due, pk = after_this
            rows = rows.filter(Q(due__gt=due) | Q(due=due, pk__gt=pk))
        found += [(row.due, row.pk, matter, row) for row in rows.order_by("due", "pk")[: limit + 1]]
    found.sort(key=lambda one: one[:2])
    shown, more = found[:limit], len(found) > limit
    told = _told([(matter, row) for _, _, matter, row in shown])
    return told, _cursor(*shown[-1][:2]) if more else None


def by_impact(workspace_id: str, wanted: Wanted = ANY, *, limit: int = 50, skip: int = 0) -> list[Unknown]:
    """As `open_in`, the largest amount first, then what falls due first; of the first BY_IMPACT."""
    light: list[Any] = []
    for matter in _matters(wanted):
        rows = _open(matter, [workspace_id], wanted).order_by("due", "pk")
        amount = F("amount") if matter != Matter.DELIVERY else Value("")
        pairs = rows.annotate(amounts=amount).values_list("amounts", "due", "pk")[:BY_IMPACT]
        light += [(-figure_of(said), due, pk, matter) for said, due, pk in pairs]
    chosen = [(matter, pk) for _, _, pk, matter in sorted(light)[skip : skip + limit]]
    rows_by = {
        row.pk: row
        for matter in {matter for matter, _ in chosen}
        for row in _rows(matter).filter(pk__in=[pk for one, pk in chosen if one == matter])
    }
    return _told([(matter, rows_by[pk]) for matter, pk in chosen if pk in rows_by])


class _Counted(Subquery):
    """How many rows a subquery has."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


def count(workspace_id: str, wanted: Wanted = ANY, most: int = MOST) -> int:
    """How many are unknown now; it stops counting at `most`. One query: every page asks."""
    rows = [_open(matter, [workspace_id], wanted).order_by().values("pk") for matter in _matters(wanted)]
    counted = [_Counted(some[:most]) for some in rows]
    found = Workspace.objects.filter(pk=workspace_id).values_list(*counted)
    return min(most, sum(sum(one) for one in found))


def just_resolved(workspace_id: str, *, hours: float = RESOLVED_H, limit: int = 50) -> list[Unknown]:
    """What was unknown and is known, or accepted as unknown, since so many hours; the newest first."""
    since = after(-hours * 3600)
    found: list[Any] = []
    for matter in MODELS:
        rows = _were(matter, workspace_id).filter(settled_at__gte=since).order_by("-settled_at", "-pk")
        found += [(row.settled_at, row.pk, matter, row) for row in rows[:limit]]
    found.sort(key=lambda one: one[:2], reverse=True)
    return _told([(matter, row) for _, _, matter, row in found[:limit]])


def last_resolved(workspace_id: str) -> Unknown | None:
    """What became known last, whenever that was."""
    newest: list[Any] = []
    for matter in MODELS:
        row = _were(matter, workspace_id).order_by("-settled_at", "-pk").first()
        newest += [(row.settled_at, row.pk, matter, row)] if row is not None else []
    newest.sort(key=lambda one: one[:2])
    return _told([newest[-1][2:]])[0] if newest else None


# one ------------------------------------------------------------------------------------------------------


def find(subject_id: str, actor: Actor, action: str = "read") -> Unknown:
    """The unknown, or what became of it, for those who may do this to its run; else NotFound, NotAllowed."""
    matter, row = row_of(subject_id)
    access.demand(actor, action, row.run)
    return _told([(matter, row)])[0]


def find_many(workspace_id: str, subject_ids: Iterable[str]) -> list[Unknown]:
    """Those of these that are in this workspace, which the caller may read; in their order. Five queries."""
    ids = list(dict.fromkeys(subject_ids))
    found: dict[str, Any] = {}
    for prefix, matter in PREFIX.items():
        mine = [pk for pk in ids if pk.startswith(prefix)]
        rows = _rows(matter).filter(pk__in=mine, run__workspace=workspace_id) if mine else ()
        found |= {row.pk: (matter, row) for row in rows}
    return _told([found[pk] for pk in ids if pk in found])


def row_of(subject_id: str) -> tuple[str, Row]:
    """What it is, and its row with run and kind as they stand now. Raises NotFound."""
    matter = PREFIX.get(subject_id[:3])
    row = _rows(matter).filter(pk=subject_id).first() if matter else None
    if matter is None or row is None:
        raise NotFound("unknown")
    return matter, row


def answers(unknown: Unknown, limit: int = LINES) -> list[Said]:
    """Every answer so far, as evidence has it, oldest first; of many the newest `limit`. Two queries."""
    lines = Evidence.objects.filter(stream=unknown.run.pk, effect_key=unknown.key)
    found = list(lines.order_by("-seq")[:limit])[::-1]
    bodies = EvidencePayload.objects.filter(stream=unknown.run.pk, seq__in=[one.seq for one in found])
    told = {seq: json.loads(body) if body else {} for seq, body in bodies.values_list("seq", "body")}
    return [
        Said(one.seq, one.at, one.kind, one.actor, one.ground, one.permit_id, told.get(one.seq, {}))
        for one in found
    ]


def resolutions(subject_id: str) -> list[Resolution]:
    """Every verdict on it, the newest first, with who gave it and who agreed."""
    rows = Resolution.objects.filter(subject_id=subject_id).select_related("person", "second", "supersedes")
    return list(rows.order_by("-number"))


def attachments(subject_id: str) -> list[Attachment]:
    """What people attached to it, oldest first, without the files' contents."""
    rows = Attachment.objects.filter(subject_id=subject_id).select_related("person").defer("content")
    return list(rows.order_by("pk"))


def state_of(row: Row) -> str:
    """Its settlement or state."""
    return str(row.settlement if isinstance(row, Effect) else row.state)


# overdue --------------------------------------------------------------------------------------------------


def overdue(limit: int = 200) -> list[str]:
    """Ids of unknowns past their due time of which nobody was told since they became unknown.

    Nobody is told of a drill, nor of what we gave up (abandoned).
    """
    found: list[Any] = []
    late = _late()
    for matter in MODELS:
        told = Care.objects.filter(subject_id=OuterRef("pk"), overdue_told_at__gte=OuterRef("unknown_since"))
        rows = _rows(matter).filter(late[matter], ~Exists(told), **_where(matter, UNKNOWN), run__drill=False)
        rows = rows.exclude(run__status="ABANDONED").order_by("unknown_since", "pk")
        found += rows.values_list("unknown_since", "pk")[:limit]
    return [pk for _, pk in sorted(found)[:limit]]


def _late() -> dict[str, Q]:
    """What is past its due time, by moments: a due time of each row could not be looked up in an index."""
    now, usual = database_time(), timedelta(seconds=settings.ALLSTOP_UNKNOWN_DUE_S)
    message = Q(unknown_since__lte=now - usual)
    sent = message & Q(kind__isnull=True)
    for span in Kind.objects.order_by().values_list("due_after", flat=True).distinct():
        sent |= Q(kind__due_after=span, unknown_since__lte=now - span)
    return {Matter.EFFECT: sent, Matter.DELIVERY: message, Matter.COMPENSATION: sent}


# queries --------------------------------------------------------------------------------------------------


def _rows(matter: str) -> QuerySet[Any, Any]:
    more = () if matter == Matter.DELIVERY else ("kind",)
    return MODELS[matter].objects.select_related("run", *more).defer(*BODIES[Matter(matter)])


def _due(matter: str) -> Any:
    """Its due time, as an expression."""
    usual = Value(timedelta(seconds=settings.ALLSTOP_UNKNOWN_DUE_S))
    span = usual if matter == Matter.DELIVERY else Coalesce(F("kind__due_after"), usual)
    return ExpressionWrapper(F("unknown_since") + span, output_field=DateTimeField())


def _where(matter: str, *states: str) -> dict[str, Any]:
    """One state is compared, not searched in a list: so its partial index is found (SQLite)."""
    name = "settlement" if matter == Matter.EFFECT else "state"
    return {name: states[0]} if len(states) == 1 else {f"{name}__in": states}


def _unknown(matter: str) -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = _rows(matter).filter(**_where(matter, UNKNOWN))
    due: QuerySet[Any, Any] = rows.annotate(due=_due(matter))
    return due


WAS: dict[str, tuple[str, ...]] = {
    Matter.EFFECT: ("CONFIRMED", "PARTIAL", "NOT_APPLIED", ACCEPTED),
    Matter.DELIVERY: ("HANDED_OVER", "NOT_HANDED_OVER", ACCEPTED),
    Matter.COMPENSATION: ("VERIFIED", "FAILED", ACCEPTED),
}


def _were(matter: str, workspace_id: str) -> QuerySet[Any, Any]:
    """What was unknown once, and is no more."""
    mine = {"run__workspace": workspace_id, "run__drill": False, "unknown_since__isnull": False}
    return _rows(matter).filter(**_where(matter, *WAS[matter]), **mine, settled_at__isnull=False)


def _open(matter: str, workspace_ids: Sequence[str], wanted: Wanted) -> QuerySet[Any, Any]:
    here = Run.objects.filter(pk=OuterRef("run_id"), workspace__in=workspace_ids, drill=False)
    rows = _unknown(matter).filter(Exists(here))  # what is unknown is few, beside the runs of a workspace
    for narrow in (_by_assignee, _by_due, _by_kind, _by_run):
        rows = narrow(rows, matter, wanted)
    return rows


def _by_assignee(rows: QuerySet[Any, Any], matter: str, wanted: Wanted) -> QuerySet[Any, Any]:
    if wanted.assignee is None:
        return rows
    mine = Care.objects.filter(subject_id=OuterRef("pk"), person__isnull=False)
    if wanted.assignee:
        return rows.filter(Exists(mine.filter(person_id=wanted.assignee)))
    return rows.filter(~Exists(mine))


def _by_due(rows: QuerySet[Any, Any], matter: str, wanted: Wanted) -> QuerySet[Any, Any]:
    if wanted.overdue is not None:
        rows = rows.filter(due__lte=Now()) if wanted.overdue else rows.filter(due__gt=Now())
    if wanted.until is not None:
        rows = rows.filter(unknown_since__lte=wanted.until)
    if wanted.since is not None:
        rows = rows.filter(unknown_since__gt=wanted.since)
    return rows if wanted.due_before is None else rows.filter(due__lt=wanted.due_before)


def _by_kind(rows: QuerySet[Any, Any], matter: str, wanted: Wanted) -> QuerySet[Any, Any]:
    return rows.filter(kind_name=wanted.kind) if wanted.kind and matter != Matter.DELIVERY else rows


def _by_run(rows: QuerySet[Any, Any], matter: str, wanted: Wanted) -> QuerySet[Any, Any]:
    if wanted.stopped_by:
        presses = Press.objects.filter(stop__run_id=OuterRef("run_id"), actor=wanted.stopped_by)
        rows = rows.filter(Exists(presses))
    return rows.filter(run_id=wanted.run_id) if wanted.run_id else rows


def _matters(wanted: Wanted) -> list[str]:
    chosen = [wanted.matter] if wanted.matter else list(MODELS)
    if not wanted.kind:
        return chosen
    one_is = {True: [Matter.DELIVERY], False: [Matter.EFFECT, Matter.COMPENSATION]}[wanted.kind == "delivery"]
    return [matter for matter in chosen if matter in one_is]


def _ids(workspace_ids: str | Iterable[str]) -> list[str]:
    return [workspace_ids] if isinstance(workspace_ids, str) else list(workspace_ids)


def _cursor(due: datetime, pk: str) -> str:
    return base64.urlsafe_b64encode(f"{due.isoformat()}|{pk}".encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[datetime, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, pk = text.partition("|")
        due = datetime.fromisoformat(moment)
        if due.tzinfo is None or pk[:3] not in PREFIX:
            raise ValueError(text)
    except (binascii.Error, ValueError) as error:
        raise invalid("cursor", "This is not a cursor of ours; leave it out to begin anew") from error
    return due, pk


# from row to Unknown --------------------------------------------------------------------------------------


def _told(rows: Sequence[tuple[str, Any]]) -> list[Unknown]:
    if not rows:
        return []
    ids = [row.pk for _, row in rows]
    cared = {one.pk: one for one in Care.objects.filter(pk__in=ids).select_related("person")}
    now = database_time()
    return [_one(matter, row, cared.get(row.pk), now) for matter, row in rows]


def _one(matter: str, row: Any, care: Care | None, now: datetime) -> Unknown:
    due = due_of(row)
    turn = getattr(row, "turn_until", None)
    is_unknown = state_of(row) == UNKNOWN
    return Unknown(
        matter=matter,
        id=row.pk,
        run=row.run,
        row=row,
        key=row.key,
        state=state_of(row),
        title=row.title,
        attempt=row.attempt,
        unknown_since=row.unknown_since,
        settled_at=row.settled_at,
        due_at=due,
        overdue=bool(is_unknown and due and due <= now),
        asking=bool(is_unknown and turn and turn > now),
        assignee=care.person if care else None,
        taken_at=care.taken_at if care else None,
        **_OF[matter](row),
    )


def due_of(row: Any) -> datetime | None:
    """When people should have looked at it; None: it never was unknown."""
    kind: Kind | None = getattr(row, "kind", None)
    span = kind.due_after if kind else timedelta(seconds=settings.ALLSTOP_UNKNOWN_DUE_S)
    since: datetime | None = row.unknown_since
    return since + span if since else None


def _of_sent(row: Any) -> dict[str, Any]:
    """What effects and compensations have alike."""
    same = ("kind", "kind_name", "op_class", "target", "amount", "ground", "checks")
    told = {name: getattr(row, name) for name in (*same, "next_check_at", "check_until")}
    was_settled = state_of(row) == UNKNOWN and bool(getattr(row, "contradicted", False))
    return {**told, "why": row.why_unknown, "contradicted": was_settled}


def _of_delivery(row: Delivery) -> dict[str, Any]:
    none = {"kind": None, "amount": "", "checks": 0, "next_check_at": None, "check_until": None}
    named = {"kind_name": "delivery", "op_class": "delivery", "target": shown_target(row)}
    was_settled = row.state == UNKNOWN and row.settled_at is not None
    return {**none, **named, "ground": row.ground or "", "why": row.detail, "contradicted": was_settled}


_OF: dict[str, Callable[[Any], dict[str, Any]]] = {
    Matter.EFFECT: _of_sent,
    Matter.DELIVERY: _of_delivery,
    Matter.COMPENSATION: _of_sent,
}
