"""A stop of many runs at once: one record with a frozen list of them, and a result for each.

The list is frozen with the press, in one transaction, which is the acknowledgement. It shuts no gate: each
run's own stop does, at its turn (runs/fanout.py). Nothing stands afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q

from . import fanout
from .access import Actor, NotAllowed, NotFound, rights
from .evidence import AT_ONCE, Line, canonical, record
from .fences import keep_parts
from .models import FINAL, Result, Run, ScopeKind, StopPart, StopRequest, Workspace
from .presses import (
    RESUMED,
    STRENGTH,
    StopAnswer,
    Wish,
    arrived,
    next_number,
    of_no_scope,
    pressed_before,
    record_press,
    wished,
)
from .store import database_time, stop_verb

NOT_HERE = "run_ids: {n} of them are no runs of this workspace"
NOT_KEPT = "selection: it holds characters that can't be kept"
Chosen = list[tuple[str, str, int | None]]  # id, status, owner


def request_bulk_stop(
    *,
    actor: Actor,
    workspace_id: str,
    wish: Wish,
    run_ids: Sequence[str],
    selection: Any = None,
    no_ids: int = 0,
) -> StopAnswer:
    """Stop these runs of a workspace; `selection` is the filter that chose them, as it was shown. `no_ids`:
    so many more were named by something that is no id.

    Once this returns, the list survives the death of every process. A run that this actor may not stop is
    on it as not permitted. Never refused for a formality. Raises NotFound for outsiders and where none of
    the ids is a run of the workspace, NotAllowed where none of them may be stopped by this actor.
    """
    key, wish = wish.key or secrets.token_hex(16), of_no_scope(arrived(wish))
    if "\\u0000" in canonical(selection):
        selection, wish = None, replace(wish, ignored=[*wish.ignored, NOT_KEPT])
    chosen = Named(sorted(set(run_ids)), selection, no_ids)
    return fanout.carried_on(_freeze(actor, workspace_id, wish, key, chosen))


@dataclass(frozen=True)
class Named:
    """What a press names: ids of runs, the filter that chose them, and how many that are no ids."""

    run_ids: list[str]
    selection: Any
    no_ids: int


@stop_verb
def _freeze(actor: Actor, workspace_id: str, wish: Wish, key: str, named: Named) -> StopAnswer:
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    allowed = rights(actor, workspace_id)
    if workspace is None or not allowed:
        raise NotFound("workspace")
    mine = Q(stop__workspace=workspace, stop__scope=ScopeKind.BULK)
    again = pressed_before(actor, key, mine, wish.mode, moves=False)
    chosen = [row for some in _slices(named.run_ids) for row in _rows(workspace_id, some)]
    if again is not None and _covers(again.stop, wish, [pk for pk, _, _ in chosen], named):
        return again
    results = {pk: _at_first(actor, allowed, status, owner) for pk, status, owner in chosen}
    _demand_some(results)
    if not_here := len(named.run_ids) + named.no_ids - len(chosen):
        wish = replace(wish, ignored=[*wish.ignored, NOT_HERE.format(n=not_here)])
    stop = _record(workspace, actor, wish, results, named.selection)
    record(workspace, _line(stop, actor, wish))
    return StopAnswer(stop, record_press(stop, actor, wish, key, "recorded"))


def _covers(stop: StopRequest, wish: Wish, run_ids: Sequence[str], named: Named) -> bool:
    """Whether the stop of an earlier press by this key is the answer to this one: as strong, each of these
    runs on its list, none resumed since. A press that names no run is known by its filter.
    """
    if STRENGTH[wish.mode] > STRENGTH[stop.mode]:
        return False
    if not named.run_ids:
        return bool(stop.selection == named.selection)
    parts = StopPart.objects.filter(stop=stop).exclude(run_stop__closed_because=RESUMED)
    return sum(parts.filter(run__in=some).count() for some in _slices(run_ids)) == len(run_ids)


def _slices(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(run_ids), AT_ONCE):
        yield run_ids[start : start + AT_ONCE]


def _rows(workspace_id: str, run_ids: Sequence[str]) -> Chosen:
    rows = Run.objects.filter(workspace_id=workspace_id, pk__in=run_ids).order_by("pk")
    return list(rows.values_list("pk", "status", "owner_id"))


def _at_first(actor: Actor, allowed: frozenset[str], status: str, owner_id: int | None) -> str:
    """What is known of a run when the list is frozen; a final status never changes."""
    owns = actor.user is not None and owner_id == actor.user.pk
    bound = actor.token is not None and actor.token.run_id is not None
    if bound or not ("stop" in allowed or owns):
        return Result.NOT_PERMITTED
    return Result.FINISHED if status in FINAL else Result.PENDING


def _demand_some(results: dict[str, str]) -> None:
    if not results:
        raise NotFound("run")
    if set(results.values()) == {Result.NOT_PERMITTED}:
        raise NotAllowed("stop")


def _record(
    workspace: Workspace, actor: Actor, wish: Wish, results: dict[str, str], selection: Any
) -> StopRequest:
    now = database_time()
    stop = StopRequest.objects.create(
        workspace=workspace,
        number=next_number(workspace.pk),
        scope=ScopeKind.BULK,
        run_key="",
        selection=selection,
        runs_n=len(results),
        **wished(actor, wish, now),
    )
    keep_parts(stop, list(results), list(results.values()), [None] * len(results), None)
    return stop


def _line(stop: StopRequest, actor: Actor, wish: Wish) -> Line:
    told = {
        "mode": wish.mode,
        "requested_mode": wish.requested_mode,
        "reason": wish.reason,
        "note": wish.note,
        "ignored": wish.ignored,
        "runs": stop.runs_n,
        "selection": stop.selection,
    }
    return Line("stop.acknowledged", actor.id, told, stop_id=stop.pk)
