"""What is kept no longer: bodies and logs that a workspace's rules let go, after so many days.

Lines of evidence, their digests, seals and issued reports are never touched: each line says that its body was
removed, when and under which rule, and the chain stays as it was. Only runs count that ended and in which
nothing is open any more. Batches are small transactions of their own; a pass that dies is gone on with by
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from dashboard.notices.models import Notice, Posting, PostingState
from effects.models import (
    Attachment,
    Compensation,
    CompensationState,
    Delivery,
    DeliveryState,
    Effect,
    Inbound,
    Resolution,
    Settlement,
)
from runs import rules
from runs.access import SET_UP
from runs.evidence import Line, record
from runs.models import (
    FINAL,
    Evidence,
    EvidencePayload,
    Permit,
    PermitState,
    Refusal,
    Run,
    StopRequest,
    Turn,
    Workspace,
)
from runs.store import Now, verb

AT_ONCE = 500  # rows of one transaction
DAY = timedelta(days=1)
S, C, D = Settlement, CompensationState, DeliveryState
OPEN_EFFECTS = (S.DECLARED, S.DISPATCHED, S.UNKNOWN)
OPEN_REPAIRS = (C.PROPOSED, C.APPROVED, C.DISPATCHED, C.UNKNOWN)
OPEN_MESSAGES = (D.QUEUED, D.HELD, D.DISPATCHED, D.UNKNOWN)
OPEN_PERMITS = (PermitState.OPEN, PermitState.LOST)

TELLING = ("retention.applied", "person.erased")  # lines that tell of what went keep what they tell

Rows = QuerySet[Any]


def settled_runs(workspace_id: str, before: datetime) -> QuerySet[Run]:
    """Runs that ended before this moment and in which nothing is open: no effect, message, call or stop."""
    of_it: dict[str, Any] = {"run": OuterRef("pk")}
    return Run.objects.filter(
        ~Exists(Effect.objects.filter(**of_it, settlement__in=OPEN_EFFECTS)),
        ~Exists(Delivery.objects.filter(**of_it, state__in=OPEN_MESSAGES)),
        ~Exists(Compensation.objects.filter(**of_it, state__in=OPEN_REPAIRS)),
        ~Exists(Permit.objects.filter(**of_it, state__in=OPEN_PERMITS)),
        ~Exists(Resolution.objects.filter(**of_it, in_force_at__isnull=True, withdrawn_at__isnull=True)),
        ~Exists(StopRequest.objects.filter(**of_it, closed_at__isnull=True)),
        workspace_id=workspace_id,
        status__in=FINAL,
        ended_at__lt=before,
    )


@dataclass(frozen=True)
class Kept:
    """Something that a rule can let go: `rows` of it that may go now, and how they go."""

    name: str
    label: str
    rows: Callable[[str, datetime], Rows]
    let_go: Callable[[Rows, list[Any], str], int]


def _emptied(**columns: Any) -> Callable[[Rows, list[Any], str], int]:
    """Rows stay, what they hold goes."""

    def let_go(rows: Rows, keys: list[Any], under: str) -> int:
        told = {"removed_at": Now(), "removed_under": under} if "removed" in columns else {}
        held = {name: value for name, value in columns.items() if name != "removed"}
        return int(rows.model._default_manager.filter(pk__in=keys).update(**held, **told))

    return let_go


def _deleted(rows: Rows, keys: list[Any], under: str) -> int:
    model = rows.model
    _, told = model._default_manager.filter(pk__in=keys).delete()
    return int(told.get(model._meta.label, 0))


def _bodies(workspace_id: str, before: datetime) -> Rows:
    """Bodies of lines of settled runs; and older ones of the workspace, but of stops that are open."""
    line = Evidence.objects.filter(stream=OuterRef("stream"), seq=OuterRef("seq"))
    stops = StopRequest.objects.filter(workspace_id=workspace_id, closed_at__isnull=True).values("pk")
    older = Exists(line.filter(at__lt=before).exclude(kind__in=TELLING).exclude(stop_id__in=stops))
    mine = Q(stream__in=settled_runs(workspace_id, before).values("pk")) | Q(older, stream=workspace_id)
    return EvidencePayload.objects.filter(mine, removed_at__isnull=True)


def _attachments(workspace_id: str, before: datetime) -> Rows:
    return Attachment.objects.filter(run__in=settled_runs(workspace_id, before), removed_at__isnull=True)


def _turns(workspace_id: str, before: datetime) -> Rows:
    return Turn.objects.filter(permit__run__in=settled_runs(workspace_id, before)).exclude(output="")


def _refusals(workspace_id: str, before: datetime) -> Rows:
    closed = Q(stop__isnull=True) | Q(stop__closed_at__isnull=False)
    ended = Q(run__in=settled_runs(workspace_id, before)) | Q(run__isnull=True, last_at__lt=before)
    return Refusal.objects.filter(closed, ended, workspace_id=workspace_id)


def _webhooks(workspace_id: str, before: datetime) -> Rows:
    rows = Inbound.objects.filter(account__workspace_id=workspace_id, received_at__lt=before)
    open_ones = Effect.objects.filter(pk=OuterRef("subject_id"), settlement__in=OPEN_EFFECTS)
    return rows.exclude(became="waiting").exclude(body="").exclude(Exists(open_ones))


def _notices(workspace_id: str, before: datetime) -> Rows:
    waiting = Posting.objects.filter(notice=OuterRef("pk"), state=PostingState.WAITING)
    told = Notice.objects.filter(workspace_id=workspace_id, at__lt=before, told_at__isnull=False)
    return told.exclude(Exists(waiting))


KEPT = (
    Kept("evidence", "Bodies of evidence lines", _bodies, _emptied(body="", removed=True)),
    Kept("attachments", "What people attached", _attachments, _emptied(text="", content=b"", removed=True)),
    Kept("turns", "Outputs of model turns", _turns, _emptied(output="", output_kept=False)),
    Kept("refusals", "Refusals", _refusals, _deleted),
    Kept("webhooks", "Webhooks that were received", _webhooks, _emptied(body="")),
    Kept("notices", "Notices and their log", _notices, _deleted),
)


@dataclass(frozen=True)
class Due:
    """How many rows of something a rule lets go now. `days` None: kept for good."""

    name: str
    label: str
    days: int | None
    rows: int


def due(workspace_id: str, now: datetime | None = None) -> list[Due]:
    """What would go from a workspace, by its rules: one count each; nothing is changed."""
    standing = rules.rules_of(workspace_id).retention
    return [_due(workspace_id, kept, getattr(standing, kept.name), now or timezone.now()) for kept in KEPT]


def _due(workspace_id: str, kept: Kept, days: int | None, now: datetime) -> Due:
    rows = kept.rows(workspace_id, now - days * DAY).count() if days else 0
    return Due(kept.name, kept.label, days, rows)


def apply(workspace_id: str, now: datetime | None = None, most: int = AT_ONCE) -> Iterator[tuple[str, int]]:
    """Let it go, batch by batch: (what, how many rows) after each. Stop anywhere; call again to go on."""
    standing = rules.standing(workspace_id)
    for kept in KEPT:
        days = getattr(standing.rules.retention, kept.name)
        if days is None:
            continue
        before = (now or timezone.now()) - days * DAY
        under = f"rules {standing.version}: {kept.label.lower()} kept {days} days"
        while gone := _batch(workspace_id, kept, before, under, most):
            yield kept.name, gone


@verb
def _batch(workspace_id: str, kept: Kept, before: datetime, under: str, most: int) -> int:
    """One batch and the line that says so, under the workspace's lock. 0: nothing is left to go."""
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        return 0
    rows = kept.rows(workspace_id, before)
    keys = list(rows.order_by("pk").values_list("pk", flat=True)[:most])
    gone = kept.let_go(rows, keys, under) if keys else 0
    if gone:
        told = {"what": kept.name, "rows": gone, "under": under, "before": before.isoformat()}
        record(workspace, Line("retention.applied", SET_UP.id, told))
    return gone


def sessions_over(now: datetime | None = None) -> Rows:
    """Sign-in sessions that are over, of the whole installation."""
    from django.contrib.sessions.models import Session

    return Session.objects.filter(expire_date__lt=now or timezone.now())


def end_sessions(most: int = AT_ONCE) -> int:
    """Delete those, `most` at a time."""
    with transaction.atomic(durable=True):
        keys = list(sessions_over().values_list("pk", flat=True)[:most])
        return _deleted(sessions_over(), keys, "")
