"""Sends notices to endpoints: one sender an endpoint, outside any transaction, under the outbound rules.

A dead endpoint costs nobody but itself: it is asked once, then rests, and its tries are its own.
"""

from __future__ import annotations

import time

from django.db.models import Exists, OuterRef, Q, QuerySet

from effects import outbound, signing
from runs.access import SYSTEM
from runs.evidence import Line, record
from runs.models import Workspace
from runs.store import Now, after, database_time, verb

from .models import Endpoint, Posting, PostingState
from .postings import Came, note, take, waiting

PASS_S = 10.0  # a sender asks nobody anew after this
HELD_S = 30  # a sender that dies gives its endpoint back after this
OFF_AFTER, OFF_AFTER_S = 10, 86_400  # so many failed tries in a row, over at least so long, turn it off
GONE = 410


def due(limit: int = 200) -> list[str]:
    """Endpoints with a posting whose next try is due, which nobody serves and which do not rest."""
    mine = Posting.objects.filter(endpoint=OuterRef("pk"), state=PostingState.WAITING, next_at__lte=Now())
    return list(_free().filter(Exists(mine)).values_list("pk", flat=True)[:limit])


def _free() -> QuerySet[Endpoint]:
    idle = Q(busy_until__isnull=True) | Q(busy_until__lte=Now())
    rested = Q(rest_until__isnull=True) | Q(rest_until__lte=Now())
    return Endpoint.objects.filter(idle, rested, off_at__isnull=True)


def send_due(endpoint_id: str) -> int:
    """Send what is due, oldest first, until one try fails; how many were taken."""
    if not _free().filter(pk=endpoint_id).update(busy_until=after(HELD_S)):
        return 0
    taken, end = 0, time.monotonic() + PASS_S
    try:
        while time.monotonic() < end and _send_next(endpoint_id):
            taken += 1
    finally:
        Endpoint.objects.filter(pk=endpoint_id).update(busy_until=None)
    return taken


def _send_next(endpoint_id: str) -> bool:
    """One try; False when nothing is due or it was not taken. The endpoint is read anew each time."""
    posting = waiting().filter(endpoint_id=endpoint_id).first()
    endpoint = Endpoint.objects.filter(pk=endpoint_id, off_at__isnull=True).first()
    if posting is None or endpoint is None or not take(posting):
        return False
    came = send(endpoint, posting)
    note(posting.pk, came)
    if not came.taken:
        turn_off_if_dead(endpoint_id, gone=came.gone)
    return came.taken


def send(endpoint: Endpoint, posting: Posting) -> Came:
    """One signed request, and what came of it. Never raises for what a receiver does."""
    began = time.monotonic()
    try:
        status: int | None = outbound.call(_request(endpoint, posting)).status
        detail = f"answered {status}"
    except (outbound.Refused, outbound.NoConnection, outbound.NoAnswer, signing.Unreadable) as error:
        status, detail = None, _said(error)
    took = int((time.monotonic() - began) * 1000)
    taken = status is not None and 200 <= status < 300
    return Came(taken, detail, status, took, gone=status == GONE)


def _said(error: Exception) -> str:
    return signing.Unreadable.__doc__ or "" if isinstance(error, signing.Unreadable) else str(error)


def _request(endpoint: Endpoint, posting: Posting) -> outbound.Request:
    body = posting.notice.body.encode()
    at = int(database_time().timestamp())
    headers = signing.headers(posting.notice_id, at, body, in_force(endpoint))
    headers["Content-Type"] = "application/cloudevents+json"
    return outbound.Request("POST", endpoint.url, headers, body)


def in_force(endpoint: Endpoint) -> list[str]:
    """The endpoint's secrets that sign now, the newest first. Raises Unreadable when there is none."""
    found = signing.in_force(endpoint.secrets, database_time())
    if not found:
        raise signing.Unreadable
    return found


@verb
def turn_off_if_dead(endpoint_id: str, *, gone: bool = False) -> bool:
    """Turn an endpoint off that wants no more, or that failed for long, and leave a line. True if it is."""
    workspace_id = Endpoint.objects.values_list("workspace_id", flat=True).get(pk=endpoint_id)
    dead = Q(failures__gte=OFF_AFTER, failing_since__lte=after(-OFF_AFTER_S))
    rows = Endpoint.objects.filter(Q() if gone else dead, pk=endpoint_id, off_at__isnull=True)
    if not rows.exists():
        return False
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    because = "it answered 410, gone" if gone else f"{OFF_AFTER} tries or more failed over a day"
    if not rows.update(off_at=Now(), off_because=because):
        return False
    give_up_waiting(endpoint_id)
    record(workspace, Line("endpoint.turned_off", SYSTEM.id, {"endpoint": endpoint_id, "because": because}))
    return True


def give_up_waiting(endpoint_id: str) -> None:
    """What waits for an endpoint that is off is given up; a person may have it sent again."""
    rows = Posting.objects.filter(endpoint_id=endpoint_id, state=PostingState.WAITING)
    rows.update(state=PostingState.GIVEN_UP, settled_at=Now(), next_at=None)
