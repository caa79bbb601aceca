"""Forwarding a stop: what a cancel asks of the providers of a run's effects, once for each of them.

An effect that was declared with `on_stop: ask_provider` names a kind that says how (`send.cancel`). The
cancel of its run then writes a second effect in its own transaction, which is about the first (`asks_about`).
It is reported as "asked … to cancel": whether the provider then does so is its own affair.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from runs import wake
from runs.access import EXECUTOR, SYSTEM, Actor
from runs.evidence import Line, digest
from runs.guard import Known
from runs.models import (
    FINAL,
    Mode,
    OperationClass,
    Permit,
    PermitState,
    Run,
    Step,
    StepStatus,
    StopRequest,
)
from runs.rows import Each, insert
from runs.rules import rules_of
from runs.store import Now, after, database_time, new_id

from . import close, outbound
from .intents import plan_bytes
from .jobs import OVER
from .models import Effect, Kind, Settlement
from .settle import give_back

ASK_PROVIDER = "ask_provider"
LONGEST_S, SPARE_S = 300, 30  # so long, and so much longer than the stop's deadline, it may wait to be sent
AGAIN_S = 5  # how long a message to our executor may take before it counts as lost
KEY, KEY_MAX = "ask-cancel", 200
NO_PLAN = plan_bytes(none_because="A request to cancel is not called back.")
ALIKE = {  # of each request
    "op_class": OperationClass.EXTERNAL_WRITE,
    "body_digest": digest(b""),
    "plan": NO_PLAN,
    "plan_digest": digest(NO_PLAN),
}
# What was, or may have been, sent; a job of it may go on.
SENT = (Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.CONFIRMED, Settlement.PARTIAL)


# a stop comes -------------------------------------------------------------------------------------


def stopped(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """What a cancel asks of providers, in its own transaction. It makes a step for each, and holds it."""
    if stop.mode != Mode.CANCEL:
        return []
    about = list(_to_ask([run.pk]).select_related("kind").defer("body").order_by("pk"))
    asked = [(effect, effect.kind) for effect in about if effect.kind and _rule(effect.kind)]
    if not asked or not rules_of(run.workspace_id).forward_stops:
        return []
    if run.status in FINAL:
        close.tell(run)
    return _ask(run, stop, asked, actor)


def concerned(run_ids: Sequence[str], scope_stop: StopRequest) -> list[str]:
    """Those of these runs that have something to ask: one query, and one of the rules where any has."""
    if scope_stop.mode != Mode.CANCEL:
        return []
    found = list(_to_ask(run_ids).order_by().values_list("run_id", flat=True).distinct())
    return found if found and rules_of(scope_stop.workspace_id).forward_stops else []


def _to_ask(run_ids: Sequence[str]) -> QuerySet[Effect]:
    rows = Effect.objects.filter(run__in=run_ids, on_stop=ASK_PROVIDER, settlement__in=SENT)
    return rows.exclude(job_state__in=OVER)


def _rule(kind: Kind) -> dict[str, Any]:
    rule: dict[str, Any] = kind.send.get("cancel") or {}
    return rule


def asked_of(kind: Kind) -> str:
    """Whom a kind asks, as people read it: the host of its address."""
    try:
        return outbound.target_of(str(_rule(kind).get("url", ""))).host
    except outbound.Refused:
        return "the provider"


def key_of(stop: StopRequest, key: str) -> str:
    """Once per stop and effect, so a key of both."""
    found = f"{KEY}:{stop.pk}:{key}"
    return found if len(found) <= KEY_MAX else f"{KEY}:{stop.pk}:{digest(key)}"


def stop_id_of(key: str) -> str:
    """The stop that a request forwards."""
    return key.split(":")[1]


def _ask(run: Run, stop: StopRequest, about: Sequence[tuple[Effect, Kind]], actor: Actor) -> list[Line]:
    """A step and a request for each, in one statement each: a stop does not take longer the more it asks."""
    keys = [key_of(stop, effect.key) for effect, _ in about]
    asks = [asked_of(kind) for _, kind in about]
    named = zip(asks, about, strict=True)
    titles = [f"Ask {who} to cancel “{effect.title}”"[:300] for who, (effect, _) in named]
    steps = _hold_steps(run, stop, keys, titles)
    told = {
        "id": Each(new_id("eff") for _ in about),
        "step_id": Each(steps),
        "kind_id": Each(kind.pk for _, kind in about),
        "kind_name": Each(effect.kind_name for effect, _ in about),
        "key": Each(keys),
        "title": Each(titles),
        "target": Each(asks),
        "parameters_digest": Each(digest(key) for key in keys),
        "asks_about_id": Each(effect.pk for effect, _ in about),
    }
    insert(Effect, {**told, **ALIKE, "run_id": run.pk, "queued_at": database_time()})
    for effect_id in told["id"]:
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.forward", effect_id), robust=True)
    rows = zip(about, asks, steps, keys, strict=True)
    return [_declared(stop, actor, effect, *where) for (effect, _), *where in rows]


def _declared(stop: StopRequest, actor: Actor, about: Effect, who: str, step_id: str, key: str) -> Line:
    told = {"asks_about": about.key, "asks": who}
    return Line("effect.declared", actor.id, told, step_id=step_id, effect_key=key, stop_id=stop.pk)


def _hold_steps(run: Run, stop: StopRequest, keys: Sequence[str], names: Sequence[str]) -> list[str]:
    """CLAIMED for our executor by this very stop: the drain waits for each as for any held step."""
    lease = timedelta(seconds=min(stop.deadline_s, LONGEST_S) + SPARE_S)
    ids = [new_id("ste") for _ in keys]
    each = {"id": ids, "key": keys, "name": names, "claim_token": [secrets.token_hex(16) for _ in keys]}
    alike = {
        "run_id": run.pk,
        "op_class": OperationClass.EXTERNAL_WRITE,
        "status": StepStatus.CLAIMED,
        "worker": SYSTEM.id,
        "claim_version": stop.version_after,
        "lease_until": database_time() + lease,
        "lease": lease,
        "attempt": 1,
        "ends_with_effect": True,
    }
    insert(Step, {**{name: Each(values) for name, values in each.items()}, **alike})
    return ids


# our executor asks ----------------------------------------------------------------------------------


def pending() -> Q:
    """Requests that wait to be sent."""
    return Q(asks_about__isnull=False, settlement=Settlement.DECLARED, step__status=StepStatus.CLAIMED)


def waiting(limit: int = 200) -> list[str]:
    """Requests that wait for longer than a message takes; each is handed out once per AGAIN_S."""
    rows = Effect.objects.filter(pending(), queued_at__lte=after(-AGAIN_S))
    ids = list(rows.order_by("queued_at").values_list("pk", flat=True)[:limit])
    return [effect_id for effect_id in ids if _take_turn(effect_id)]


def _take_turn(effect_id: str) -> bool:
    mine = Effect.objects.filter(pk=effect_id, queued_at__lte=after(-AGAIN_S))
    return bool(mine.update(queued_at=Now()))


class CancelErrand:
    """One request, for runs.forwarding.forward()."""

    def __init__(self, asking: Effect) -> None:
        self.asking, self.stop_id = asking, stop_id_of(asking.key)

    def known(self, run: Run) -> Known | None:
        """Sent before; or the call that it is about is not over, so its provider may not know of it yet."""
        asking: Effect = Effect.objects.select_related("asks_about").get(pk=self.asking.pk)
        self.asking = asking
        if asking.settlement != Settlement.DECLARED:
            return Known("settled", asking)
        about = asking.asks_about
        flying = Permit.objects.filter(pk=about.permit_id, state=PermitState.OPEN) if about else None
        return Known("must_wait", asking) if flying is not None and flying.exists() else None

    def moot(self, run: Run, step: Step) -> list[Line]:
        """What it is about did not happen, or its job is over."""
        about = self.asking.asks_about
        if about is None or (about.settlement in SENT and about.job_state not in OVER):
            return []
        why = about.job_state or about.settlement.lower().replace("_", " ")
        told = {"asks_about": about.key, "not_asked_because": why}
        line = Line("effect.not_asked", SYSTEM.id, told, step_id=step.pk, effect_key=self.asking.key)
        return [line, *give_back(run, step, SYSTEM.id)]

    def opened(self, run: Run, permit: Permit) -> tuple[Any, list[Line]]:
        Effect.dispatch(self.asking, permit)
        line = Line(
            "effect.dispatched",
            EXECUTOR.id,
            boundary=permit.boundary,
            carried_version=permit.seen_version,
            step_id=permit.step_id,
            permit_id=permit.pk,
            effect_key=self.asking.key,
            stop_id=self.stop_id,
            worker=permit.worker,
        )
        return self.asking, [line]
