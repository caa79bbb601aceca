"""Whatever is called, in whatever order: a search for a sequence of calls that breaks a promise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from effects import ends, intents, reconcile
from effects.close import outcome_of
from effects.drain import drain_run
from effects.ends import NotQuiet
from effects.models import SETTLED, Effect
from effects.reconcile import Answer
from effects.settle import AlreadyReported
from runs import gate
from runs.guard import Known, Opened, Refusal
from runs.models import FINAL, Evidence, InFlight, Permit, Run, Step, StopRequest
from runs.stops import BORN
from tests.races.checker import verdict
from tests.worlds import World, a_kind, intention, lapse

pytestmark = [pytest.mark.django_db, pytest.mark.long]

KEYS = [f"charge:{n}" for n in range(4)]
seen: Counter[str] = Counter()


class AnyOrder(RuleBasedStateMachine):
    """Workers, people, providers and clocks take turns; what they may believe is kept beside the rows."""

    permits = Bundle("permits")
    claims = Bundle("claims")

    @initialize(fencing=st.booleans(), waiting=st.integers(0, 7))
    def begin(self, fencing: bool, waiting: int) -> None:
        self.world = World()
        a_kind(self.world.workspace, key_fencing=fencing, settle_window_s=0, lookup={"url": "x"})
        self.applied: set[tuple[str, str]] = set()  # the provider's own ledger: run, key
        self.finals: dict[str, str] = {}
        self.listed: dict[str, set[str]] = {}
        self.admit(waiting == 0)

    def admit(self, waiting: bool) -> None:
        key = f"run-{len(self.finals)}"
        if waiting:
            self.world.stop_key(key)
        self.run: Run = self.world.run(key)
        self.born_stopping = waiting
        self.version = self.run.cancel_version

    @precondition(lambda self: self.run.pk in self.finals)
    @rule(waiting=st.integers(0, 7))
    def next_run(self, waiting: int) -> None:
        self.admit(waiting == 0)

    def now(self) -> Run:
        found: Run = Run.objects.get(pk=self.run.pk)
        return found

    # --- workers ------------------------------------------------------------------------------------------

    @rule(target=claims, key=st.sampled_from(["s-1", "s-2", "s-3"]), stale=st.booleans())
    def claim(self, key: str, stale: bool) -> Any:
        answer = gate.claim(
            self.world.ask(self.now(), step_key=key, seen_version=1 if stale else self.version)
        )
        seen[f"claim {type(answer).__name__}"] += 1
        return answer if isinstance(answer, Step) else None

    @rule(target=permits, key=st.sampled_from(KEYS), stale=st.booleans())
    def register_and_dispatch(self, key: str, stale: bool) -> Any:
        version = 1 if stale else self.version
        return self._dispatched(
            intents.dispatch(self.world.ask(self.now(), step_key=key, seen_version=version), intention(key))
        )

    @rule(target=permits, step=claims, key=st.sampled_from(["x-1", "x-2"]))
    def dispatch_claimed(self, step: Step | None, key: str) -> Any:
        if step is None or Effect.objects.filter(run=self.run, key=f"{key}-{step.key}").exists():
            return None
        return self._dispatched(intents.dispatch(self.world.ask_of(step), intention(f"{key}-{step.key}")))

    @rule(key=st.sampled_from(KEYS))
    def declare(self, key: str) -> None:
        intents.declare(self.world.ask(self.now(), step_key=key), intention(key))

    def _dispatched(self, answer: Any) -> Any:
        seen[f"dispatch {type(answer).__name__}"] += 1
        if isinstance(answer, Refusal | Known):
            return None
        run = self.now()
        assert (run.status, run.cancel_version) == ("ACTIVE", answer.permit.seen_version)
        return answer

    @rule(
        opened=consumes(permits),
        word=st.sampled_from(["applied", "not_applied", "unknown", "lost", "partial"]),
        reached=st.booleans(),
    )
    def look_send_and_report(self, opened: Opened | None, word: str, reached: bool) -> None:
        if opened is None:
            return
        permit = opened.permit
        look = gate.look(permit.pk, permit.token).answer
        seen[f"look {look}"] += 1
        assert look != "open" or Run.objects.get(pk=permit.run_id).status == "ACTIVE"
        if look == "open" and (word in ("applied", "partial") or (reached and word != "not_applied")):
            self.applied.add((permit.run_id, permit.effect_key))
        if word != "lost":
            self._report(opened, word if look == "open" else "not_sent")

    def _report(self, opened: Opened, word: str) -> None:
        try:
            self.world.report(opened, word)
            seen[f"report {word}"] += 1
        except AlreadyReported:
            seen["report twice"] += 1

    @rule(step=claims, result=st.sampled_from(["succeeded", "failed", "unknown"]))
    def finish(self, step: Step | None, result: str) -> None:
        if step is not None:
            try:
                self.world.finish(step, result)
            except ValueError as refused:  # lost claim, nothing dispatched, unsettled
                seen[f"finish {type(refused).__name__}"] += 1

    @rule(step=claims)
    def release(self, step: Step | None) -> None:
        if step is not None:
            gate.release(self.world.ask_of(step))

    @rule(step=claims)
    def beat(self, step: Step | None) -> None:
        if step is not None:
            self.world.heartbeat(self.run, step.claim_token)

    # --- clocks, controllers, providers -------------------------------------------------------------------

    @rule(permits_too=st.booleans())
    def leases_run_out(self, permits_too: bool) -> None:
        lapse(*Step.objects.filter(run=self.run))
        if permits_too:
            lapse(*Permit.objects.filter(run=self.run))
        self.drain()

    @rule()
    def deadline_passes(self) -> None:
        StopRequest.objects.filter(run=self.run).update(deadline_at=self.run.admitted_at)
        self.drain()

    @rule()
    def drain(self) -> None:
        seen[f"drain {drain_run(self.run.pk)}"] += 1

    @rule(honest=st.sampled_from([True, True, True, False]))
    def look_up(self, honest: bool) -> None:
        effect = Effect.objects.filter(run=self.run, settlement="UNKNOWN").first()
        if effect is not None:
            there = "present" if (self.run.pk, effect.key) in self.applied else "absent"
            after = reconcile.apply_answer(effect.pk, Answer(there if honest else "can't tell"))
            seen[f"look-up {after}"] += 1

    # --- people and the runtime ---------------------------------------------------------------------------

    @rule(
        key=st.sampled_from(["", "one", "two"]),
        who=st.sampled_from(["alice", "bob", "agent"]),
        sure=st.integers(0, 3),
    )
    def stop(self, key: str, who: str, sure: int) -> None:
        if sure:
            return
        seen[f"stop {self.world.stop(self.run, by=getattr(self.world, who), key=key).answer}"] += 1

    @rule(sure=st.integers(0, 5))
    def complete(self, sure: int) -> None:
        if sure:
            return
        try:
            ends.complete(actor=self.world.agent, run_id=self.run.pk, seen=self.version)
        except NotQuiet:
            seen["complete NotQuiet"] += 1

    @rule(sure=st.integers(0, 5))
    def fail(self, sure: int) -> None:
        if not sure:
            ends.fail(actor=self.world.agent, run_id=self.run.pk)

    # --- promises -----------------------------------------------------------------------------------------

    @invariant()
    def versions_never_fall_and_final_is_final(self) -> None:
        run = self.now()
        assert run.cancel_version >= self.version
        assert run.cancel_version - self.version in (0, 1)
        self.version = run.cancel_version
        if run.status in FINAL:
            self.finals.setdefault(run.pk, run.status)
        assert self.finals == dict(Run.objects.filter(pk__in=self.finals).values_list("pk", "status"))

    @invariant()
    def nothing_started_that_no_stop_knows_of(self) -> None:
        found = verdict(self.world.workspace.pk)
        assert found.unlisted == 0
        assert not self.born_stopping or not Permit.objects.filter(run=self.run).exists()
        for stop in StopRequest.objects.filter(run=self.run):
            now = set(InFlight.objects.filter(stop=stop).values_list("permit_id", flat=True))
            assert self.listed.setdefault(stop.pk, now) == now

    @invariant()
    def a_run_that_rests_has_nothing_left_to_do(self) -> None:
        run = self.now()
        if run.status == "ACTIVE":
            return
        assert not Step.objects.filter(run=run, status__in=["PENDING", "CLAIMED", "RETRY_WAIT"]).exists()
        if run.status in ("CANCELLED", "COMPLETED", "UNKNOWN"):
            assert not Permit.objects.filter(run=run, state="OPEN").exists()
            assert not Step.objects.filter(run=run, status="DISPATCHED").exists()
            assert not Effect.objects.filter(run=run, settlement__in=["DECLARED", "DISPATCHED"]).exists()
        if run.status == "CANCELLED":
            assert not Effect.objects.filter(run=run).exclude(settlement__in=SETTLED).exists()

    @invariant()
    def an_effect_says_no_more_than_is_known(self) -> None:
        for effect in Effect.objects.filter(run=self.run):
            states = set(
                Permit.objects.filter(run=self.run, effect_key=effect.key).values_list("state", flat=True)
            )
            if effect.settlement == "NOT_STARTED":
                assert not states & {"OPEN", "LOST"}
            if effect.settlement in ("CONFIRMED", "PARTIAL"):
                assert (self.run.pk, effect.key) in self.applied
            assert len(Permit.objects.filter(run=self.run, effect_key=effect.key, state="OPEN")) <= 1

    @invariant()
    def a_withheld_step_sent_nothing_that_happened(self) -> None:
        for step in Step.objects.filter(run=self.run, status="WITHHELD"):
            assert not Effect.objects.filter(step=step, settlement__in=["CONFIRMED", "PARTIAL", "DISPATCHED"])
            assert not Permit.objects.filter(step=step, state__in=["OPEN", "LOST"]).exists()

    @invariant()
    def the_evidence_has_no_gap(self) -> None:
        seqs = Evidence.objects.filter(stream=self.run.pk).order_by("seq").values_list("seq", flat=True)
        assert list(seqs) == list(range(1, len(seqs) + 1))

    @invariant()
    def the_outcome_is_said_only_at_the_end(self) -> None:
        run = self.now()
        moving = run.status in ("ACTIVE", "CANCELLING", "CANCELLING_TIMEOUT")
        assert (outcome_of(run) == "not ended") == moving


def test_no_sequence_of_calls_breaks_a_promise() -> None:
    assert BORN["cancel"] == "CANCELLING"
    seen.clear()
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=800, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    print(dict(seen))  # noqa: T201
    for situation in (
        *("dispatch Opened", "dispatch Refusal", "dispatch Known", "look open", "look shut", "look ended"),
        *(
            "report applied",
            "report not_sent",
            "report unknown",
            "stop recorded",
            "stop joined",
            "stop finished",
        ),
        *(
            "drain CANCELLED",
            "drain UNKNOWN",
            "drain CANCELLING_TIMEOUT",
            "look-up CONFIRMED",
            "look-up NOT_APPLIED",
        ),
        *("complete NotQuiet", "look-up UNKNOWN"),
    ):
        assert seen[situation] > 0, situation
