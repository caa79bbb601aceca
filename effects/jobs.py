"""Jobs at a provider: how far they are, a fact of its own beside the settlement.

CONFIRMED means accepted by the provider. What the job does there is asked for on a schedule with a stated
end, also of a run that has ended; it settles nothing and holds no run open. An answer that can't tell leaves
what was seen last, as of then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import accumulate
from typing import Any

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from runs.access import SYSTEM, Actor
from runs.evidence import Line, record
from runs.guard import lock_run
from runs.models import OperationClass, RunStatus
from runs.store import Now, after, database_time, verb

from . import close
from .models import Effect, Ground, Settlement

ACCEPTED, RUNNING, COMPLETED, FAILED, UNKNOWN = STATES = (
    "accepted",
    "running",
    "completed",
    "failed",
    "unknown",
)
OVER = (COMPLETED, FAILED)
TAKEN = (Settlement.CONFIRMED, Settlement.PARTIAL)  # by the provider
EVERY_S = (2, 5, 15, 60, 300, 900)
TURN_S = 30


def state_in(word: Any, rules: Mapping[str, Any]) -> str:
    """Which state a provider's word means, by `lookup.job`: {accepted, running, completed, failed: [words]}.

    "" where it says nothing; "unknown" for a word that nobody listed.
    """
    if word is None or isinstance(word, dict | list) or word == "":
        return ""
    said = str(word).casefold()
    named = (state for state in STATES if said in (str(one).casefold() for one in rules.get(state) or ()))
    return next(named, UNKNOWN)


# moves of a locked run ----------------------------------------------------------------------------


def begin(effect: Effect) -> None:
    """An effect was settled: a job that its provider took is accepted, and is asked about from now on."""
    if effect.op_class != OperationClass.EXTERNAL_JOB or effect.settlement not in TAKEN:
        return
    pause, until = _first(effect)
    rows = Effect.objects.filter(pk=effect.pk).exclude(job_state__in=OVER)
    rows.filter(job_state="").update(job_state=ACCEPTED, job_at=Now())
    rows.update(next_check_at=pause, check_until=until)
    effect.job_state = effect.job_state or ACCEPTED


def heard(
    effect: Effect, state: str, actor: str, ground: str = Ground.LOOKED_UP, detail: str = ""
) -> list[Line]:
    """A provider said how far the job is: one line a change. One that is over stays so, but for its own
    later word that it ended otherwise. The caller holds the run's lock and records the lines.
    """
    if state not in STATES or effect.op_class != OperationClass.EXTERNAL_JOB:
        return []
    was, rows = effect.job_state, Effect.objects.filter(pk=effect.pk)
    if was in OVER and state not in OVER:
        return []
    ends = {"next_check_at": None} if state in OVER and effect.settlement in TAKEN else {}
    rows.update(job_state=state, job_at=Now(), **ends)
    effect.job_state = state
    if was == state:
        return []
    told = {"was": was, "detail": detail[:300]}
    return [_line(effect, f"job.{state}", actor, {n: v for n, v in told.items() if v}, ground)]


def _line(effect: Effect, kind: str, actor: str, payload: Mapping[str, Any], ground: str) -> Line:
    return Line(kind, actor, payload, ground=ground, step_id=effect.step_id, effect_key=effect.key)


def _first(effect: Effect) -> tuple[Any, Any]:
    """When to ask first, and until when; None twice where nobody can be asked, or nobody asks any more."""
    kind = effect.kind
    if kind is None or not kind.lookup.get("job") or effect.run.status == RunStatus.ABANDONED:
        return None, None
    return after(_every(effect)[0]), after(kind.check_for_s)


def _every(effect: Effect) -> list[float]:
    own = list(effect.kind.check_every_s) if effect.kind else []
    return [float(pause) for pause in own or EVERY_S]


# asking ---------------------------------------------------------------------------------------------


def _asked_about() -> Q:
    return Q(settlement__in=TAKEN, next_check_at__lte=Now())


def due(limit: int = 100) -> list[str]:
    """Ids of jobs whose next question is due: of each kind in turn, the longest due first."""
    rows = Effect.objects.filter(_asked_about()).exclude(run__status=RunStatus.ABANDONED)
    turn = Window(RowNumber(), partition_by=F("kind_id"), order_by=F("next_check_at").asc())
    in_turn = rows.annotate(turn=turn).order_by("turn", "next_check_at")
    return list(in_turn.values_list("pk", flat=True)[:limit])


def take_turn(effect_id: str) -> Effect | None:
    """Claim one due question by moving its time on, so that two workers don't ask twice."""
    if not Effect.objects.filter(_asked_about(), pk=effect_id).update(next_check_at=after(TURN_S)):
        return None
    found: Effect = Effect.objects.select_related("kind", "run").get(pk=effect_id)
    return found


def apply(effect_id: str, state: str, detail: str = "", actor: Actor = SYSTEM) -> str:
    """Keep what a provider said of a job ("": it could not tell) and plan the next question.

    Returns the state afterwards. The same again takes no lock and leaves no line.
    """
    effect: Effect = Effect.objects.select_related("kind").defer("body").get(pk=effect_id)
    at, end = _next(effect)
    same = Effect.objects.filter(pk=effect_id, settlement__in=TAKEN).exclude(job_state__in=OVER)
    plan = {"next_check_at": at}
    if not end and (not state or state == effect.job_state):
        told = {"job_at": Now()} if state else {}
        if (same.filter(job_state=state) if state else same).update(**plan, **told):
            return effect.job_state
    return _apply(effect_id, state, detail, actor)


@verb
def _apply(effect_id: str, state: str, detail: str, actor: Actor) -> str:
    run = lock_run(Effect.objects.values_list("run_id", flat=True).get(pk=effect_id))
    effect: Effect = Effect.objects.select_related("kind").get(pk=effect_id)
    at, ended = _next(effect)
    if effect.settlement in TAKEN and run.status != RunStatus.ABANDONED:
        Effect.objects.filter(pk=effect.pk).update(next_check_at=at)
    lines = heard(effect, state, actor.id, detail=detail)
    if ended and effect.job_state not in OVER and effect.settlement in TAKEN:
        lines.append(_line(effect, "job.questions_ended", actor.id, {"state": effect.job_state}, ""))
    if lines:
        record(run, *lines)
        close.tell(run)
    return effect.job_state


def _next(effect: Effect) -> tuple[Any, bool]:
    """When to ask again; None when the schedule is over, and whether it ended now."""
    now = database_time()
    begun = effect.settled_at or now
    gone, every = (now - begun).total_seconds(), _every(effect)
    pause = next(
        (one for one, sum_s in zip(every, accumulate(every), strict=True) if sum_s > gone), every[-1]
    )
    at = now + timedelta(seconds=pause)
    if effect.check_until is not None and effect.check_until >= at:
        return at, False
    return None, effect.next_check_at is not None
