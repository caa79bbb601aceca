"""Rules of people and providers: stops of every mode and scope, releases, resumes, look-ups, verdicts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from effects import reconcile, resolve, restore, resume
from effects.models import Effect, Resolution
from effects.resolve import Resolved
from effects.resume import Resumed, Seen
from runs import access, fanout, halts, releases, scopes, step_stops
from runs.access import NotAllowed, NotFound
from runs.models import Halt, Restore, Run, Session, Step, StopRequest
from runs.presses import StopAnswer, Wish
from runs.releases import NotFenced, NotStanding, Released
from runs.scopes import Target
from runs.store import database_time
from tests.worlds import number

from .base import Protocol
from .promises import keep
from .workers import Workers, small

MODES = ("pause", "pause", "cancel", "abandon")
STRENGTH = {"pause": 0, "cancel": 1, "abandon": 2}
WHO = ("alice", "alice", "bob", "eve")
HAPPENED, DID_NOT, PARTLY, CANT = "happened", "did not happen", "partly happened", "cannot be determined"


class People(Workers):
    """Who presses, decides and answers. What a person says is believed; the reference keeps who said it."""

    # --- stops ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.steps > 1)
    @rule(n=small, mode=st.sampled_from(MODES), who=st.sampled_from(WHO))
    def stop_run(self, n: int, mode: str, who: str) -> None:
        self._press(self.run_of(n), mode, self.able(who))

    def _press(self, run: Run, mode: str, who: str) -> None:
        key = f"press-{number()}"
        self._stop(run, mode, who, key)
        self.presses.append((run.pk, mode, who, key, self.answered.stop.pk))

    def able(self, who: str) -> str:
        """They, or Alice where they have lost the role."""
        return who if self.roles.get(who, True) else "alice"

    def _stop(self, run: Run, mode: str, who: str, key: str) -> StopAnswer:
        self.bumps(run.pk)
        answer = self.answered = self.world.stop(run, by=self.team.people[who], mode=mode, key=key)
        ref = self.refs[run.pk]
        ref.stoppers.add(who)
        if run.status in ("COMPLETED", "FAILED"):
            ref.stopped_after_end = True
        ref.goes_on = False
        after = Run.objects.get(pk=run.pk)
        keep(after.status != "ACTIVE", "I3", "acknowledged, and the run goes on", mode)
        self.count(f"stop {answer.answer}")
        return answer

    @precondition(lambda self: self.presses)
    @rule(n=small)
    def press_again(self, n: int) -> None:
        """The same press once more: the same stop, nothing moves. After a resume it stops what goes on."""
        pressed = self.pick_of(self.presses, n)
        assert pressed is not None
        run_id, mode, who, key, stop_id = pressed
        if not self.roles.get(who, True):
            return
        before = Run.objects.get(pk=run_id)
        if StopRequest.objects.get(pk=stop_id).closed_because == "resumed":
            self._stop(before, mode, who, key)
            self.count("pressed again after a resume")
            return
        answer = self.world.stop(before, by=self.team.people[who], mode=mode, key=key)
        after = Run.objects.get(pk=run_id)
        keep(answer.stop.pk == stop_id, "I4", "another stop for the same press", before.status)
        keep(answer.repeated, "I4", "the same press counts as another")
        keep(after.cancel_version == before.cancel_version, "I4", "a second version for the same press")
        keep(after.status == before.status, "I4", "the same press moved its run", before.status)
        self.count("pressed again")

    @precondition(lambda self: len(self.refs) < 3 and f"run-{len(self.refs)}" not in self.waiting)
    @rule(who=st.sampled_from(WHO))
    def stop_before_the_run(self, who: str) -> None:
        key = f"run-{len(self.refs)}"
        self.world.stop_key(key, by=self.team.people[self.able(who)], mode="cancel")
        self.waiting.add(key)
        self.count("stop waits")

    @rule(n=small, who=st.sampled_from(WHO))
    def stop_step(self, n: int, who: str) -> None:
        rows = Step.objects.filter(
            run__in=self.refs, status__in=["PENDING", "CLAIMED", "DISPATCHED", "UNKNOWN"]
        )
        step = self.pick_of(list(rows.order_by("pk")), n)
        if step is None or n % 3:
            return
        wish, who = Wish(key=f"press-{number()}"), self.able(who)
        step_stops.request_step_stop(actor=self.team.people[who], wish=wish, step_id=step.pk)
        self.refs[step.run_id].stoppers.add(who)
        self.count("stop of a step")

    def _target(self, what: str) -> Target | None:
        if what == "session":
            found = Session.objects.filter(workspace=self.world.workspace).first()
            return Target("session", found.pk) if found else None
        policies = {"gold": self.team.gold.pk, "charges": self.team.charges.pk}
        if what in policies:
            return Target("policy", policies[what])
        return Target("workspace", self.world.workspace.pk)

    @precondition(lambda self: self.steps > 3 and len(self.shut) < 2)
    @rule(
        what=st.sampled_from(["workspace", "session", "gold", "charges"]),
        mode=st.sampled_from(MODES),
        who=st.sampled_from(WHO),
        dies=st.booleans(),
    )
    def stop_scope(self, what: str, mode: str, who: str, dies: bool) -> None:
        """`dies`: whoever answers the press dies right after its commit, before any run is reached."""
        self._stop_scope(what, mode, who, dies)

    def _stop_scope(self, what: str, mode: str, who: str, dies: bool) -> None:
        target = self._target(what)
        if target is None:
            return
        self.bumps(*self.refs)
        wish, who = Wish(mode=mode, key=f"press-{number()}"), self.able(who)
        actor = self.team.people[who]
        if dies:
            answer = scopes._press(actor, wish, wish.key, target)
        else:
            answer = scopes.request_scope_stop(actor=actor, wish=wish, target=target)
        self._is_shut(what, answer, who)
        self.count(f"stop of {what} {answer.answer}{' and dies' if dies else ''}")

    def unfenced(self) -> list[str]:
        return [
            pk for pk, one in self.rows.stops.items() if one.gate_at and not one.fenced_at and not one.run_id
        ]

    def _is_shut(self, what: str, answer: StopAnswer, who: str) -> None:
        self.shut.add(what)
        self.halts.add(what)
        self.standing[what] = answer.stop.pk
        for ref in self.refs.values():
            if what not in ref.scopes:
                continue
            if not self.is_final(ref.pk):
                ref.goes_on = False
            ref.stoppers.add(who)  # more than the contract asks: whoever was late is no part

    @precondition(lambda self: any(self.unfenced()))
    @rule()
    def fan_out(self) -> None:
        self.bumps(*self.refs)
        for pk in list(fanout.unfenced().values_list("pk", flat=True)):
            fanout.fence(pk, 5.0, patient=True)
            self.count("fanned out")

    @precondition(lambda self: self.shut)
    @rule(n=small, who=st.sampled_from(["bob", "carol", "eve"]))
    def release(self, n: int, who: str) -> None:
        what = self.pick_of(sorted(self.shut), n)
        assert what is not None
        try:
            answer = releases.release(
                actor=self.team.people[who], stop_id=self.standing[what], reason="it is over"
            )
        except (NotFenced, NotAllowed, NotStanding) as no:
            self.count(f"release {type(no).__name__}")
            return
        if isinstance(answer, Released):
            self.shut.discard(what)
            fenced = StopRequest.objects.get(pk=self.standing[what]).fenced_at
            keep(fenced is not None, "I19", "released before every run was reached")
        self.count(f"release {type(answer).__name__}")

    @precondition(lambda self: self.halts)
    @rule(n=small, who=st.sampled_from(["bob", "carol", "eve"]))
    def lift(self, n: int, who: str) -> None:
        halt = self.pick_of(list(halts.in_force(self.world.workspace.pk)), n)
        if halt is None:
            return
        try:
            halts.lift(actor=self.team.people[who], halt_id=halt.pk, reason="we looked")
        except NotAllowed:
            return
        self.halts.discard(self._scope_of(halt))
        self.count("halt lifted")

    def _scope_of(self, halt: Halt) -> str:
        if halt.session_id:
            return "session"
        names = {self.team.gold.pk: "gold", self.team.charges.pk: "charges"}
        return names.get(halt.policy_id or "", "workspace")

    @precondition(lambda self: any(run.status != "ACTIVE" for run in self.rows.runs.values()))
    @rule(n=small, stale=st.integers(0, 5))
    def resume(self, n: int, stale: int) -> None:
        held = [pk for pk, run in self.rows.runs.items() if run.status == "PAUSED"]
        self._resume(Run.objects.get(pk=self.pick_of(held or list(self.refs), n)), stale)

    def _resume(self, run: Run, stale: int = 1) -> None:
        ref = self.refs[run.pk]
        seen = Seen(version=run.cancel_version if stale else run.cancel_version - 1)
        waits = Effect.objects.filter(run=run, settlement__in=["DISPATCHED", "UNKNOWN"]).exists()
        self.bumps(run.pk)
        self.last = "resume"
        answer = resume.resume(actor=self.world.alice, run_id=run.pk, reason="go on", seen=seen)
        self.count(f"resume {type(answer).__name__} {getattr(answer, 'reason', '')}")
        if not isinstance(answer, Resumed):
            return
        keep(run.status == "PAUSED", "I5", "resumed from", run.status)
        keep(not waits, "I5", "resumed while an effect was in doubt")
        keep(stale, "I17", "resumed by a decision about something older")
        keep(not ref.scopes & self.shut, "I5", "resumed under a shut gate")
        ref.goes_on = True

    def restored(self) -> None:
        """A backup that was taken just now is put back."""
        self.bumps(*self.refs)
        self.last = "restore"
        now = database_time()
        row = Restore.objects.create(taken_at=now, digest="d" * 64)
        versions = dict(Run.objects.filter(pk__in=self.refs).values_list("pk", "cancel_version"))
        tally = restore.put_to_rest(row, restore.Before(versions, {}))
        self.shut.add("workspace")
        self.halts.add("workspace")
        self.standing["workspace"] = next(
            stop.pk for stop in tally.gates if stop.workspace_id == self.world.workspace.pk
        )
        for ref in self.refs.values():
            ref.goes_on = False
        self.yes.clear()
        self.count("restored")

    # --- what providers say ---------------------------------------------------------------------------------

    def _unknown(self, n: int) -> Any:
        return self.pick_of(list(self._effects("UNKNOWN", "CONFIRMED", "NOT_APPLIED")), n)

    def _effects(self, *settlements: str) -> Any:
        """Unknown ones first."""
        rows = Effect.objects.filter(run__in=self.refs, settlement__in=settlements)
        return rows.order_by("-settlement", "pk")

    @precondition(lambda self: self.has_effect("UNKNOWN", "CONFIRMED", "NOT_APPLIED"))
    @rule(n=small, fails=st.integers(0, 4), at_once=st.integers(0, 3))
    def ask_provider(self, n: int, fails: int, at_once: int) -> None:
        """A look-up begins: what it sees, it sees now; what it says is applied now, or a while later."""
        effect = self._unknown(n)
        if effect is None:
            return
        self._ask(effect, bool(fails))
        if at_once:
            self._apply(len(self.asks) - 1)

    def _ask(self, effect: Effect, answers: bool) -> None:
        said = self.bank.look(f"{effect.run_id}/{effect.key}") if answers else "can't tell"
        effect, asked = reconcile.read_for_look_up(effect.pk)
        self.asks.append((effect.pk, "effect", said, asked))

    @precondition(lambda self: self.asks)
    @rule(n=small)
    def answer_arrives(self, n: int) -> None:
        self._apply(n % len(self.asks))

    def _apply(self, n: int) -> None:
        subject, matter, answer, asked = self.asks.pop(n)
        if matter != "effect":
            self.apply_to_repair(subject, answer, asked)
            return
        named: dict[str, Any] = {"items": ["half"]} if answer == "partial" else {}
        told = reconcile.Answer(answer, **named)
        after = reconcile.apply_answer(subject, told, asked=asked)
        self._heard(subject, answer, after)
        self.count(f"look-up {answer} → {after}")

    def apply_to_repair(self, subject: str, answer: str, asked: Any) -> None:
        """Of a compensation: repairs.py."""

    def _heard(self, subject: str, answer: str, after: str) -> None:
        effect = Effect.objects.get(pk=subject)
        if answer in ("present", "partial"):
            keep(after not in ("NOT_APPLIED", "NOT_STARTED"), "I11", "it is there, and nobody was told")
        if answer == "can't tell":
            keep(after in ("UNKNOWN", "ACCEPTED_UNKNOWN") or effect.ground, "I9", "known by a failed look-up")

    @precondition(lambda self: self.bank.asked)
    @rule(n=small)
    def webhook(self, n: int) -> None:
        """It says what is so, of whatever it heard of."""
        wire = self.pick_of(list(self.bank.asked), n)
        assert wire is not None
        if "/" not in wire:
            return
        pk, key = wire.split("/", 1)
        run = Run.objects.get(pk=pk)
        if not self.bank.asked[wire] or Effect.objects.filter(key=key, run__in=self.refs).count() > 1:
            return  # with several under one key nobody can say which is meant
        there = self.bank.applied[wire] > 0
        became = self.team.teller.tell(key, "succeeded" if there else "unheard of")
        effect = Effect.objects.filter(run=run, key=key).first()
        if there and effect is not None and became != "waiting":
            keep(
                effect.settlement not in ("NOT_APPLIED", "NOT_STARTED"), "I11", "it is there; nobody was told"
            )
        self.count(f"webhook {became}")

    # --- what people say ------------------------------------------------------------------------------------

    @precondition(lambda self: self.has_effect("UNKNOWN", "CONFIRMED", "NOT_APPLIED"))
    @rule(
        n=small,
        who=st.sampled_from(["alice", "bob", "carol"]),
        verdict=st.sampled_from([HAPPENED, DID_NOT, PARTLY, CANT]),
        text=st.sampled_from(["The statement lists it.", "The statement lists it.", " "]),
        correct=st.integers(0, 3),
    )
    def resolve(self, n: int, who: str, verdict: str, text: str, correct: int) -> None:
        effect = self._unknown(n)
        if effect is None:
            return
        newest = Resolution.objects.filter(subject_id=effect.pk).order_by("-number").first()
        given: dict[str, Any] = {"items": ["half"]} if verdict == PARTLY else {}
        who = self.able(who)
        answer = resolve.resolve(
            actor=self.team.people[who],
            subject_id=effect.pk,
            verdict=verdict,
            evidence=text,
            seen=newest.number if newest else 0,
            correct=not correct,
            **given,
        )
        self.count(f"verdict {getattr(answer, 'reason', 'recorded')}")
        if not isinstance(answer, Resolved):
            return
        keep(text.strip(), "I9", "a verdict without evidence")
        after = Effect.objects.get(pk=effect.pk)
        keep(after.settlement != "ACCEPTED_UNKNOWN", "I9", "accepted by one person")
        owner = self.refs[effect.run_id].owner
        keep(owner != who or verdict == CANT, "I9", "one's own word about one's own run")
        self.excused.add(f"{effect.run_id}/{effect.key}")

    @precondition(lambda self: self.has_effect("UNKNOWN", "CONFIRMED", "NOT_APPLIED"))
    @rule(n=small, who=st.sampled_from(["bob", "carol", "eve"]))
    def agree(self, n: int, who: str) -> None:
        rows = Resolution.objects.filter(run__in=self.refs, in_force_at=None, withdrawn_at=None)
        made = self.pick_of(list(rows.order_by("pk")), n)
        if made is None:
            return
        try:
            answer = resolve.agree(actor=self.team.people[who], resolution_id=made.pk)
        except NotAllowed:
            return
        self.count(f"agree {getattr(answer, 'reason', 'agreed')}")
        if isinstance(answer, Resolved):
            user = self.team.people[who].user
            keep(user is not None and user.pk != made.person_id, "I9", "the second person is the first")
            keep(self.refs[made.run_id].owner != who, "I9", "agreed to by whoever owns the run")

    @precondition(lambda self: self.steps > 3)
    @rule(n=st.integers(0, 11))
    def rarely(self, n: int) -> None:
        """A role is lost or given back; a stranger tries; a backup is put back."""
        if n < 4:
            self.set_role(("bob", "carol")[n % 2], on=not self.roles[("bob", "carol")[n % 2]])
        elif n < 6:
            self.stranger(self.run_of(n))
        elif n == 6:
            self.restored()

    def stranger(self, run: Run) -> None:
        try:
            self.world.stop(run, by=self.world.mallory)
        except NotFound:
            self.count("a stranger found nothing")
            return
        keep(False, "I28", "a stranger stopped a run")


__all__ = ["People", "Protocol", "access"]
