"""A stop of a session, a workspace or a policy: its gate is shut at once, its runs are stopped after that.

Two moments. The gate's transaction is the acknowledgement: from its commit on no run is admitted and no
gate call can succeed under the scope. Then each run gets a stop of its own (runs/fanout.py), by whichever
process is alive. The stop stands until people release it (runs/releases.py). Every such stop locks its
workspace, as an admission does (docs/decisions/0020-a-gate-first-then-the-runs.md).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, Q, QuerySet

from . import halts, policies, wake
from .access import Actor, NotFound, demand_workspace
from .evidence import Line, record
from .models import (
    Gate,
    Mode,
    Policy,
    Reach,
    Release,
    Run,
    RunStatus,
    ScopeKind,
    Session,
    StopRequest,
    Workspace,
)
from .presses import (
    STRENGTH,
    SUPERSEDED,
    StopAnswer,
    Wish,
    arrived,
    close,
    next_number,
    pressed_before,
    record_press,
    wished,
)
from .store import Now, alongside, database_time, stop_verb

log = logging.getLogger(__name__)

IN_REQUEST_S = 1.0  # so long the request of a stop goes on to the runs; the sweep does the rest
RESTORED = "restore"  # a stop's `via` when a restore shut the gate
HOLDS = f"mode: recorded as {Mode.PAUSE}; a policy of effects withholds them and ends no run"
KEPT = "{name}: the stop that stands keeps its own"
PAST = "{name}: that moment is over"
WATCHED = "observe: a stop holds this already; it goes on"

Scope = Workspace | Session | Policy
MODELS: dict[str, type[Workspace] | type[Session] | type[Policy]] = {
    ScopeKind.WORKSPACE: Workspace,
    ScopeKind.SESSION: Session,
    ScopeKind.POLICY: Policy,
}


@dataclass(frozen=True)
class Target:
    """What a stop that stands is about: kind session, workspace or policy, and the id of its row."""

    kind: str
    id: str


# reading ------------------------------------------------------------------------------------------


def target_of(stop: StopRequest) -> Target:
    """What a stop of a scope is about. ValueError for one that has no gate."""
    ids = {ScopeKind.WORKSPACE: stop.workspace_id, ScopeKind.SESSION: stop.session_id}
    found = {**ids, ScopeKind.POLICY: stop.policy_id}.get(ScopeKind(stop.scope))
    if not found:
        raise ValueError(f"a stop of a {stop.scope} has no gate")
    return Target(stop.scope, found)


def scope_of(stop: StopRequest) -> Scope:
    """The row whose gate the stop shut, or watches."""
    target = target_of(stop)
    found: Scope = MODELS[target.kind]._default_manager.get(pk=target.id)
    return found


def kind_of(scope: Scope) -> str:
    """The kind of scope that this row is."""
    return next(kind for kind, model in MODELS.items() if isinstance(scope, model))


def in_scope(stop: StopRequest) -> QuerySet[Run]:
    """All runs under the scope of this stop, of every status; of a policy, by their labels."""
    if stop.scope == ScopeKind.POLICY:
        return policies.matching_runs(Policy.objects.get(pk=stop.policy_id))
    if stop.scope == ScopeKind.SESSION:
        return Run.objects.filter(session_id=stop.session_id)
    return Run.objects.filter(workspace_id=stop.workspace_id)


def in_force() -> Q:
    """Stops of a scope that stand: neither released nor superseded. Those that observe are among them."""
    return Q(run__isnull=True, scope__in=list(MODELS), released_at__isnull=True, superseded_by__isnull=True)


def stops_of(scope: Scope) -> QuerySet[StopRequest]:
    """All stops that this gate ever had, the newest first."""
    kind = kind_of(scope)
    mine = {} if kind == ScopeKind.WORKSPACE else {kind: scope}
    workspace_id = scope.pk if isinstance(scope, Workspace) else scope.workspace_id
    return StopRequest.objects.filter(workspace_id=workspace_id, scope=kind, **mine).order_by("-number")


def standing_stop(scope: Scope) -> StopRequest | None:
    """The stop that holds this gate shut, if any."""
    return stops_of(scope).filter(in_force()).exclude(observes=True).first()


def observing_stop(scope: Scope) -> StopRequest | None:
    """The stop that only counts what it would refuse here, if any."""
    return stops_of(scope).filter(in_force(), observes=True).first()


@dataclass(frozen=True)
class Standing:
    """A gate as it stands. `stop` holds it shut, None while it is open (or nobody recorded why not).

    `paused` runs wait for a resume of their own. `stale` runs are ACTIVE, yet every gate refuses them: the
    stop has not reached them yet. `observing` only counts.
    """

    scope: Scope
    stop: StopRequest | None
    observing: StopRequest | None
    paused: int
    stale: int

    @property
    def shut(self) -> bool:
        return self.scope.gate == Gate.SHUT


def standing(target: Target) -> Standing:
    """The gate now, and what a release would leave as it is. Raises NotFound."""
    scope = _find(target)
    runs = _under(scope)
    return Standing(
        scope,
        standing_stop(scope) if scope.gate == Gate.SHUT else None,
        observing_stop(scope),
        paused=runs.filter(status__in=[RunStatus.PAUSING, RunStatus.PAUSED]).count(),
        stale=held_back(runs, scope).count(),
    )


def _under(scope: Scope) -> QuerySet[Run]:
    if isinstance(scope, Policy):
        return policies.matching_runs(scope)
    mine = {"workspace": scope} if isinstance(scope, Workspace) else {"session": scope}
    return Run.objects.filter(**mine)


def held_back(runs: QuerySet[Run], scope: Scope) -> QuerySet[Run]:
    """Of these runs under the scope, those that are active and that its gate refuses."""
    if isinstance(scope, Policy):
        whole = scope.gate == Gate.SHUT and scope.reach == Reach.RUNS
        return runs.filter(status=RunStatus.ACTIVE) if whole else runs.none()
    name = "admitted_epoch" if isinstance(scope, Workspace) else "session_epoch"
    passed = Q(pk__in=[]) if scope.gate == Gate.SHUT else Q(**{name: scope.epoch})
    return runs.filter(~passed, status=RunStatus.ACTIVE)


# the gate -----------------------------------------------------------------------------------------


def any_observing(workspace_id: str) -> Exists:
    """Whether a stop that only counts is in force somewhere in this workspace."""
    return Exists(_observing(workspace_id))


def _observing(workspace_id: str) -> QuerySet[StopRequest]:
    rows = StopRequest.objects.filter(in_force(), workspace_id=workspace_id, closed_at__isnull=True)
    return rows.filter(observes=True)


def observing(workspace_id: str) -> list[StopRequest]:
    """The stops of this workspace that only count."""
    return list(_observing(workspace_id).select_related("policy").order_by("pk"))


def would_hold(
    stop: StopRequest, run: Run, kind: str = "", op_class: str = "", *, sends: bool = True
) -> bool:
    """Whether this stop would withhold this of a run, if it were in force as any other."""
    return _reaches(stop, run.session_id, run.labels) and (
        stop.policy is None or policies.holds(stop.policy, kind, op_class, sends=sends)
    )


def _reaches(stop: StopRequest, session_id: str | None, labels: Mapping[str, str]) -> bool:
    if stop.scope == ScopeKind.SESSION:
        return session_id is not None and stop.session_id == session_id
    return stop.policy is None or policies.matches(policies.match_of(stop.policy), labels)


def stop_above(run: Run, withheld: Callable[[], Policy | None] = lambda: None) -> StopRequest | None:
    """The stop whose gate refuses this run: of its workspace, its session, or a policy. Where that was
    released since, the one that left the run behind.

    `withheld`: the policy of effects that refuses what is asked for, which reaches no run.
    """
    above: list[tuple[Scope, int | None]] = [(run.workspace, run.admitted_epoch)]
    above += [(run.session, run.session_epoch)] if run.session is not None else []
    above += [(policy, run.policy_epochs[policy.pk]) for policy in _recorded(run)]
    for scope, epoch in above:
        if scope.gate == Gate.SHUT or scope.epoch != epoch:
            return stops_of(scope).exclude(observes=True).first()
    policy = withheld()
    return standing_stop(policy) if policy is not None else None


def _recorded(run: Run) -> list[Policy]:
    return list(Policy.objects.filter(pk__in=run.policy_epochs)) if run.policy_epochs else []


# locks --------------------------------------------------------------------------------------------


def lock(target: Target) -> tuple[Workspace, Scope]:
    """The workspace and the scope, locked policy → workspace → session. Raises NotFound.

    Whoever holds the workspace meets no admission and no change of a gate in it.
    """
    found = _find(target)
    if isinstance(found, Workspace):
        workspace = _locked(Workspace, found.pk)
        return workspace, workspace
    if isinstance(found, Policy):
        policy = _locked(Policy, found.pk)
        return _locked(Workspace, policy.workspace_id), policy
    workspace = _locked(Workspace, found.workspace_id)
    return workspace, _locked(Session, found.pk)


def _find(target: Target) -> Scope:
    model: Any = MODELS.get(target.kind)
    found: Scope | None = model._default_manager.filter(pk=target.id).first() if model else None
    if found is None:
        raise NotFound(target.kind)
    return found


def _locked(model: Any, pk: str) -> Any:
    return model._default_manager.select_for_update(no_key=True).get(pk=pk)


# a press ------------------------------------------------------------------------------------------


def request_scope_stop(*, actor: Actor, wish: Wish, target: Target) -> StopAnswer:
    """Shut the gate of a session, workspace or policy, or join the stop that holds it; then go on to its
    runs for up to a second. Never refused for a formality.

    Once this returns, no gate lets anything under the scope begin; a check that passed in the milliseconds
    before the commit finds the gate shut at its second look. With `wish.observe` nothing is shut, and what
    would be refused is counted. Raises NotFound, NotAllowed; OperationalError when the database can't
    answer: NOT recorded, or not known; the same key converges.
    """
    wish = arrived(wish)
    return carried_on(_press(actor, wish, new_key(wish), target))


def new_key(wish: Wish) -> str:
    """The press's own key, else one that its repetitions after a lost wire share."""
    return wish.key or secrets.token_hex(16)


@stop_verb
def _press(actor: Actor, wish: Wish, key: str, target: Target) -> StopAnswer:
    workspace, scope = lock(target)
    demand(actor, "stop", workspace.pk, target.kind)
    return pressed(workspace, scope, actor, fitting(scope, wish, database_time()), key)


def demand(actor: Actor, action: str, workspace_id: str, what: str) -> None:
    """As `demand_workspace`; a scope of another workspace is not there, as one that never was."""
    try:
        demand_workspace(actor, action, workspace_id)
    except NotFound as error:
        raise NotFound(what) from error


def fitting(scope: Scope, wish: Wish, now: datetime) -> Wish:
    """What of a wish this scope can do; the rest is named in `ignored`."""
    ignored, kept = [*wish.ignored], dict[str, Any]()
    if isinstance(scope, Policy) and scope.reach == Reach.EFFECTS and wish.mode != Mode.PAUSE:
        kept["mode"] = Mode.PAUSE
        ignored += [HOLDS] if wish.requested_mode not in ("", Mode.PAUSE) else []
    for name in ("review_at", "ends_at"):
        moment = getattr(wish, name)
        if moment is not None and moment <= now:
            kept[name] = None
            ignored.append(PAST.format(name=name))
    return replace(wish, ignored=ignored, **kept)


def pressed(workspace: Workspace, scope: Scope, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """A press on a scope that is locked, with its workspace, by somebody who may stop there."""
    held = standing_stop(scope) if scope.gate == Gate.SHUT else None
    moves = not wish.observe and (held is None or STRENGTH[wish.mode] > STRENGTH[held.mode])
    mine = Q(stop__in=stops_of(scope)) & (Q() if wish.observe else ~Q(stop__observes=True))
    again = pressed_before(actor, key, mine, wish.mode, moves=moves)
    if again is not None:
        return again
    if moves:
        return _shut(workspace, scope, actor, wish, key)
    joins = held or observing_stop(scope)
    return _join(workspace, joins, actor, wish, key) if joins else _watch(workspace, scope, actor, wish, key)


def _shut(workspace: Workspace, scope: Scope, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    weaker, watching = standing_stop(scope), observing_stop(scope)
    wish = _no_sooner(weaker, wish) if weaker is not None else wish
    stop = shut_gate(workspace, scope, actor, wish, database_time())
    lines = [shut_line(scope, stop, actor, wish), *halts.set_halt(stop)]
    if weaker is not None:
        lines += void_wish(weaker, actor)
        lines.append(supersede(weaker, stop, SUPERSEDED))
    if watching is not None:
        lines.append(supersede(watching, stop, f"enforced by #{stop.number}"))
    press = record_press(stop, actor, wish, key, "recorded")
    record(workspace, *lines)
    return StopAnswer(stop, press, weaker=weaker)


def shut_gate(
    workspace: Workspace, scope: Scope, actor: Actor, wish: Wish, now: datetime, *, epoch: int = 0
) -> StopRequest:
    """Shut it under its lock, at a new epoch (at least `epoch`), with the stop that stands for it."""
    scope.epoch, scope.gate, scope.gate_at = max(scope.epoch + 1, epoch), Gate.SHUT, now
    rows: Any = type(scope)._default_manager.filter(pk=scope.pk)
    rows.update(gate=Gate.SHUT, epoch=scope.epoch, gate_at=now)
    return _insert(workspace, scope, actor, wish, now, gate_at=now)


def _insert(
    workspace: Workspace, scope: Scope, actor: Actor, wish: Wish, now: datetime, **more: Any
) -> StopRequest:
    kind = kind_of(scope)
    return StopRequest.objects.create(
        workspace=workspace,
        number=next_number(workspace.pk),
        scope=kind,
        run_key="",
        review_at=wish.review_at,
        ends_at=wish.ends_at,
        **({} if kind == ScopeKind.WORKSPACE else {kind: scope}),
        **more,
        **wished(actor, wish, now),
    )


def _watch(workspace: Workspace, scope: Scope, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    """The gate stays open: nothing to fence, and nothing is bumped."""
    stop = _insert(workspace, scope, actor, wish, database_time(), observes=True)
    press = record_press(stop, actor, wish, key, "recorded")
    record(workspace, _line("gate.observed", scope, stop, actor, wish))
    return StopAnswer(stop, press)


def _join(workspace: Workspace, stop: StopRequest, actor: Actor, wish: Wish, key: str) -> StopAnswer:
    watches = wish.observe and not stop.observes
    moved = {} if watches else _outlast(stop, wish)
    kept = {"review_at": wish.review_at, "ends_at": wish.ends_at if wish.ends_at != stop.ends_at else None}
    told = [KEPT.format(name=name) for name, moment in kept.items() if moment]
    told += [WATCHED] if watches else []
    wish = replace(wish, ignored=[*wish.ignored, *told])
    press = record_press(stop, actor, wish, key, "joined")
    line = _line("stop.joined", scope_of(stop), stop, actor, wish, **moved)
    again = [] if wish.observe or stop.observes else halts.set_anew(stop)
    record(workspace, line, *void_wish(stop, actor), *again)
    return StopAnswer(stop, press)


def _outlast(stop: StopRequest, wish: Wish) -> dict[str, str]:
    """No end date ends what another press wanted to stand longer: the later end holds, and none is the last.

    What the line tells of an end that was moved.
    """
    was = stop.ends_at
    if was is None or (wish.ends_at is not None and wish.ends_at <= was):
        return {}
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=wish.ends_at)
    stop.ends_at = wish.ends_at
    return {"ended": was.isoformat()}


def _no_sooner(weaker: StopRequest, wish: Wish) -> Wish:
    """A stronger stop, which takes the place of a weaker one, ends no sooner than that would have."""
    if wish.ends_at is None or (weaker.ends_at is not None and weaker.ends_at <= wish.ends_at):
        return wish
    return replace(wish, ends_at=weaker.ends_at, ignored=[*wish.ignored, KEPT.format(name="ends_at")])


def supersede(weaker: StopRequest, stop: StopRequest, because: str) -> Line:
    """Close a stop of the same gate in favour of a new one; the evidence of it."""
    StopRequest.objects.filter(pk=weaker.pk).update(superseded_by=stop)
    close(weaker, because)
    told = {"by": stop.pk, "was": weaker.mode, "now": stop.mode, "because": because}
    return Line("stop.superseded", stop.actor, told, stop_id=weaker.pk)


def void_wish(stop: StopRequest, actor: Actor) -> list[Line]:
    """Somebody pressed again: a release that still waits for its second person is asked for anew."""
    waiting = Release.objects.filter(stop=stop, granted_at__isnull=True, void_at__isnull=True)
    asked_by = waiting.values_list("asked_by", flat=True).first()
    if not waiting.update(void_at=Now()):
        return []
    return [Line("release.voided", actor.id, {"asked_by": asked_by}, stop_id=stop.pk)]


def shut_line(scope: Scope, stop: StopRequest, actor: Actor, wish: Wish) -> Line:
    """The evidence of a gate that was shut."""
    return _line("gate.shut", scope, stop, actor, wish)


def _line(kind: str, scope: Scope, stop: StopRequest, actor: Actor, wish: Wish, **more: str) -> Line:
    told: dict[str, Any] = {
        "mode": wish.mode,
        "requested_mode": wish.requested_mode,
        "reason": wish.reason,
        "note": wish.note,
        "ignored": wish.ignored,
        "epoch": scope.epoch,
        **named(scope),
    }
    moments = {"review_at": stop.review_at, "ends_at": stop.ends_at}
    told |= {name: at.isoformat() for name, at in moments.items() if at is not None}
    return Line(kind, actor.id, told | more, stop_id=stop.pk)


def named(scope: Scope) -> dict[str, str]:
    """A scope in a line: its kind, id and name, as it was called then."""
    return {"scope": kind_of(scope), "scope_id": scope.pk, "scope_name": str(scope)}


# on to the runs -----------------------------------------------------------------------------------


def carried_on(answer: StopAnswer) -> StopAnswer:
    """After the commit, in the same request; the sweep reaches the rest. With the stop as it is then."""
    stop = answer.stop
    if stop.observes or stop.fenced_at is not None or stop.gate_at is None:
        return answer
    try:
        with alongside(lambda result: None):  # the caller's answer is that of its own press
            done = _fence(stop.pk)
        answer = replace(answer, stop=StopRequest.objects.get(pk=stop.pk))
    except Exception:
        log.exception("stop %s has not reached all its runs yet; the sweep goes on", stop.pk)
        done = False
    if not done:
        wake.run_soon("effects.tasks.sweep")
    return answer


def _fence(stop_id: str) -> bool:
    from . import fanout

    return fanout.fence(stop_id, within_s=IN_REQUEST_S)
