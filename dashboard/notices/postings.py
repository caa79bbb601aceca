"""One notice for one receiver: whose turn it is, the schedule of its tries, and the log of them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, QuerySet

from runs.store import Now, after, verb

from .models import Attempt, Endpoint, Posting, PostingState

# Seconds to wait after each try that failed; after the last one it is given up: 8 tries within 23 hours.
BACK_OFF_S = (5, 60, 300, 1_800, 7_200, 21_600, 50_400)
TRIES = len(BACK_OFF_S) + 1
TAKEN_FOR_S = 60  # a sender that dies leaves its posting to the next one after this: it may come twice


@dataclass(frozen=True)
class Came:
    """What came of one try. `gone`: the receiver wants no more of them."""

    taken: bool
    detail: str
    status: int | None = None
    took_ms: int = 0
    gone: bool = False


def waiting() -> QuerySet[Posting]:
    """Those whose next try is due, oldest notice first."""
    rows = Posting.objects.filter(state=PostingState.WAITING, next_at__lte=Now())
    return rows.select_related("notice").order_by("notice_id", "pk")


def take(posting: Posting) -> bool:
    """Make this try ours: counted before it is made, so that none is forgotten."""
    mine = Posting.objects.filter(pk=posting.pk, state=PostingState.WAITING, next_at__lte=Now())
    return bool(mine.update(tries=F("tries") + 1, next_at=after(TAKEN_FOR_S)))


@verb
def note(posting_id: str, came: Came) -> Posting:
    """Keep what came of a try, and when the next one is; the endpoint's own count goes with it."""
    told = Posting.objects.values_list("endpoint_id", flat=True).get(pk=posting_id)
    # The endpoint before its postings, as whoever turns it off locks them.
    endpoint = Endpoint.objects.select_for_update(no_key=True).get(pk=told) if told else None
    row = Posting.objects.select_for_update(no_key=True).get(pk=posting_id)
    Attempt.objects.create(
        posting=row, taken=came.taken, status=came.status, detail=came.detail[:200], took_ms=came.took_ms
    )
    rows = Posting.objects.filter(pk=row.pk)
    if came.taken:
        rows.update(state=PostingState.SENT, settled_at=Now(), next_at=None)
    elif came.gone or row.tries >= TRIES:
        rows.update(state=PostingState.GIVEN_UP, settled_at=Now(), next_at=None)
    else:
        rows.update(next_at=after(BACK_OFF_S[max(row.tries, 1) - 1]))
    if endpoint is not None:
        _count(endpoint, came)
    return row


REST_S, LONGEST_REST_S = 5, 300


def _count(endpoint: Endpoint, came: Came) -> None:
    """A receiver that fails is left in peace for a while, with all that waits for it."""
    rows = Endpoint.objects.filter(pk=endpoint.pk)
    if came.taken:
        rows.update(failures=0, failing_since=None, rest_until=None)
        return
    rest = min(REST_S * 2 ** min(endpoint.failures, 10), LONGEST_REST_S)
    rows.update(failures=F("failures") + 1, rest_until=after(rest))
    rows.filter(failing_since__isnull=True).update(failing_since=Now())


def queue_again(posting: Posting) -> None:
    """Queue it once more, with the same id, from the start of its schedule. A move of a verb."""
    rows = Posting.objects.filter(pk=posting.pk)
    Endpoint.objects.filter(pk=posting.endpoint_id).update(rest_until=None)
    rows.update(state=PostingState.WAITING, tries=0, next_at=Now(), settled_at=None)
