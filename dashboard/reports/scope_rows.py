"""The rows of a stop of many runs, counted by the database: the same queries for ten runs and for 10,000."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from dashboard.reports.queries import name_actors
from effects.close import Repair, outcome
from effects.compensation import UNDECIDED
from effects.models import (
    Compensation,
    CompensationState,
    Delivery,
    DeliveryState,
    Effect,
    Review,
    Settlement,
)
from runs import fanout, policies, refusals
from runs.models import (
    FINAL,
    INCONSEQUENTIAL,
    InFlight,
    Permit,
    Press,
    Reach,
    Release,
    Result,
    Run,
    RunStatus,
    ScopeKind,
    StopPart,
    StopRequest,
)
from runs.refusals import Refused
from runs.store import database_time

KNOWN = (Settlement.CONFIRMED, Settlement.PARTIAL, Settlement.NOT_APPLIED)
HAPPENED = (Settlement.CONFIRMED, Settlement.PARTIAL)
EVER_SENT = (*KNOWN, Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN)
NAMED = 20
# What a group of runs has among its effects and messages, as `outcome` reads it.
FLAGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "doubt": (
        (Settlement.DISPATCHED, Settlement.UNKNOWN),
        (DeliveryState.DISPATCHED, DeliveryState.UNKNOWN),
    ),
    "accepted": ((Settlement.ACCEPTED_UNKNOWN,), (DeliveryState.ACCEPTED_UNKNOWN,)),
    "done": (HAPPENED, (DeliveryState.HANDED_OVER,)),
}
STANDS_FOR = {
    "doubt": Settlement.UNKNOWN,
    "accepted": Settlement.ACCEPTED_UNKNOWN,
    "done": Settlement.CONFIRMED,
}
# The same of its compensations: a state that stands for those that the group has.
MENDING: dict[str, tuple[str, ...]] = {
    CompensationState.UNKNOWN: (CompensationState.UNKNOWN,),
    CompensationState.PROPOSED: (*UNDECIDED, CompensationState.DISPATCHED),
    CompensationState.ACCEPTED_UNKNOWN: (CompensationState.ACCEPTED_UNKNOWN,),
}
OPEN_FAILURE = "open_failure"


@dataclass(frozen=True)
class Doubt:
    """What is unknown among these runs: how many effects in how many runs, since when, looked up when."""

    effects: int = 0
    runs: int = 0
    oldest: datetime | None = None
    next_check: datetime | None = None
    checked: int = 0


class ScopeRows:
    """Everything that the report of one such stop counts; each part is asked for once."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop
        self.as_of = database_time()
        self.parts = StopPart.objects.filter(stop=stop).order_by()
        self.mine: dict[str, Any] = {"run__in": self.parts.values("run")}
        self.of_effects = stop.policy is not None and stop.policy.reach == Reach.EFFECTS

    @cached_property
    def results(self) -> Counter[str]:
        """Runs by what the stop came to."""
        return Counter(self._of_parts["result"])

    @cached_property
    def closed(self) -> int:
        """Runs in which nothing of the stop is open."""
        return self._of_parts["closed"]["yes"]

    @cached_property
    def _of_parts(self) -> dict[str, Counter[str]]:
        told: dict[str, Counter[str]] = {"result": Counter(), "closed": Counter()}
        over = Q(run_stop__closed_at__isnull=False) | Q(result__in=WITHOUT_A_STOP)
        rows = self.parts.values_list("result").annotate(n=Count("pk"), closed=Count("pk", filter=over))
        for result, number, closed in rows:
            told["result"][result] = number
            told["closed"]["yes"] += closed
        return told

    @property
    def total(self) -> int:
        return self.results.total()

    @cached_property
    def endings(self) -> Counter[tuple[str, str]]:
        """Runs by (status, outcome): grouped by what they have, then told by the one pure function."""
        runs = Run.objects.filter(stop_parts__stop=self.stop).annotate(
            sent=Exists(_of_run(Permit).exclude(op_class__in=INCONSEQUENTIAL)),
            **{name: _has(*states) for name, states in FLAGS.items()},
            **_mending(),
        )
        names = [*FLAGS, *_mending()]
        counted: Counter[tuple[str, str]] = Counter()
        for status, sent, *flags, number in (
            runs.order_by().values_list("status", "sent", *names).annotate(n=Count("pk"))
        ):
            has = {name for name, is_there in zip(names, flags, strict=True) if is_there}
            present = [STANDS_FOR[name] for name in FLAGS if name in has]
            counted[status, outcome(status, present, _repairs(has), consequential=sent)] += number
        return counted

    @cached_property
    def statuses(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (status, _), number in self.endings.items():
            found[status] += number
        return found

    def _effects(self) -> QuerySet[Effect]:
        """Of these runs; under a policy of effects, those that it is about."""
        rows = Effect.objects.filter(**self.mine)
        if self.stop.policy is None or not self.of_effects:
            return rows
        match = policies.match_of(self.stop.policy)
        return rows.filter(Q(kind_name__in=match.kinds) | Q(op_class__in=match.classes))

    @cached_property
    def effects(self) -> Counter[str]:
        rows = self._effects().order_by().values_list("settlement").annotate(n=Count("pk"))
        return Counter(dict(rows))

    @cached_property
    def doubt(self) -> Doubt:
        if not self.effects[Settlement.UNKNOWN]:
            return Doubt()
        rows = self._effects().filter(settlement=Settlement.UNKNOWN)
        told = rows.aggregate(
            effects=Count("pk"),
            runs=Count("run", distinct=True),
            oldest=Min("unknown_since"),
            next_check=Min("next_check_at"),
            checked=Count("next_check_at"),
        )
        return Doubt(**told)

    @cached_property
    def messages(self) -> Counter[str]:
        rows = Delivery.objects.filter(**self.mine).order_by().values_list("state").annotate(n=Count("pk"))
        return Counter(dict(rows))

    @cached_property
    def in_flight(self) -> Counter[str]:
        """The permits that the stop listed, by how they stand now."""
        listed = Q(stop=self.stop) | Q(stop__in=self.parts.exclude(run_stop=None).values("run_stop"))
        rows = InFlight.objects.filter(listed).order_by().values_list("permit__state")
        return Counter(dict(rows.annotate(n=Count("permit", distinct=True))))

    @cached_property
    def refused(self) -> Refused:
        """How often gates refused since because of it, and when last; repeats counted."""
        return refusals.refused_since(self.stop)

    @cached_property
    def would_refuse(self) -> int:
        return refusals.would_have_refused(self.stop).count if self.stop.observes else 0

    @cached_property
    def unreached(self) -> int:
        """Runs that have not had their turn yet."""
        if self.stop.fenced_at or not (self.stands or self.stop.scope == ScopeKind.BULK):
            return 0
        told = fanout.progress(self.stop)
        return told.total - told.done

    @cached_property
    def reviews(self) -> int:
        """Reviews of these runs that wait for people."""
        return Review.objects.filter(**self.mine, closed_at__isnull=True, expires_at__gt=self.as_of).count()

    @cached_property
    def pressed(self) -> int:
        return Press.objects.filter(stop=self.stop).count()

    @cached_property
    def release(self) -> Release | None:
        """The newest decision to release it, or the wish of one."""
        return Release.objects.filter(stop=self.stop, void_at__isnull=True).order_by("-pk").first()

    @cached_property
    def names(self) -> dict[str, str]:
        asked = [self.release.asked_by, self.release.granted_by] if self.release else []
        return name_actors([self.stop.actor, *asked])

    @cached_property
    def not_permitted(self) -> list[Run]:
        """Runs that it did not stop, for want of a right: the first ones, by name."""
        if not self.results[Result.NOT_PERMITTED]:
            return []
        left = self.parts.filter(result=Result.NOT_PERMITTED).values("run")
        return list(Run.objects.filter(pk__in=left).order_by("name", "pk")[:NAMED])

    @cached_property
    def may_start(self) -> int | None:
        """Runs under the scope that may still start work: 0 once it is fenced, counted afresh.

        None where the question does not arise: a bulk stop, a policy of effects, one that holds no more.
        """
        if not self.stands or self.of_effects or self.stop.observes:
            return None
        return self._under().filter(status=RunStatus.ACTIVE).count()

    def _under(self) -> QuerySet[Run]:
        stop = self.stop
        if stop.policy is not None:
            return policies.matching_runs(stop.policy)
        mine = Run.objects.filter(workspace=stop.workspace_id)
        return mine.filter(session=stop.session_id) if stop.scope == ScopeKind.SESSION else mine

    @property
    def stands(self) -> bool:
        """Whether it holds now, for runs that come later too."""
        over = self.stop.closed_at or self.stop.released_at or self.stop.superseded_by_id
        return self.stop.scope != ScopeKind.BULK and not over

    def states(self, *wanted: str) -> int:
        return sum(self.statuses[state] for state in wanted)

    @property
    def draining(self) -> int:
        return self.states(RunStatus.PAUSING, RunStatus.CANCELLING, RunStatus.CANCELLING_TIMEOUT)

    @property
    def ended(self) -> int:
        return self.states(*FINAL)


# Their part is over at once: nothing of the stop is left to close in them.
WITHOUT_A_STOP = (Result.FINISHED, Result.NOT_PERMITTED, Result.LISTED)


def _of_run(model: Any) -> QuerySet[Any]:
    rows: QuerySet[Any] = model.objects.filter(run=OuterRef("pk"))
    return rows


def _has(settlements: Iterable[str], states: Iterable[str]) -> Q:
    effects = _of_run(Effect).filter(settlement__in=list(settlements))
    return Q(Exists(effects)) | Q(Exists(_of_run(Delivery).filter(state__in=list(states))))


def _mending() -> dict[str, Any]:
    """Whether a run has compensations in such a state; one that failed is open until a later one."""
    mine = _of_run(Compensation)
    later = Compensation.objects.filter(effect=OuterRef("effect"), number__gt=OuterRef("number"))
    failed = mine.filter(~Exists(later), state=CompensationState.FAILED)
    flags = {f"mending_{name.lower()}": Exists(mine.filter(state__in=all_)) for name, all_ in MENDING.items()}
    return {**flags, OPEN_FAILURE: Exists(failed)}


def _repairs(has: set[str]) -> list[Repair]:
    found = [Repair(name) for name in MENDING if f"mending_{name.lower()}" in has]
    return [*found, Repair(CompensationState.FAILED, open=True)] if OPEN_FAILURE in has else found
