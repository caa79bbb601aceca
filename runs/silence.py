"""Silent runs: where the rules of a workspace say so, a stop is recorded for them. Silence proves nothing."""

from __future__ import annotations

from . import stops
from .access import SYSTEM
from .models import Mode, RulesRow, Run, RunStatus
from .presses import StopAnswer, Wish
from .receipts import is_silent
from .rules import rules_of

NOTE = "Nothing was heard of it for {seconds} s. The rules of its workspace record a stop then."


def due(limit: int = 200) -> list[str]:
    """Active runs of which nothing is heard, in workspaces that want a stop recorded for them."""
    wanted = list(RulesRow.objects.filter(body__silent_stop__in=Mode.values).values_list("pk", flat=True))
    if not wanted:
        return []
    rows = Run.objects.filter(is_silent(), status=RunStatus.ACTIVE, workspace_id__in=wanted)
    return list(rows.order_by("silent_at").values_list("pk", flat=True)[:limit])


def record_stop(run_id: str) -> StopAnswer | None:
    """The stop that the rules want for this run; once for each version, however often it is asked for.

    None when it is silent no longer, or the rules want none any more.
    """
    run = Run.objects.filter(is_silent(), pk=run_id, status=RunStatus.ACTIVE).first()
    mode = rules_of(run.workspace_id).silent_stop if run is not None else None
    if run is None or mode is None:
        return None
    note, key = NOTE.format(seconds=run.silent_after_s), f"silence:{run.pk}:{run.cancel_version}"
    return stops.request_stop(actor=SYSTEM, wish=Wish(mode=mode, note=note, key=key), run_id=run.pk)
