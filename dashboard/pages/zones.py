"""Time zones as a list to choose from: the person's and the workspace's usual ones first."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from zoneinfo import available_timezones

from runs.models import ScheduledStop

UTC, USUAL, LOOKED_AT = "UTC", 4, 50
OLD = ("Etc/", "US/", "Brazil/", "Canada/", "Chile/", "Mexico/", "SystemV/", "posix/", "right/")


@lru_cache
def by_region() -> list[tuple[str, list[str]]]:
    """Every zone that is named as Europe/Berlin is, under its region; old names are left out."""
    found = defaultdict(list)
    for zone in sorted(available_timezones()):
        if "/" in zone and not zone.startswith(OLD):
            found[zone.partition("/")[0]].append(zone)
    return list(found.items())


def usual(workspace_id: str, actor_id: str) -> list[str]:
    """Zones of the last planned stops here, this person's own first; UTC is always among them. One query."""
    rows = ScheduledStop.objects.filter(workspace_id=workspace_id).order_by("-pk")
    last = rows.values_list("actor", "zone")[:LOOKED_AT]
    found = [zone for _, zone in sorted(last, key=lambda row: row[0] != actor_id) if zone]
    return [*[zone for zone in dict.fromkeys(found) if zone != UTC][:USUAL], UTC]
