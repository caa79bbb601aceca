"""Rules of those that work: admission, claims, dispatches, looks, sends, reports, retries, deaths."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from effects import deliveries, ends, intents, retries, settle
from effects.deliveries import Message, NoRetry, Queued
from effects.drain import drain_run
from effects.ends import NotQuiet
from effects.intents import Intention, OfAnotherStep, StepTaken
from effects.models import Delivery, Effect, Review
from effects.settle import AlreadyReported, Told
from runs import gate
from runs import retries as gate_retries
from runs.access import EXECUTOR
from runs.admission import Admitted
from runs.guard import Ask, Known, Opened, Refusal, Waiting
from runs.models import InFlight, Permit, Run, Step, StopRequest

from .base import CHARGE, PERMIT_S, PLAN, STEPS_S, TRANSFER, Protocol
from .outside import HOW
from .promises import keep
from .reference import Call, RunRef

KEYS = ("a", "b", "c")
BODY = b'{"amount": 100}'
small = st.integers(0, 5)


class Workers(Protocol):
    """A worker's memory is a `Call` or a claimed step; it may halt for as long as it likes between rules."""

    def start_with(self, first: str, scene: str) -> None:
        self._admit(session=first in ("session", "both"), gold=first in ("gold", "both"), owner="")

    def has_step(self, status: str) -> bool:
        return any(step.status == status for step in self.rows.steps)

    def has_message(self, state: str) -> bool:
        return any(one == state for _, one in self.rows.deliveries)

    def has_effect(self, *settlements: str) -> bool:
        return any(one.settlement in settlements for one in self.rows.effects.values())

    # --- admission ------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.refs) < 3)
    @rule(session=st.booleans(), gold=st.booleans(), owner=st.sampled_from(["", "", "bob"]))
    def admit(self, session: bool, gold: bool, owner: str) -> None:
        self._admit(session, gold, owner)

    def _admit(self, session: bool, gold: bool, owner: str) -> None:
        key = f"run-{len(self.refs)}"
        scopes = {"workspace", *(["session"] if session else []), *(["gold"] if gold else [])}
        labels = {"tier": "gold"} if gold else {}
        answer = self.world.admit(key, session="nightly" if session else "", labels=labels)
        is_shut = bool(scopes & self.shut)
        keep(isinstance(answer, Admitted) != is_shut, "I19", f"admitted: {not is_shut} was said")
        self.count("admitted" if isinstance(answer, Admitted) else "admission refused")
        if not isinstance(answer, Admitted):
            return
        pk = answer.run.pk
        if owner:
            Run.objects.filter(pk=pk).update(owner=self.team.people[owner].user)
        self.refs[pk] = RunRef(pk, scopes, owner, goes_on=key not in self.waiting)
        keep((answer.run.status == "ACTIVE") == (key not in self.waiting), "I17", "born as no stop had come")

    # --- claims, dispatches ---------------------------------------------------------------------------------

    @rule(n=small, key=st.sampled_from(["s", "t"]), stale=st.booleans())
    def claim(self, n: int, key: str, stale: bool) -> None:
        run = self.run_of(n)
        seen = max(1, run.cancel_version - 1) if stale else run.cancel_version
        answer = gate.claim(self.world.ask(run, step_key=key, seen_version=seen))
        if isinstance(answer, Step):
            keep(self.may_start(run.pk) and seen == run.cancel_version, "I1", "claimed", run.status)
            self.claims.append(answer)
        self.count(f"claim {type(answer).__name__}")

    @rule(
        n=small,
        key=st.sampled_from(KEYS),
        kind=st.sampled_from([CHARGE, CHARGE, TRANSFER]),
        stale=st.integers(0, 5),
        ask_people=st.integers(0, 4),
        far=st.sampled_from([0, 1, 2, 3, 3]),
        how=st.sampled_from(HOW),
    )
    def work(self, n: int, key: str, kind: str, stale: int, ask_people: int, far: int, how: str) -> None:
        """Register and dispatch in one call; then go on as `far` as it comes before it halts or dies."""
        run = self.run_of(n)
        seen = run.cancel_version if stale else max(1, run.cancel_version - 1)
        self._work(run, key, kind, seen, 0 if ask_people else 1, far, how)

    def _work(self, run: Run, key: str, kind: str, seen: int, approvals: int, far: int, how: str) -> None:
        kept = Effect.objects.filter(run=run, key=key).first()
        kind = kept.kind_name if kept else kind
        ask = self.world.ask(run, step_key=key, seen_version=seen)
        new = Intention(key, kind, BODY, PLAN, approvals=0 if kept else approvals)
        call = self._dispatched(run, key, kind, seen, intents.dispatch(ask, new))
        if call is not None:
            self._go_on(call, far, how)

    @precondition(lambda self: self.claims)
    @rule(n=small, key=st.sampled_from(["x", "y"]))
    def dispatch_claimed(self, n: int, key: str) -> None:
        step = self.pick_of(self.claims, n)
        assert step is not None
        self._under(step, key)

    def _under(self, step: Step, key: str) -> None:
        ask, key = self.world.ask_of(step), f"{key}-{step.key}"
        ask = Ask(**{**vars(ask), "seen_version": step.claim_version or 1})
        answer = intents.dispatch(ask, Intention(key, TRANSFER, BODY, PLAN))
        run = Run.objects.get(pk=step.run_id)
        self._dispatched(run, key, TRANSFER, step.claim_version or 1, answer)

    @rule(n=small, key=st.sampled_from(KEYS))
    def declare(self, n: int, key: str) -> None:
        run = self.run_of(n)
        if not Effect.objects.filter(run=run, key=key).exists():
            intents.declare(self.world.ask(run, step_key=key), Intention(key, CHARGE, BODY, PLAN))

    def _dispatched(self, run: Run, key: str, kind: str, seen: int, answer: Any) -> Call | None:
        self.count(f"dispatch {getattr(answer, 'reason', '') or type(answer).__name__}")
        if not isinstance(answer, Opened):
            return None
        step = Step.objects.get(pk=answer.step.pk)
        keep(self.may_start(run.pk, kind), "I1", "opened, and people had stopped it", run.status)
        keep(seen == run.cancel_version, "I1", "opened at another version", seen, run.cancel_version)
        keep(step.stopped_at is None, "I1", "opened under a step that was stopped")
        self._allowed(run, answer)
        call = Call(answer.permit, run.pk, key, "effect", kind, self.now_s, BODY)
        self.calls.append(call)
        return call

    def _allowed(self, run: Run, opened: Opened) -> None:
        """I14: where people decide first, they did, and each said it of these bytes."""
        review = Review.objects.filter(effect=opened.subject, subject="effect").order_by("-pk").first()
        if review is None:
            return
        good = self.counting(review.effect_id, (BODY,), run.pk, set())
        keep(len(good) >= review.needed, "I14", f"sent with {good} of {review.needed}")
        self.yes.pop(review.effect_id, None)
        self.count("sent as approved")

    # --- look, send, report ---------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(n=small, far=st.integers(1, 3), how=st.sampled_from(HOW), honest=st.integers(0, 11))
    def go_on(self, n: int, far: int, how: str, honest: int) -> None:
        """Whoever halted wakes up: the second look, the send, the report."""
        call = self.pick_of(self.calls, n)
        assert call is not None
        self._go_on(call, far, how, honest > 0)

    def _go_on(self, call: Call, far: int, how: str, honest: bool = True) -> None:
        for _ in range(far):
            if call.came == "opened":
                self._second_look(call)
            elif call.came == "looked":
                self._send(call, how)
            elif call in self.calls:
                self._say(call, honest)

    def _second_look(self, call: Call) -> None:
        answer = self._look(call)
        self.count(f"look {answer}")
        if answer != "open":
            call.came, call.answer = "answered", "not_sent"
            return
        keep(self._still_open(call), "I7", "the look said open, and it was shut or over", call.matter)
        call.came = "looked"

    def _look(self, call: Call) -> str:
        return gate.look(call.permit.pk, call.permit.token).answer

    def _still_open(self, call: Call) -> bool:
        run = Run.objects.get(pk=call.run_id)
        if self.now_s - call.at_s >= PERMIT_S or run.cancel_version != call.permit.seen_version:
            return False
        step = Step.objects.get(pk=call.permit.step_id)
        return self.may_start(run.pk, call.kind, queued=call.matter == "delivery") and not step.stopped_at

    def _send(self, call: Call, how: str) -> None:
        self._is_listed(call)
        self._as_approved(call)
        call.answer, call.came = self.bank.call(call.wire_key, how), "answered"
        self.count(f"sent {call.matter} {how}")

    def _is_listed(self, call: Call) -> None:
        """I2: what is sent under a version that a stop ended is in the list of that stop."""
        if call.matter == "repair":
            return
        ended = StopRequest.objects.filter(
            run=call.run_id, scope="run", finished_before=False, version_before__gte=call.permit.seen_version
        )
        for stop in ended.filter(version_after__gt=call.permit.seen_version):
            listed = InFlight.objects.filter(stop=stop, permit=call.permit).exists()
            keep(listed, "I2", "sent, and its stop does not list it", stop.mode)
            self.count("late send")

    def _as_approved(self, call: Call) -> None:
        """Of a compensation: repairs.py."""

    def _say(self, call: Call, honest: bool) -> None:
        """Its report; a lie is "it did not happen", as a provider says that answers 400 too soon."""
        told = call.answer
        if not honest and told in ("applied", "unknown"):
            told = "not_applied"
            self.excused.add(call.wire_key)
        self._report(call, told)
        self.calls.remove(call)

    def _report(self, call: Call, told: str) -> None:
        actor = self.world.agent if call.matter == "effect" else EXECUTOR
        if call.matter == "delivery":
            actor = self.world.agent
        named: dict[str, Any] = {"items": ["half"]} if told == "partial" else {}
        permit = call.permit
        try:
            settle.report(actor=actor, permit_id=permit.pk, token=permit.token, told=Told(told, **named))
        except AlreadyReported:
            self.count("reported otherwise before")
            return
        self.count(f"report {told}")
        if told in ("applied", "partial") and call.matter == "effect":
            stands = Effect.objects.get(run=call.run_id, key=call.key).settlement
            keep(stands not in ("NOT_APPLIED", "NOT_STARTED", "DECLARED"), "I11", "a late result was lost")
        if told == "unknown" and call.matter == "effect":
            stands = Effect.objects.get(run=call.run_id, key=call.key).settlement
            keep(stands != "DISPATCHED", "I9", "nobody could say, and it is in progress still")

    @precondition(lambda self: self.calls)
    @rule(n=small)
    def killed(self, n: int) -> None:
        call = self.pick_of(self.calls, n)
        assert call is not None
        self.calls.remove(call)
        self.count(f"killed {call.came}")

    @precondition(lambda self: self.claims)
    @rule(n=small, how=st.sampled_from(["succeeded", "failed", "unknown", "release", "beat"]))
    def end_claim(self, n: int, how: str) -> None:
        step = self.pick_of(self.claims, n)
        assert step is not None
        if how == "beat":
            self.world.heartbeat(Run.objects.get(pk=step.run_id), step.claim_token)
            return
        try:
            if how == "release":
                gate.release(self.world.ask_of(step))
            else:
                self.world.finish(step, how)
        except ValueError as refused:
            self.count(f"finish {type(refused).__name__}")
            return
        self.claims.remove(step)

    # --- retries --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.has_step("FAILED"))
    @rule(n=small, by_person=st.booleans())
    def retry(self, n: int, by_person: bool) -> None:
        step = self.pick_of(list(Step.objects.filter(run__in=self.refs, status="FAILED").order_by("pk")), n)
        if step is None:
            return
        run = Run.objects.get(pk=step.run_id)
        given: dict[str, Any] = {"step": step, "seen": run.cancel_version, "delay_s": 5}
        if by_person:
            answer = retries.decide(actor=self.world.alice, reason="again", **given)
        else:
            answer = retries.schedule(actor=self.world.agent, worker="w-1", **given)
        allowed = self.may_start(run.pk)
        keep(allowed or isinstance(answer, Refusal), "I6", "a retry after the stop")
        self.count(f"retry {type(answer).__name__}")

    @precondition(lambda self: self.has_step("RETRY_WAIT"))
    @rule(n=small)
    def timer_fires(self, n: int) -> None:
        step = self.pick_of(
            list(Step.objects.filter(run__in=self.refs, due_at__isnull=False).order_by("pk")), n
        )
        if step is None:
            return
        run = Run.objects.get(pk=step.run_id)
        answer = gate_retries.fall_due(Ask(run.pk, EXECUTOR, "", run.cancel_version, step_id=step.pk))
        if isinstance(answer, Step):
            keep(self.may_start(run.pk), "I6", "a timer fired after the stop")
        self.count(f"timer {type(answer).__name__}")

    # --- messages -------------------------------------------------------------------------------------------

    @rule(n=small, key=st.sampled_from(["m", "n"]))
    def queue_message(self, n: int, key: str) -> None:
        self._queue(self.run_of(n), key)

    def _queue(self, run: Run, key: str) -> None:
        message = Message(key, "outside", "chat", "Done", b"It is done.")
        answer = deliveries.queue(self.world.ask(run), message)
        if isinstance(answer, Queued) and answer.created:
            keep(self.may_start(run.pk), "I1", "queued after the stop")
        self.count(f"queue {type(answer).__name__}")

    @precondition(lambda self: self.has_message("QUEUED"))
    @rule(n=small, far=st.sampled_from([0, 1, 2, 3, 3]), how=st.sampled_from(HOW))
    def hand_over(self, n: int, far: int, how: str) -> None:
        rows = list(Delivery.objects.filter(run__in=self.refs, state="QUEUED").order_by("pk"))
        delivery = self.pick_of(rows, n)
        if delivery is None:
            return
        answer = deliveries.hand_over(actor=self.world.agent, delivery_id=delivery.pk, worker="w-1")
        self.count(f"hand over {type(answer).__name__}")
        if not isinstance(answer, Opened):
            return
        keep(self.may_start(delivery.run_id, queued=True), "I1", "a message left after the stop")
        run = Run.objects.get(pk=delivery.run_id)
        keep(answer.permit.seen_version == run.cancel_version, "I1", "a message of another version")
        call = Call(answer.permit, run.pk, delivery.key, "delivery", "", self.now_s)
        self.calls.append(call)
        self._go_on(call, far, how)

    @precondition(lambda self: self.has_message("NOT_HANDED_OVER"))
    @rule(n=small)
    def retry_message(self, n: int) -> None:
        rows = list(Delivery.objects.filter(run__in=self.refs, state="NOT_HANDED_OVER").order_by("pk"))
        delivery = self.pick_of(rows, n)
        if delivery is None:
            return
        try:
            answer = deliveries.retry(actor=self.world.agent, delivery_id=delivery.pk, worker="w-1")
        except NoRetry:
            return
        allowed = self.may_start(delivery.run_id, queued=True)
        keep(allowed or isinstance(answer, Refusal), "I6", "a message was queued again after the stop")

    # --- the runtime, the clock, controllers ----------------------------------------------------------------

    @precondition(lambda self: self.steps > 5)
    @rule(n=small, word=st.sampled_from(["complete", "fail"]), sure=st.integers(0, 2))
    def end_run(self, n: int, word: str, sure: int) -> None:
        if not sure:
            self._end_run(self.run_of(n), word)

    def _end_run(self, run: Run, word: str) -> None:
        try:
            if word == "complete":
                answer = ends.complete(actor=self.world.agent, run_id=run.pk, seen=run.cancel_version)
            else:
                answer = ends.fail(actor=self.world.agent, run_id=run.pk)
        except NotQuiet:
            self.count("not quiet")
            return
        ref = self.refs[run.pk]
        if isinstance(answer, Run) and not ref.ended:
            keep(run.status == "ACTIVE", "I11", "ended, and it was not at work")
            ref.goes_on, ref.ended = False, True
        self.count(f"{word} {type(answer).__name__}")

    @rule(seconds=st.sampled_from(STEPS_S))
    def time_passes(self, seconds: int) -> None:
        self.move_clock(seconds)

    @rule(n=small)
    def drain(self, n: int) -> None:
        self.count(f"drain {drain_run(self.run_of(n).pk)}")

    @precondition(lambda self: self.calls)
    @rule()
    def restart(self) -> None:
        """Every process dies; the sweep goes over all runs."""
        self.calls.clear()
        self.claims.clear()
        self.move_clock(61)
        for pk in self.refs:
            drain_run(pk)

    @precondition(lambda self: self.bank.wire)
    @rule()
    def the_wire_delivers(self) -> None:
        self.bank.arrive()


__all__ = ["Known", "OfAnotherStep", "Permit", "StepTaken", "Waiting", "Workers", "small"]
