"""Halts of compensations: set by a stop of a scope, lifted by a reviewer.

A halt is set in the transaction that shuts the gate. Whoever opens a permit for a compensation holds its
workspace, as a stop of a scope does: it comes before the stop, and is listed, or after it, and is refused.
Releasing the stop lifts nothing; a person does, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from django.db import transaction
from django.db.models import Q, QuerySet

from . import policies, wake
from .access import Actor, NotAllowed, NotFound, demand_workspace
from .evidence import Line, record
from .models import Gate, Halt, InFlight, Permit, PermitState, Policy, Reach, Run, StopRequest, Workspace
from .saying import words_in
from .store import Now, verb

COMPENSATE = "compensate"  # under which guard the permit of a compensation was given
TOLD = 100  # keys that are named in the line of a halt

Kinds = Sequence[tuple[str, str]]  # names of kinds, each with its class
About = Callable[[Permit], Kinds]


class NoReason(ValueError):
    """Lifting a halt is a decision: say why compensations may start again. Nothing was changed."""


# reading ------------------------------------------------------------------------------------------


def in_force(workspace_id: str) -> list[Halt]:
    """The halts of a workspace that nobody lifted, oldest first."""
    rows = Halt.objects.filter(workspace_id=workspace_id, lifted_at__isnull=True)
    return list(rows.select_related("policy", "session", "stop").order_by("pk"))


def over(run: Run, kinds: Kinds) -> Halt | None:
    """The oldest halt that keeps a compensation of this run from starting, if any.

    `kinds`: names and classes of the compensation and of the effect that it answers.
    """
    return any_over(in_force(run.workspace_id), run, kinds)


def any_over(standing: Sequence[Halt], run: Run, kinds: Kinds) -> Halt | None:
    """The same among halts that were read before."""
    return next((halt for halt in standing if _covers(halt, run, kinds)), None)


def _covers(scope: Halt | StopRequest, run: Run, kinds: Kinds) -> bool:
    if scope.session_id is not None:
        return scope.session_id == run.session_id
    if scope.policy is None:
        return True
    if not policies.matches(policies.match_of(scope.policy), run.labels):
        return False
    return any(policies.holds(scope.policy, *one, sends=True) for one in [*kinds, ("", "")])


def shut_for_kinds(run: Run, kinds: Kinds) -> Policy | None:
    """The shut policy of effects that withholds one of these; scopes of whole runs are a halt's business."""
    mine = policies.over(run.workspace_id, run.labels, reach=Reach.EFFECTS)
    shut = [policy for policy in mine if policy.gate == Gate.SHUT]
    return next((p for p in shut if any(policies.holds(p, *one, sends=True) for one in kinds)), None)


# set by a stop ------------------------------------------------------------------------------------


_about: list[About] = []


def tell_kinds(about: About) -> None:
    """Have `about(permit)` name what a compensation answers, by kind and class; registered once."""
    if about not in _about:
        _about.append(about)


def kinds_of(permit: Permit) -> Kinds:
    """Names and classes of a compensation and of what it answers."""
    return [(permit.kind, permit.op_class), *(one for about in _about for one in about(permit))]


def set_halt(stop: StopRequest) -> list[Line]:
    """Under the locks of the stop's gate: no compensation starts in its scope from its commit on.

    What has a permit already is listed among what was in flight. One halt stands for each scope.
    """
    flying = _flying(stop)
    listed = (InFlight(stop=stop, permit=one, state_then=one.state) for one in flying)
    InFlight.objects.bulk_create(listed, batch_size=500)
    return set_anew(stop, flying)


def set_anew(stop: StopRequest, flying: Sequence[Permit] | None = None) -> list[Line]:
    """The same for a press that joins a stop whose halt was lifted: its list is frozen, the line has keys."""
    mine = {"workspace_id": stop.workspace_id, "session_id": stop.session_id, "policy_id": stop.policy_id}
    if Halt.objects.filter(lifted_at__isnull=True, **mine).exists():
        return []
    halt = Halt.objects.create(stop=stop, **mine)
    keys = [one.effect_key for one in (_flying(stop) if flying is None else flying)]
    told = {"halt": halt.pk, "in_flight": keys[:TOLD], "in_flight_n": len(keys)}
    return [Line("compensations.halted", stop.actor, told, stop_id=stop.pk)]


def _flying(stop: StopRequest) -> list[Permit]:
    """Permits of compensations under this scope of which nobody said yet that their call is over."""
    states = [PermitState.OPEN, PermitState.LOST]
    rows = _permits(stop).filter(state__in=states).select_related("run").order_by("pk")
    found: list[Permit] = list(rows)
    if not found or stop.policy is None:
        return found
    return [one for one in found if _covers(stop, one.run, kinds_of(one))]


def _permits(stop: StopRequest) -> QuerySet[Permit]:
    rows: QuerySet[Permit] = Permit.objects.filter(guard=COMPENSATE, run__workspace=stop.workspace_id)
    return rows.filter(run__session=stop.session_id) if stop.session_id else rows


# lifted by a reviewer -----------------------------------------------------------------------------


def find(halt_id: str, actor: Actor) -> Halt:
    """A halt of a workspace that this actor may read. Raises NotFound."""
    halt = Halt.objects.select_related("stop", "policy", "session").filter(pk=halt_id).first()
    if halt is None:
        raise NotFound("halt")
    _demand(actor, "read", halt.workspace_id)
    return halt


@verb
def lift(*, actor: Actor, halt_id: str, reason: str) -> Halt:
    """Let compensations of this scope start again; what was approved meanwhile goes on by itself.

    A person who may release, on a page; a token never. One that was lifted before stays as it is. Raises
    NotFound, NotAllowed, NoReason.
    """
    workspace_id = Halt.objects.filter(pk=halt_id).values_list("workspace_id", flat=True).first()
    if workspace_id is None:
        raise NotFound("halt")
    workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
    _demand(actor, "release", workspace_id)
    if actor.user is None or actor.via != "page":
        raise NotAllowed("lift a halt")
    said = words_in(reason)
    if not said:
        raise NoReason(halt_id)
    rows = Halt.objects.filter(pk=halt_id, lifted_at__isnull=True)
    if rows.update(lifted_at=Now(), lifted_by=actor.id, reason=said):
        halt = Halt.objects.get(pk=halt_id)
        told = {"halt": halt.pk, "reason": halt.reason}
        record(workspace, Line("compensations.lifted", actor.id, told, stop_id=halt.stop_id))
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.sweep"), robust=True)
    return Halt.objects.get(pk=halt_id)


def _demand(actor: Actor, action: str, workspace_id: str) -> None:
    """A halt of another workspace is not there, as one that never was."""
    try:
        demand_workspace(actor, action, workspace_id)
    except NotFound as error:
        raise NotFound("halt") from error


def of_stops(stop_ids: Iterable[str]) -> list[Halt]:
    """The halts that these stops set, oldest first, lifted or not."""
    return list(Halt.objects.filter(Q(stop__in=list(stop_ids))).order_by("pk"))
