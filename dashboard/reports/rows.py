"""The rows of one run, read in eight queries whatever its size (nine where a model was asked, two or three
more where something was compensated). No sentences.

The newest evidence line is read first: a change that commits later has a later line, so whoever
locks the run afterwards and finds no later line knows that these rows were one moment's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import (
    BinaryField,
    Case,
    Count,
    Exists,
    F,
    Func,
    JSONField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, RowNumber

from dashboard.repair_rows import unanswered
from dashboard.restored import missing
from effects import duplicates
from effects.intents import may_retry
from effects.models import Compensation, Delivery, Effect, Review, Settlement
from effects.models import Report as ReportRow
from effects.review_tables import Subject
from runs import gates, receipts
from runs.cleanup import CLEANUP
from runs.models import (
    INCONSEQUENTIAL,
    Evidence,
    EvidencePayload,
    InFlight,
    OperationClass,
    Permit,
    PermitState,
    Press,
    Refusal,
    Run,
    RunStatus,
    ScopeKind,
    Step,
    StepStatus,
    StopRequest,
    Turn,
    Worker,
)
from runs.stops import RESUMED

from .lines import EFFECTIVE, ENDS, LATE, LATE_ROWS, MOMENTS, late_lines
from .mending import NO_REPAIRS, RepairRows
from .queries import counted, first, name_actors, newest, only_where, outcome_and_final, plain, read_run

CLAIMS = 200  # sentences of one kind; further effects stand in the manifest alone
LOG = 1000
IN_FLIGHT = 500
WORKERS = 100
PRESSES = 50
TURNS = 200
REVIEWS = 50
CITED = 5  # lines behind one summary sentence

SETTLING = tuple(f"effect.{value.lower()}" for value in Settlement.values)
DOUBTFUL = (Settlement.UNKNOWN, Settlement.DISPATCHED)
NO_PLAN = b'{"none_because"'  # how a declared "none" begins in its canonical JSON
FIRSTS = (
    *("withheld_first", "withheld_last", "held_first", "after_end", "tried_first"),
    *("unexplained_first", "retry_line", "turn_first", "late_yes_first"),
)
TRIES_TO_END = ("completion.refused", "failure.refused")


class Rows:
    """Everything a report tells, as it is now. `most` bounds manifest and log for a page."""

    def __init__(self, run_id: str, most: int | None = None) -> None:
        self.most = most
        self.run = read_run(run_id)
        self.as_of: datetime = self.run.as_of
        self.upto_seq: int = self.run.last_seq or 0
        pressed = self._read_presses()
        self.presses = [press for press in pressed if press.stop.scope == ScopeKind.RUN]
        self.stops = list({press.stop.pk: press.stop for press in self.presses}.values())
        of_steps = {press.stop.pk: press.stop for press in pressed if press.stop.scope == ScopeKind.STEP}
        self.step_stops = sorted(of_steps.values(), key=lambda stop: stop.number)
        self.effects = self._read_effects()
        some = any(effect.counted is not None for effect in self.effects)
        self.duplicates = duplicates.known(run_id=run_id) if some else duplicates.Known()
        self._settled: dict[str, list[Any]] = defaultdict(list)
        for effect in self.effects:
            self._settled[effect.settlement].append(effect)
        self.refusals = list(self._read_refusals())
        self.in_flight: list[Any] = list(self._read_in_flight())
        self.tally, self.workers, self.versions = self._read_tally()
        self.turns = self._read_turns()
        timed_out = self.run.status == RunStatus.CANCELLING_TIMEOUT
        self.cleanup = self._read_cleanup() if self.tally["cleanup"] else []
        self.busy = receipts.still_in(self.run) if timed_out else []
        self.reviews = self._read_reviews() if self.tally["review"] else []
        self.repairs = RepairRows(self.run) if self.tally["repair"] else NO_REPAIRS
        self.lines: dict[int, Any] = {line.seq: line for line in self._read_lines()}
        self.names = self._read_names()
        self.by_kind = self._by_kind()

    @property
    def held_back(self) -> bool:
        """Whether every gate refuses the run, though it is active: the one above it was shut."""
        return gates.holds_back(self.run.workspace, self.run)

    @property
    def missing(self) -> str:
        """What a restore lost of this run, in a sentence; "" when there was none since its admission."""
        if self.run.restored_at is None:
            return ""
        return missing(self.run.restored_from, self.run.restored_at)

    @property
    def stop(self) -> StopRequest | None:
        """The newest stop that took effect on this run; one of a finished run if there is no other.

        It may be over: superseded it is not, ended by a resume perhaps.
        """
        effective = [stop for stop in self.stops if not stop.finished_before]
        return next(iter(effective or self.stops), None)

    @property
    def in_force(self) -> StopRequest | None:
        """The stop that holds the run or that ended it: none that came after the end or was resumed."""
        last = self.holds[-1][-1] if self.holds else None
        return last if last is not None and last.closed_because != RESUMED else None

    @cached_property
    def holds(self) -> list[list[StopRequest]]:
        """Each time that the run was held, oldest first: the stops of it, a stronger one behind a weaker."""
        found: list[list[StopRequest]] = []
        for stop in sorted(self.stops, key=lambda stop: stop.number):
            if stop.gate_at is None or stop.finished_before:
                continue
            if found and found[-1][-1].superseded_by_id == stop.pk:
                found[-1].append(stop)
            else:
                found.append([stop])
        return found

    @property
    def chain(self) -> list[StopRequest]:
        """The stops of the hold that lasts, the first one first; empty when the run is not held."""
        return self.holds[-1] if self.in_force is not None else []

    @property
    def effective_line(self) -> int:
        """The line with which the run was held; a later number is a later moment. 0: it is not held."""
        return self.line_of(self.chain[0]) if self.chain else 0

    def line_of(self, stop: StopRequest) -> int:
        """The line with which this stop took effect."""
        mine = [line.seq for line in self.all_of(*EFFECTIVE) if line.stop_id == stop.pk]
        return min(mine, default=0)

    @property
    def final_line(self) -> int:
        """The line that ended the run, 0 while it has not ended."""
        return max((line.seq for line in self.all_of(*ENDS)), default=0)

    def all_of(self, *kinds: str) -> list[Any]:
        """The read lines of these kinds, oldest first."""
        return sorted((line for kind in kinds for line in self.by_kind[kind]), key=lambda line: line.seq)

    @property
    def leaks(self) -> list[Any]:
        """The lines of permits that were opened although a stop was in force: a breach, unless to tidy up."""
        tidied = {step.line for step in self.cleanup}
        stopped = [(line.seq, line.current_version or 0) for line in self.all_of(*EFFECTIVE)]
        return [
            line
            for line in self.all_of("permit.opened")
            if line.seq not in tidied
            and any(seq < line.seq and version >= (line.carried_version or 0) for seq, version in stopped)
        ]

    def seqs(self, *kinds: str) -> list[int]:
        return [line.seq for line in self.all_of(*kinds)][:CITED]

    def count(self, what: str, *names: str) -> int:
        """A number of the tally: of these names, or of all."""
        mine = self.tally[what]
        return sum(mine[name] for name in (names or mine) if name in mine)

    def settled_as(self, *settlements: str) -> list[Any]:
        """The effects with these settlements that may have a sentence of their own, oldest first."""
        found = [effect for settlement in settlements for effect in self._settled[settlement][:CLAIMS]]
        return sorted(found, key=lambda effect: str(effect.pk))

    # the queries --------------------------------------------------------------------------------

    def _read_presses(self) -> list[Press]:
        """The first presses of each stop, so that one that was pressed often hides none before it."""
        turn = Window(RowNumber(), partition_by=F("stop_id"), order_by=F("pk").asc())
        presses = Press.objects.filter(stop__run=self.run).select_related("stop__step").annotate(turn=turn)
        chosen = presses.order_by("turn", "-stop_id")[:PRESSES]
        return sorted(chosen, key=lambda press: (-press.stop.number, press.pk))

    def _read_effects(self) -> list[Any]:
        lines = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("key")).order_by("-seq")
        rows = self._effects().annotate(
            line=newest(lines.filter(kind__in=SETTLING)),
            looked=newest(lines.filter(kind="effect.looked_up")),
            sent=newest(lines.filter(kind="effect.dispatched")),
            again=F("kind__retry_after_s"),
            reversible=F("kind__reversible"),
            provider=F("kind__provider"),
            polled=F("kind__lookup__poll"),
            part=Case(When(settlement=Settlement.PARTIAL, then=F("items")), output_field=JSONField()),
        )
        if self.most is None:
            return list(rows.order_by("pk").values_list(*EFFECT, named=True))
        chosen = rows.order_by(first(Q(settlement__in=DOUBTFUL)), "pk")[: self.most]
        return sorted(chosen.values_list(*EFFECT, named=True), key=lambda effect: str(effect.pk))

    def _effects(self) -> QuerySet[Any]:
        begins = Func(F("plan"), 1, len(NO_PLAN), function="SUBSTR", output_field=BinaryField())
        rows: QuerySet[Any] = Effect.objects.filter(run=self.run).annotate(plan_begins=begins)
        return rows

    def _read_refusals(self) -> Iterable[Refusal]:
        """Those of the stop first, when they are too many; in the order of time."""
        rows = Refusal.objects.filter(run=self.run).order_by(first(self._of_stop()), "first_at", "pk")
        chosen = rows[: min(LOG, self.most or LOG)]
        return sorted(chosen, key=lambda refusal: (refusal.first_at, refusal.pk))

    def _of_stop(self) -> Q:
        """Refusals at the version from which the run is held, or a later one."""
        return Q(current_version__gte=self.chain[0].version_after) if self.chain else Q(pk__isnull=True)

    def after_stop(self, refusal: Refusal) -> bool:
        """The same of a row that was read."""
        first = self.chain[0] if self.chain else None
        return bool(first and (refusal.current_version or 0) >= (first.version_after or 0))

    def _read_in_flight(self) -> Iterable[InFlight]:
        about = Effect.objects.filter(run=self.run, key=OuterRef("permit__effect_key"))
        lines = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("permit__effect_key"))
        rows = self._listed().annotate(
            effect_id=Subquery(about.values("pk")[:1]),
            effect_title=Subquery(about.values("title")[:1]),
            settlement=Subquery(about.values("settlement")[:1]),
            line=newest(lines.filter(kind__in=SETTLING).order_by("-seq")),
        )
        return rows.select_related("permit__step").order_by("pk")[:IN_FLIGHT]

    def _listed(self) -> QuerySet[InFlight]:
        """What the stops of this hold have listed; a permit in two lists once, as it stood first."""
        lists = InFlight.objects.filter(stop__in=self.chain)
        return lists.exclude(Exists(lists.filter(permit=OuterRef("permit"), pk__lt=OuterRef("pk"))))

    def _read_tally(self) -> tuple[dict[str, dict[str, Any]], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Everything that is counted, the workers and the issued versions: one statement."""
        told: dict[str, dict[str, Any]] = defaultdict(dict)
        workers: list[tuple[Any, ...]] = []
        versions: list[tuple[Any, ...]] = []
        one, *rest = self._counted()
        for what, name, number, at in one.union(*rest, all=True):
            if what == "worker":
                workers.append((name, number, at))
            elif what == "version":
                versions.append((number, at, name))
            else:
                told[what][name] = at if what in ("first", "retry_at") else number
        return told, sorted(workers), sorted(versions, reverse=True)

    def _read_reviews(self) -> list[Any]:
        """The oldest reviews with their effects, their newest line, and what it says."""
        mine = Evidence.objects.filter(stream=self.run.pk, effect_key=OuterRef("effect_key"))
        line = newest(mine.filter(kind__startswith="review.").order_by("-seq"))
        bodies = EvidencePayload.objects.filter(stream=self.run.pk, seq=OuterRef("line"))
        given = Count("approvals", filter=Q(approvals__state="GIVEN"))
        of_effect = {name: F(f"effect__{name}") for name in ("title", "amount", "target")}
        rows = self._reviews().annotate(line=line, given=given, **of_effect)
        told = rows.annotate(body=Subquery(bodies.values("body")[:1])).order_by("pk")[:REVIEWS]
        return list(told.values_list(*REVIEW, named=True))

    def _reviews(self) -> QuerySet[Review]:
        """Those of effects before they are sent; a compensation tells of its own."""
        return Review.objects.filter(run=self.run, subject=Subject.EFFECT)

    def _read_cleanup(self) -> list[Any]:
        """Steps that tidied up under the cleanup guard, each with the line of its first permit."""
        opened = Permit.objects.filter(step=OuterRef("pk"), guard=CLEANUP).order_by("pk").values("pk")[:1]
        lines = Evidence.objects.filter(stream=self.run.pk, kind="permit.opened", permit_id=OuterRef("first"))
        rows = Step.objects.filter(run=self.run).annotate(first=Subquery(opened)).exclude(first=None)
        told = rows.annotate(line=Subquery(lines.values("seq")[:1])).order_by("pk")[:CITED]
        return list(told.values_list("name", "status", "line", named=True))

    def _read_turns(self) -> list[Any]:
        """Model turns that were begun, without the text of their output."""
        if not self.tally["begun"].get(OperationClass.MODEL_TURN):
            return []
        rows = Permit.objects.filter(run=self.run, op_class=OperationClass.MODEL_TURN)
        rows = rows.exclude(state=PermitState.NOT_SENT).select_related("step", "turn").defer("turn__output")
        return list(rows.order_by("pk")[: min(TURNS, self.most or TURNS)])

    def _counted_turns(self) -> Iterable[QuerySet[Any, Any]]:
        """Whose spend was told, the sums of it, and how many outputs are kept and dropped."""
        told = Turn.objects.filter(permit__run=self.run)
        spent = told.exclude(model="", cost="", tokens_in=None, tokens_out=None)
        word = Case(When(output_kept=True, then=Value("kept")), default=Value("dropped"))
        cut = told.filter(output_size__isnull=False).annotate(fate=word)
        reported = Evidence.objects.filter(
            stream=self.run.pk, boundary="model", kind__startswith="permit.reported"
        )
        yield counted("turn_told", spent, "model", Count("pk"))
        yield counted("tokens_in", spent, "model", Coalesce(Sum("tokens_in"), 0))
        yield counted("tokens_out", spent, "model", Coalesce(Sum("tokens_out"), 0))
        yield counted("cut_off", cut, "fate", Count("pk"))
        yield counted("turn_first", reported, "boundary", Min("seq"))

    def _counted(self) -> Iterable[QuerySet[Any, Any]]:
        mine = {"run": self.run}
        permits, refusals = Permit.objects.filter(**mine), Refusal.objects.filter(**mine)
        ours = refusals.filter(self._of_stop()) if self.in_force else refusals
        begun = permits.filter(op_class__in=INCONSEQUENTIAL).exclude(state=PermitState.NOT_SENT)
        lines = Evidence.objects.filter(stream=self.run.pk)
        withheld = lines.filter(kind="step.withheld")
        tried = lines.filter(kind__in=TRIES_TO_END)
        held = lines.filter(kind="step.held")
        odd = lines.filter(kind="step.unknown", step_id__in=self._unexplained())
        yield counted("step", Step.objects.filter(**mine), "status", Count("pk"))
        yield counted("effect", Effect.objects.filter(**mine), "settlement", Count("pk"))
        waiting = Step.objects.filter(**mine, status=StepStatus.RETRY_WAIT)
        failed = Step.objects.filter(may_retry(), **mine, status=StepStatus.FAILED)
        yield counted("again", failed, "status", Count("pk"))
        yield counted("retry_at", waiting, "status", Count("pk"), Min("due_at"))
        yield from self._counted_turns()
        late_yes = lines.filter(kind="approval.late")
        yield counted("review", self._reviews(), "closed_as", Count("pk"))
        mending = Compensation.objects.filter(**mine)
        yield counted("repair", mending, "state", Count("pk"))
        yield counted("unanswered", unanswered(mending), "state", Count("pk"))
        yield counted("late_yes", late_yes, "kind", Count("seq"))
        yield counted("late_yes_first", late_yes, "kind", Min("seq"))
        yield counted("retry_line", lines.filter(kind="retry.scheduled"), "kind", Max("seq"))
        yield counted("delivery", Delivery.objects.filter(**mine), "state", Count("pk"))
        yield counted("delivery_line", lines.filter(kind__startswith="delivery."), "kind", Max("seq"))
        effects = self._effects()
        done = effects.filter(settlement__in=[Settlement.CONFIRMED, Settlement.PARTIAL])
        checking = effects.filter(settlement=Settlement.UNKNOWN, next_check_at__isnull=False)
        alone = done.filter(compensations__isnull=True)
        yield counted("planned", alone.exclude(plan_begins__in=[b"", NO_PLAN]), "settlement", Count("pk"))
        yield counted("checking", checking, "settlement", Count("pk"))
        yield counted("refused", ours, "boundary", Count("pk"))
        yield counted("asked", ours, "boundary", Sum("count"))
        yield counted("refusal", refusals, "boundary", Count("pk"))
        yield counted("first", ours, "reason", Count("pk"), Min("first_at"))
        yield counted("begun", begun, "op_class", Count("pk"))
        yield counted("lost", begun.filter(state=PermitState.LOST), "op_class", Count("pk"))
        yield counted("sent", permits.exclude(op_class__in=INCONSEQUENTIAL), "guard", Count("pk"))
        yield counted("cleanup", permits.filter(guard=CLEANUP), "guard", Count("pk"))
        yield counted("child", Run.objects.filter(parent=self.run), "status", Count("pk"))
        yield counted("open", permits.filter(state=PermitState.OPEN), "worker", Count("pk"))
        yield counted("press", Press.objects.filter(stop=self.stop), "answer", Count("pk"))
        yield counted("in_flight", self._listed(), "state_then", Count("pk"))
        yield counted("late", late_lines(lines), "kind", Count("seq"))
        yield counted("leak", self._leaks(), "kind", Count("seq"))
        yield counted("withheld", withheld, "kind", Count("seq"))
        yield counted("withheld_first", withheld, "kind", Min("seq"))
        yield counted("withheld_last", withheld, "kind", Max("seq"))
        yield counted("held", held, "kind", Count("seq"))
        yield counted("held_first", held, "kind", Min("seq"))
        yield counted("tried", tried, "kind", Count("seq"))
        yield counted("tried_first", tried, "stream", Min("seq"))
        yield counted("unexplained", self._unexplained(), "status", Count("pk"))
        yield counted("unexplained_first", odd, "kind", Min("seq"))
        yield counted("after_end", lines.filter(kind="stop.after_end"), "kind", Min("seq"))
        yield plain("worker", Worker.objects.filter(**mine), "name", "confirmed_version", "last_heard_at")
        issued = ReportRow.objects.filter(**mine).annotate(told=outcome_and_final())
        yield plain("version", issued, "told", "version", "issued_at")

    def _unexplained(self) -> QuerySet[Step]:
        """Steps that are unknown without an effect or a message that would say why."""
        doubted = Effect.objects.filter(
            step=OuterRef("pk"), settlement__in=(*DOUBTFUL, Settlement.ACCEPTED_UNKNOWN)
        )
        told = Delivery.objects.filter(permit__step=OuterRef("pk"))
        mending = Compensation.objects.filter(permit__step=OuterRef("pk"))
        unsaid = ~Exists(doubted) & ~Exists(told) & ~Exists(mending)
        return Step.objects.filter(unsaid, run=self.run, status=StepStatus.UNKNOWN)

    def _leaks(self) -> QuerySet[Evidence]:
        """Permits of the ordinary guard that were opened behind the line of a stop, at its version or an
        older one; of any stop, also of one that was resumed since.

        By line number, which is given under the run's lock, and by version: no clock is asked.
        """
        lines = Evidence.objects.filter(stream=self.run.pk)
        if not self.holds:
            return lines.none()
        ended = Evidence.objects.filter(
            stream=self.run.pk,
            kind__in=EFFECTIVE,
            seq__lt=OuterRef("seq"),
            current_version__gte=OuterRef("carried_version"),
        )
        others = Permit.objects.filter(run=self.run).exclude(guard="ordinary").values("pk")
        return lines.filter(Exists(ended), kind="permit.opened").exclude(permit_id__in=others)

    def _read_lines(self) -> QuerySet[Evidence]:
        """The run's moments, late reports, breaches, and each line that a claim may cite."""
        lines = Evidence.objects.filter(stream=self.run.pk)
        late = late_lines(lines).order_by("seq").values("seq")[:LATE_ROWS]
        leaks = self._leaks().order_by("seq").values("seq")[:CLAIMS]
        listed = InFlight.objects.filter(stop__in=self.chain).values("permit_id")
        of_permit = Q(effect_key="", kind__startswith="permit.", permit_id__in=listed)
        chosen = Q(kind__in=MOMENTS) | Q(seq__in=late) | Q(seq__in=leaks) | of_permit
        bodies = EvidencePayload.objects.filter(stream=self.run.pk, seq=OuterRef("seq"))
        told = Permit.objects.filter(pk=OuterRef("permit_id"))
        return lines.filter(chosen | Q(seq__in=self._cited())).annotate(
            body=only_where(Q(kind="effect.looked_up"), Subquery(bodies.values("body")[:1])),
            outcome=only_where(Q(kind__in=LATE), Subquery(told.values("outcome")[:1])),
        )

    def _cited(self) -> list[int]:
        found = {
            line for group in Settlement.values for effect in self.settled_as(group) for line in of(effect)
        }
        found |= {refusal.evidence_seq for refusal in self.refusals_of_stop()[:CITED]}
        found |= {row.line for row in self.in_flight[:CLAIMS]}
        found |= {review.line for review in self.reviews} | self.repairs.lines
        found |= {step.line for step in self.cleanup}
        found |= {self.count(what) for what in FIRSTS} | set(self.tally["delivery_line"].values())
        return sorted(seq for seq in found if seq)

    def refusals_of_stop(self) -> list[Refusal]:
        """Those that the stop caused; all of them where no stop was in force."""
        return [refusal for refusal in self.refusals if not self.in_force or self.after_stop(refusal)]

    def _read_names(self) -> dict[str, str]:
        """Actor ids as names, read now: an issued version keeps ids only."""
        return name_actors(
            {press.actor for press in self.presses}
            | {line.actor for line in self.lines.values()}
            | self.repairs.actors
        )

    def _by_kind(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for line in self.lines.values():
            found[line.kind].append(line)
        return found


REVIEW = (
    *("pk", "effect_key", "title", "amount", "target", "needed", "given", "closed_as", "granted_at"),
    *("expires_at", "line", "body"),
)
EFFECT = (
    *("pk", "key", "title", "target", "amount", "kind_name", "op_class", "settlement", "ground"),
    *("contradicted", "late", "attempt", "provider_ref", "why_unknown", "job_state", "seen_twice", "counted"),
    *("dispatched_at", "settled_at", "unknown_since", "next_check_at", "check_until", "checks"),
    *("line", "looked", "sent", "part", "plan_begins", "again"),
    *("job_at", "asks_about_id", "reversible", "provider", "polled"),
)


def of(effect: Any) -> tuple[int | None, int | None, int | None]:
    """The lines that a sentence about this effect may cite."""
    return effect.sent, effect.looked, effect.line
