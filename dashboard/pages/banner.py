"""What every page of a workspace says while its gate is shut: by whom, since when, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from dashboard import words
from dashboard.pages.facts import name_actors
from dashboard.restored import missing
from runs import gates
from runs.models import Gate, Restore, StopRequest, Workspace


@dataclass(frozen=True)
class Banner:
    """`head` in bold, then `says`. `link` names what the person can do there."""

    head: str
    says: str
    link: str
    number: int | None = None
    href: str = ""


def banner_of(workspace: Workspace | None, may: frozenset[str]) -> Banner | None:
    """None while the gate is open: no query is made then."""
    if workspace is None or workspace.gate != Gate.SHUT:
        return None
    stop = gates.standing_stops(workspace.pk).first()
    if stop is None:
        says = "Nobody recorded why. No run may start new work."
        form = reverse("stop-scope", query={"scope": "workspace", "id": workspace.pk})
        return Banner("The gate is shut", says, "Look at it", href=form)
    by_restore = stop.via == gates.RESTORED
    may_release = ("admin" if by_restore else "release") in may
    word = "Look at it" if not may_release else "Open…" if by_restore else "Release…"
    href = reverse("release-stop" if may_release else "stop-detail", args=[stop.pk])
    return Banner("The gate is shut.", _restored() if by_restore else _since(stop), word, stop.number, href)


def _since(stop: StopRequest) -> str:
    since, who = words.moment_utc(stop.recorded_at), words.clean(name_actors([stop.actor])[stop.actor])
    return f"Since {since}, by {who} (stop #{stop.number}). No run of this workspace may start new work."


def _restored() -> str:
    restore = Restore.objects.order_by("-pk").first()
    says = f"{missing(restore.taken_at, restore.restored_at)} " if restore else ""
    return f"{says}No run may start new work until an admin opens the gate."
