"""The rows of one run, read once per page: a fixed number of queries, whatever the run's size.

Lists are bounded; what they leave out is counted, so a page never passes a part off as the whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from dashboard import words
from dashboard.repair_rows import repairs, unanswered
from dashboard.repair_words import STILL
from effects import duplicates
from effects.close import outcome
from effects.models import Approval, Compensation, Delivery, Effect, Review, Settlement
from runs.models import (
    INCONSEQUENTIAL,
    Evidence,
    OperationClass,
    Permit,
    PermitState,
    Refusal,
    Run,
    Step,
    StepStatus,
    StopRequest,
    Token,
    User,
    Worker,
)
from runs.stops import RESUMED

STEPS, EFFECTS, REFUSALS, LINES, LOOKUPS, WORKERS = 40, 60, 40, 200, 300, 20
PERMITS = STEPS * 5
STOPS = 20
DELIVERIES = 60
COMPENSATIONS = 40
LOOKED_UP = "effect.looked_up"
KNOWN = (Settlement.CONFIRMED, Settlement.PARTIAL, Settlement.NOT_APPLIED)
DISPATCHED_EVER = (*KNOWN, Settlement.DISPATCHED, Settlement.UNKNOWN, Settlement.ACCEPTED_UNKNOWN)
OPEN_QUESTIONS = (Settlement.DISPATCHED, Settlement.UNKNOWN)
EFFECTIVE = ("stop.acknowledged", "stop.bound")
QUEUED = (StepStatus.PENDING, StepStatus.CLAIMED, StepStatus.WAITING_APPROVAL)


def first(field: str, *states: str) -> Case:
    """An ordering: rows in one of these states before the rest."""
    ahead = When(**{f"{field}__in": states}, then=Value(0))
    return Case(ahead, default=Value(1), output_field=IntegerField())


def counted(what: str, rows: QuerySet[Any], state: str, number: Any) -> QuerySet[Any, Any]:
    """(what, state, number) per state."""
    named = rows.order_by().annotate(what=Value(what, CharField())).values_list("what", state)
    counted: QuerySet[Any, Any] = named.annotate(number=number)
    return counted


class Facts:
    """Everything the run page and its dialog tell, `as of now`."""

    def __init__(self, run: Run, now: datetime) -> None:
        self.run = run
        self.now = now

    @cached_property
    def stops(self) -> list[StopRequest]:
        """The newest stops of the run, with `presses_n`, oldest first."""
        rows = StopRequest.objects.filter(run=self.run, scope="run").annotate(presses_n=Count("presses"))
        return sorted(rows.order_by("-pk")[:STOPS], key=lambda stop: stop.number)

    @property
    def stop(self) -> StopRequest | None:
        """The stop that holds the run or that ended it; None before one, and after a resume."""
        standing = [
            stop for stop in self.stops if not (stop.superseded_by_id or stop.closed_because == RESUMED)
        ]
        return standing[-1] if standing else None

    @cached_property
    def holds(self) -> list[list[StopRequest]]:
        """Each time that the run was held, oldest first: the stops of it, a stronger one behind a weaker."""
        found: list[list[StopRequest]] = []
        for stop in self.stops:
            if stop.gate_at is None or stop.finished_before:
                continue
            if found and found[-1][-1].superseded_by_id == stop.pk:
                found[-1].append(stop)
            else:
                found.append([stop])
        return found

    @property
    def chain(self) -> list[StopRequest]:
        """The stops of the hold that lasts; empty when the run is not held."""
        last = self.holds[-1] if self.holds else []
        return last if self.stop is not None and self.stop in last else []

    @cached_property
    def _counts(self) -> dict[str, Counter[str]]:
        """Steps, effects and refusals by state, and the permits opened after the stop: one query."""
        told: dict[str, Counter[str]] = {"step": Counter(), "effect": Counter(), "refusal": Counter()}
        told |= {"leak": Counter(), "sent": Counter(), "refused": Counter(), "child": Counter()}
        told |= {"permit": Counter(), "worker": Counter(), "delivery": Counter(), "turn": Counter()}
        told |= {"repair": Counter(), "unanswered": Counter()}
        mine = {"run": self.run}
        steps = counted("step", Step.objects.filter(**mine), "status", Count("pk"))
        messages = counted("delivery", Delivery.objects.filter(**mine), "state", Count("pk"))
        effects = counted("effect", Effect.objects.filter(**mine), "settlement", Count("pk"))
        refusals = counted("refusal", Refusal.objects.filter(**mine), "boundary", Sum("count"))
        refused = counted("refused", Refusal.objects.filter(**mine), "reason", Count("pk"))
        leaks = counted("leak", self._opened_after_stop(), "permit_id", Count("seq"))
        consequential = Permit.objects.filter(**mine).exclude(op_class__in=INCONSEQUENTIAL)
        sent = counted("sent", consequential, "guard", Count("pk"))
        permits = counted("permit", Permit.objects.filter(**mine), "state", Count("pk"))
        asked = Permit.objects.filter(**mine, op_class=OperationClass.MODEL_TURN)
        turns = counted("turn", asked.exclude(state=PermitState.NOT_SENT), "op_class", Count("pk"))
        workers = counted("worker", self._workers(), "holds", Count("pk"))
        family = counted("child", Run.objects.filter(parent=self.run), "status", Count("pk"))
        mending = Compensation.objects.filter(**mine)
        mended = counted("repair", mending, "state", Count("pk"))
        left = counted("unanswered", unanswered(mending), "state", Count("pk"))
        more = (
            mended,
            left,
            family,
            messages,
            effects,
            refusals,
            refused,
            leaks,
            sent,
            permits,
            workers,
            turns,
        )
        for what, state, number in steps.union(*more, all=True):
            told[what][state] += number
        return told

    def _workers(self) -> QuerySet[Any]:
        """Each worker `holds` the version of the stop, or does `not`."""
        version = self.stop.version_after if self.stop else None
        holding = When(confirmed_version__gte=version or 0, then=Value("holds"))
        told = Case(holding, default=Value("not"), output_field=CharField())
        return Worker.objects.filter(run=self.run).annotate(holds=told)

    def _opened_after_stop(self) -> QuerySet[Evidence]:
        """Permits of the ordinary guard behind the line of a stop that had ended their version.

        Lines are numbered under the run's lock: a later number is a later moment, for certain.
        """
        lines = Evidence.objects.filter(stream=self.run.pk)
        if not self.stops:
            return lines.none()
        ended = Evidence.objects.filter(
            stream=self.run.pk,
            kind__in=EFFECTIVE,
            seq__lt=OuterRef("seq"),
            current_version__gte=Coalesce(OuterRef("carried_version"), 0),
        )
        others = Permit.objects.filter(run=self.run).exclude(guard="ordinary").values("pk")
        return lines.filter(Exists(ended), kind="permit.opened").exclude(permit_id__in=others)

    @property
    def step_counts(self) -> Counter[str]:
        return self._counts["step"]

    @property
    def settlements(self) -> Counter[str]:
        return self._counts["effect"]

    @property
    def refused(self) -> Counter[str]:
        """How often each boundary refused, repeats counted."""
        return self._counts["refusal"]

    @property
    def refusals_total(self) -> int:
        """How many different refusals there are, a repeat being the same one."""
        return self._counts["refused"].total()

    @property
    def refusals_left_out(self) -> int:
        return self.refusals_total - len(self.refusals)

    @property
    def open_permits(self) -> int:
        """How many actions are in flight."""
        return self._counts["permit"][PermitState.OPEN]

    @property
    def model_turns(self) -> int:
        """How many model turns were begun."""
        return self._counts["turn"].total()

    @property
    def children(self) -> Counter[str]:
        """Registered child runs by status."""
        return self._counts["child"]

    @property
    def workers_total(self) -> int:
        return self._counts["worker"].total()

    @property
    def workers_holding(self) -> int:
        """How many workers said that they hold the version of the stop."""
        return self._counts["worker"]["holds"]

    @property
    def outcome(self) -> str:
        """The one outcome of these rows, by the same function that closes the run."""
        present = [state for state, number in self.settlements.items() if number]
        messages = [state for state, number in self.messages.items() if number]
        sent = bool(self._counts["sent"].total())
        mending = repairs(self.repairs, self.unanswered)
        return outcome(self.run.status, present, mending, deliveries=messages, consequential=sent)

    @property
    def repairs(self) -> Counter[str]:
        """The run's compensations, by state."""
        return self._counts["repair"]

    @property
    def unanswered(self) -> int:
        """How many compensations failed, and nobody has decided what follows."""
        return self._counts["unanswered"].total()

    @cached_property
    def compensations(self) -> list[Compensation]:
        """The newest, oldest first, each with `line` and `review`. No query where there is none."""
        if not self.repairs.total():
            return []
        about = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("key")).order_by("-seq")
        asked = Review.objects.filter(subject_id=OuterRef("pk")).order_by("-pk")
        given = Q(review__subject_id=OuterRef("pk"), state__in=["GIVEN", "CONSUMED"])
        rows = Compensation.objects.filter(run=self.run).select_related("effect", "permit__step")
        rows = rows.annotate(
            line=Subquery(about.values("seq")[:1]),
            review_id=Subquery(asked.values("pk")[:1]),
            needed=Subquery(asked.values("needed")[:1]),
            given=Subquery(
                Approval.objects.filter(given, review__closed_at__isnull=True)
                .order_by()
                .values("review")
                .annotate(n=Count("pk"))
                .values("n")[:1]
            ),
        )
        chosen = rows.defer("body").order_by(first("state", *STILL), "-pk")[:COMPENSATIONS]
        return sorted(chosen, key=lambda one: one.pk)

    @property
    def messages(self) -> Counter[str]:
        """The run's own deliveries, by state."""
        return self._counts["delivery"]

    @property
    def messages_known(self) -> int:
        """Deliveries of which it is known whether they were handed over."""
        return self.messages["HANDED_OVER"] + self.messages["NOT_HANDED_OVER"]

    @property
    def messages_open(self) -> int:
        """Deliveries that may have been handed over."""
        return self.messages["DISPATCHED"] + self.messages["UNKNOWN"]

    @property
    def message_marks(self) -> list[str]:
        """One word per message that was sent, for the same strip."""
        flying, unknown = self.messages["DISPATCHED"], self.messages["UNKNOWN"]
        unknown += self.messages["ACCEPTED_UNKNOWN"]
        return ["known"] * self.messages_known + ["flight"] * flying + ["unknown"] * unknown

    @cached_property
    def deliveries(self) -> list[Delivery]:
        """Those still open, then the newest; in the order of queueing. No query where there is none.

        `line`: the newest evidence line of each.
        """
        if not self.messages.total():
            return []
        about = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("key"), boundary="deliver")
        line = Subquery(about.order_by("-seq").values("seq")[:1])
        rows = Delivery.objects.filter(run=self.run).defer("body").annotate(line=line)
        chosen = rows.order_by(first("state", "DISPATCHED", "UNKNOWN", "HELD", "QUEUED"), "-pk")[:DELIVERIES]
        return sorted(chosen, key=lambda delivery: delivery.pk)

    @property
    def leaks(self) -> Counter[str]:
        """Permits that were opened after the stop took effect: a breach. Empty, if we are right."""
        return self._counts["leak"]

    @cached_property
    def steps(self) -> list[Step]:
        """Those in flight or unknown, then the newest; in the order of registration."""
        busy = first("status", StepStatus.DISPATCHED, StepStatus.UNKNOWN)
        rows = Step.objects.filter(run=self.run).order_by(busy, "-pk")[:STEPS]
        return sorted(rows, key=lambda step: step.pk)

    @cached_property
    def effects(self) -> list[Effect]:
        """In the order of declaration. Too many: the timeline's, then open questions, then the newest.

        `line`: the newest evidence line of each.
        """
        about = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("key")).order_by("-seq")
        about = about.filter(kind__startswith="effect.")
        asked = Review.objects.filter(effect=OuterRef("pk"), subject="effect").order_by("-pk")
        rows = Effect.objects.filter(run=self.run).select_related("kind").defer("body")
        rows = rows.annotate(line=Subquery(about.values("seq")[:1]), review=Subquery(asked.values("pk")[:1]))
        drawn = first("step", *(step.pk for step in self.steps))
        chosen = rows.order_by(drawn, first("settlement", *OPEN_QUESTIONS), "-pk")[:EFFECTS]
        return sorted(chosen, key=lambda effect: effect.pk)

    @cached_property
    def permits(self) -> list[Permit]:
        """Permits of the steps shown, and open ones: those, then the newest, if they are too many."""
        shown = Q(step__in=[step.pk for step in self.steps]) | Q(state=PermitState.OPEN)
        rows = Permit.objects.filter(shown, run=self.run).order_by(first("state", PermitState.OPEN), "-pk")
        return sorted(rows[:PERMITS], key=lambda permit: permit.pk)

    @cached_property
    def refusals(self) -> list[Refusal]:
        return list(Refusal.objects.filter(run=self.run).order_by("first_at", "pk")[:REFUSALS])

    @cached_property
    def workers(self) -> list[Worker]:
        """Those first who did not confirm the newest version, by name."""
        lagging = F("confirmed_version").asc(nulls_first=True)
        return list(Worker.objects.filter(run=self.run).order_by(lagging, "name")[:WORKERS])

    @cached_property
    def _lines(self) -> list[Evidence]:
        """The newest lines, and the look-ups of the effects that are drawn: one query, oldest first."""
        mine = Evidence.objects.filter(stream=self.run.pk)
        last = Coalesce(Subquery(mine.order_by("-seq").values("seq")[:1]), 0)
        drawn = {step.pk for step in self.steps}
        keys = [effect.key for effect in self.effects if effect.step_id in drawn and effect.dispatched_at]
        newest = Q(stream=self.run.pk, seq__gt=last - LINES)
        asked = Q(stream=self.run.pk, effect_key__in=keys, kind=LOOKED_UP)
        found = Evidence.objects.filter(newest | asked).order_by("-seq")[: LINES + LOOKUPS]
        return sorted(found, key=lambda line: line.seq)

    @property
    def lines(self) -> list[Evidence]:
        """The newest evidence lines, oldest first."""
        return [line for line in self._lines if line.seq > self.last_seq - LINES]

    @property
    def lookups(self) -> dict[str, list[datetime]]:
        """When each effect on the timeline was looked up, the newest look-ups if they are too many."""
        told: dict[str, list[datetime]] = defaultdict(list)
        for line in self._lines:
            if line.kind == LOOKED_UP:
                told[line.effect_key].append(line.at)
        return told

    @property
    def last_seq(self) -> int:
        return self._lines[-1].seq if self._lines else 0

    @cached_property
    def names(self) -> dict[str, str]:
        """What a page calls the actors of the stops, and who resumed last."""
        return name_actors([*(stop.actor for stop in self.stops), self.resumed.actor if self.resumed else ""])

    @cached_property
    def resumed(self) -> Evidence | None:
        """The line of the newest resume; asked for only where a stop was ended by one."""
        if not any(stop.closed_because == RESUMED for stop in self.stops):
            return None
        return Evidence.objects.filter(stream=self.run.pk, kind="run.resumed").order_by("-seq").first()

    def who(self, stop: StopRequest) -> str:
        """The name of the one who asked for a stop."""
        return words.clean(self.names.get(stop.actor, stop.actor))

    # counts that read like words ------------------------------------------------------------

    @property
    def known(self) -> int:
        return sum(self.settlements[state] for state in KNOWN)

    @property
    def dispatched(self) -> int:
        """Effects that were ever sent under a permit."""
        return sum(self.settlements[state] for state in DISPATCHED_EVER)

    @cached_property
    def duplicates(self) -> str:
        """How many keys held more than one object at their provider; no query where none was counted."""
        some = any(effect.counted is not None for effect in self.effects)
        return duplicates.known(run_id=self.run.pk).sentence if some else ""

    @property
    def open_questions(self) -> int:
        return sum(self.settlements[state] for state in OPEN_QUESTIONS)

    @property
    def unknown(self) -> int:
        return self.settlements[Settlement.UNKNOWN]

    @property
    def queued(self) -> int:
        return sum(self.step_counts[state] for state in QUEUED)

    @property
    def refused_total(self) -> int:
        return sum(self.refused.values())

    @property
    def marks(self) -> list[str]:
        """One word per effect for a strip, known ones first."""
        return marks(self.settlements)


MARK: dict[str, str] = {
    Settlement.CONFIRMED: "known",
    Settlement.PARTIAL: "partial",
    Settlement.NOT_APPLIED: "denied",
    Settlement.DISPATCHED: "flight",
    Settlement.UNKNOWN: "unknown",
    Settlement.ACCEPTED_UNKNOWN: "unknown",
    Settlement.DECLARED: "none",
    Settlement.NOT_STARTED: "none",
}


def marks(settlements: Counter[str]) -> list[str]:
    """Strip marks of settlement counts, in the order of MARK."""
    return [mark for state, mark in MARK.items() for _ in range(settlements[state])]


def name_actors(actors: Iterable[str]) -> dict[str, str]:
    """Actor ids as names: people by name, tokens by theirs, the rest as they are. Two queries."""
    ids = {actor for actor in actors if actor}
    people = {i.removeprefix("user:") for i in ids if i.startswith("user:")}
    tokens = {i.removeprefix("token:") for i in ids if i.startswith("token:")}
    named = {i: i for i in ids} | words.OURS
    if people:
        named |= {f"user:{u.pk}": str(u) for u in User.objects.filter(pk__in=people)}
    if tokens:
        named |= {f"token:{t.pk}": f"token “{t.name}”" for t in Token.objects.filter(pk__in=tokens)}
    return named
