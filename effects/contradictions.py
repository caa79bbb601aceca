"""When later evidence speaks against what is settled: the one place that decides it, and what follows."""

from __future__ import annotations

from runs.access import SYSTEM
from runs.evidence import Line, record
from runs.models import Run

from . import compensation_moves, reviews
from .models import Effect, Ground, Review, Settlement

SAYS: dict[str, str] = {
    "happened": Settlement.CONFIRMED,
    "partly": Settlement.PARTIAL,
    "did not happen": Settlement.NOT_APPLIED,
}
# In what a delivery and a compensation stand, as an effect would.
AS_EFFECT: dict[str, str] = {
    "HANDED_OVER": Settlement.CONFIRMED,
    "NOT_HANDED_OVER": Settlement.NOT_APPLIED,
    "VERIFIED": Settlement.CONFIRMED,
    "FAILED": Settlement.NOT_APPLIED,
}
RANK = {ground: place for place, ground in enumerate(("", *Ground.values))}  # weakest first
NEVER = (Settlement.NOT_APPLIED, Settlement.NOT_STARTED)
SETTLED = (Settlement.CONFIRMED, Settlement.PARTIAL, *NEVER)


def disagrees(stands: str, ground: str, says: str, by: str, *, later: bool = True) -> bool:
    """Whether evidence that `says` so (a key of SAYS), on the ground `by`, contradicts what is settled.

    `later`: it was asked for after the settlement, so that it can know of it. Presence needs no order: what
    was there at any time has happened. Nor does a person's decision: that makes nothing happen.
    """
    stands, claim = AS_EFFECT.get(stands, stands), SAYS.get(says)
    if claim is None or stands not in SETTLED or RANK[by] < RANK[ground]:
        return False
    if stands in NEVER:
        return claim != Settlement.NOT_APPLIED
    return claim != stands and (later or ground == Ground.DECIDED)


def bears_out(stands: str, ground: str, says: str, by: str) -> bool:
    """Whether evidence that `says` so, on the ground `by`, agrees with what a person decided. It stands on
    that from then on, so that no person alone corrects what a provider or a holder has said too.
    """
    claim = SAYS.get(says)
    agrees = claim is not None and AS_EFFECT.get(stands, stands) == claim
    return agrees and ground == Ground.DECIDED and RANK[by] > RANK[ground]


def follow(run: Run, was: str, effect: Effect) -> None:
    """After the lines are recorded: if what was settled is not what it was, no approval stands on it."""
    if was not in SETTLED or effect.settlement == was:
        return
    lines: list[Line] = []
    for review in Review.objects.filter(effect=effect, subject_id=effect.pk, closed_at__isnull=True):
        lines += reviews.refresh(review, run)
    for one in compensation_moves.undecided(run).filter(effect=effect):
        lines += reviews.void_compensation(run, one, "what it answers is in doubt again", SYSTEM.id)
    record(run, *lines)
