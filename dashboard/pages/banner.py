"""What every page of a workspace says while its gate is shut: by whom, since when, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard import words
from dashboard.pages.facts import name_actors
from dashboard.restored import missing
from runs import gates
from runs.models import Gate, Restore, Workspace


@dataclass(frozen=True)
class Banner:
    """`head` in bold, then `says`. `link` names what the person can do there."""

    head: str
    says: str
    link: str
    number: int | None = None


def banner_of(workspace: Workspace | None, may: frozenset[str]) -> Banner | None:
    """None while the gate is open: no query is made then."""
    if workspace is None or workspace.gate != Gate.SHUT:
        return None
    stop = gates.standing_stops(workspace.pk).first()
    if stop is None:
        return Banner("The gate is shut", "Nobody recorded why. No run may start new work.", "Look at it")
    since = words.moment_utc(stop.recorded_at)
    if stop.via == gates.RESTORED:
        restore = Restore.objects.order_by("-pk").first()
        says = f"{missing(restore.taken_at, restore.restored_at)} " if restore else ""
        says += "No run may start new work until an admin opens the gate."
        return Banner("The gate is shut.", says, "Open…" if "admin" in may else "Look at it", stop.number)
    who = words.clean(name_actors([stop.actor])[stop.actor])
    says = f"Since {since}, by {who} (stop #{stop.number}). No run of this workspace may start new work."
    return Banner("The gate is shut.", says, "Release…" if "release" in may else "Look at it", stop.number)
