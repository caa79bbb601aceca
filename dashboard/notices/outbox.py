"""From what happened to who is told: the row beside the evidence line, and its fan-out.

`heard()` runs in the transaction of a stop, so it inserts one row and reads nothing. All else happens
later, in a task: a notice that nobody was told of is found again by its empty `told_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from effects import unknowns
from runs import wake
from runs.evidence import Line, Written, canonical
from runs.models import Membership, Run, StopRequest
from runs.rows import Each, insert
from runs.store import Now, database_time, new_id, verb

from .models import Endpoint, Event, NoMail, Notice, Posting, Subscription

EVENT_OF = {
    "stop.acknowledged": Event.STOP_RECORDED,
    "stop.waiting": Event.STOP_RECORDED,
    "step.stopped": Event.STOP_RECORDED,
    "gate.shut": Event.STOP_RECORDED,
    "stop.timed_out": Event.STOP_TIMED_OUT,
    "stop.closed": Event.STOP_CLOSED,
    "review.waiting": Event.REVIEW_WAITING,
    "unknown.overdue": Event.UNKNOWN_PAST_DUE,
}
TELL = "dashboard.tasks.tell"
A_PASS = 200
KEPT_FOR = timedelta(days=30)  # the log of their tries too; what happened stays in the evidence


def heard(told: Sequence[Written]) -> None:
    """Put the notices of these lines down in the lines' own transaction. Nobody is told of a drill."""
    written = [one for one in told if not getattr(one[0], "drill", False)]
    insert(
        Notice,
        {
            "id": Each(new_id("ntc") for _ in written),
            "workspace_id": Each(getattr(holder, "workspace_id", holder.pk) for holder, _, _ in written),
            "event": Each(str(EVENT_OF[line.kind]) for _, _, line in written),
            "run_id": Each(holder.pk if isinstance(holder, Run) else None for holder, _, _ in written),
            "stop_id": Each(line.stop_id for _, _, line in written),
            "subject": Each(_subject(line) for _, _, line in written),
            "seq": Each(seq for _, seq, _ in written),
        },
    )
    transaction.on_commit(partial(wake.run_soon, TELL), robust=True)


def _subject(line: Line) -> str:
    """What was unknown for too long; of all else, the run or the stop is named."""
    return str(line.payload.get("subject", "")) if line.kind == "unknown.overdue" else ""


# fan-out ---------------------------------------------------------------------------------------------------


def untold(limit: int = A_PASS) -> list[str]:
    """Notices that nobody was told of yet, oldest first."""
    return list(
        Notice.objects.filter(told_at__isnull=True).order_by("pk").values_list("pk", flat=True)[:limit]
    )


@verb
def fan_out(notice_id: str) -> None:
    """Queue a notice for each endpoint and person who asked for its event; again changes nothing."""
    rows = Notice.objects.select_for_update(no_key=True).filter(pk=notice_id, told_at__isnull=True)
    notice = rows.first()
    if notice is None:
        return
    postings = [Posting(notice=notice, endpoint=one, next_at=Now()) for one in _endpoints(notice)]
    postings += [Posting(notice=notice, user_id=one, next_at=Now()) for one in _people(notice)]
    Posting.objects.bulk_create(postings, batch_size=500)
    Notice.objects.filter(pk=notice.pk).update(told_at=Now(), body=body_of(notice))


def _endpoints(notice: Notice) -> list[Endpoint]:
    """Those in force that were there when it happened."""
    rows = Endpoint.objects.filter(
        workspace_id=notice.workspace_id, off_at__isnull=True, created_at__lte=notice.at
    )
    return [one for one in rows.order_by("pk") if notice.event in one.events]


def _people(notice: Notice) -> list[int]:
    """Members of the workspace who asked for this event by e-mail, and did not switch all of it off.

    Nobody gets ten thousand letters of one press: the letter of that stop is for its runs too.
    """
    if notice.event in (Event.STOP_RECORDED, Event.STOP_CLOSED) and _of_a_wider_one(notice):
        return []
    member = Membership.objects.filter(
        user_id=OuterRef("user_id"), workspace_id=notice.workspace_id, user__is_active=True
    )
    none = NoMail.objects.filter(pk=OuterRef("user_id"))
    rows = Subscription.objects.filter(Exists(member), ~Exists(none), workspace_id=notice.workspace_id)
    asked = rows.order_by("user_id").values_list("user_id", "events")
    return [user_id for user_id, events in asked if notice.event in events]


def _of_a_wider_one(notice: Notice) -> bool:
    """Whether its stop is that of one run, which came from a stop of a scope or of many runs."""
    return StopRequest.objects.filter(pk=notice.stop_id, scope_stop__isnull=False).exists()


def body_of(notice: Notice) -> str:
    """A CloudEvents 1.0 document: ids, status, versions and a link. No names, no bodies, no secrets."""
    return canonical(
        {
            "specversion": "1.0",
            "id": notice.pk,
            "source": f"/workspaces/{notice.workspace_id}",
            "type": f"allstop.{notice.event}",
            "time": notice.at.isoformat(),
            "subject": notice.stop_id or notice.subject or notice.run_id or notice.workspace_id,
            "datacontenttype": "application/json",
            "data": _data(notice),
        }
    )


def _data(notice: Notice) -> dict[str, Any]:
    """What is true of it now, which may be more than when it happened: `as_of` says when that was read."""
    run = Run.objects.filter(pk=notice.run_id).first()
    stop = StopRequest.objects.filter(pk=notice.stop_id).first()
    told: dict[str, Any] = {"workspace_id": notice.workspace_id, "url": link_to(notice)}
    told["as_of"] = database_time().isoformat()
    if run is not None:
        told |= {"run_id": run.pk, "run_status": run.status, "run_version": run.cancel_version}
    if stop is not None:
        told |= {"stop_id": stop.pk, "stop_number": stop.number, "stop_mode": stop.mode}
        told |= {"stop_scope": stop.scope, "scope_stop_id": stop.scope_stop_id}
        told |= {"stop_closed_because": stop.closed_because}
    if notice.subject:
        told |= {"unknown_id": notice.subject, "unknown_since": _iso(_since(notice))}
    return told


def _since(notice: Notice) -> Any:
    """When its subject became unknown last."""
    return notice.subject_at or unknowns.row_of(notice.subject)[1].unknown_since


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment else None


def link_to(notice: Notice) -> str:
    """Where a person reads more; it asks for the sign-in."""
    origin = settings.ALLSTOP_ORIGINS[0].rstrip("/") if settings.ALLSTOP_ORIGINS else ""
    if notice.subject:
        return f"{origin}/unknowns/{notice.subject}"
    if notice.run_id:
        return f"{origin}/runs/{notice.run_id}/"
    return f"{origin}/runs/"


def forget(most: int = 500) -> int:
    """Delete the oldest notices that are older than KEPT_FOR, with their log; how many rows went."""
    old = Notice.objects.filter(at__lt=database_time() - KEPT_FOR).order_by("at")
    ids = list(old.values_list("pk", flat=True)[:most])
    return Notice.objects.filter(pk__in=ids).delete()[0] if ids else 0
