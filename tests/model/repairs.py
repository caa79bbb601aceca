"""Rules of compensations and reviews: propose, approve, revoke, edit, expire, carry out, verify."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from effects import approvals, compensate, executor, repair, reviews
from effects.approvals import Decided
from effects.models import Compensation, Effect, Review
from effects.reconcile import Answer
from runs.access import NotAllowed
from runs.guard import Opened
from runs.models import Run

from .base import DECIDE_S, PERMIT_S
from .outside import HOW
from .people import People
from .promises import keep
from .reference import AT_REST, Call, Yes
from .workers import BODY, small

REVIEWERS = ("bob", "carol", "eve", "alice")


def shown_of(compensation: Any) -> tuple[Any, ...]:
    """What a reviewer is shown of a call."""
    one = compensation
    return (bytes(one.body), one.title, one.target, one.amount)


class Repairs(People):
    """Who proposes, decides about a compensation and carries it out."""

    def repairs(self, *states: str) -> list[Any]:
        rows = Compensation.objects.filter(run__in=self.refs, state__in=states)
        return list(rows.order_by("pk").select_related("effect", "run", "kind"))

    def has_repair(self, *states: str) -> bool:
        return any(one.state in states for one in self.rows.repairs.values())

    def has_review(self) -> bool:
        return Review.objects.filter(run__in=self.refs).exists()

    def review_at(self, n: int) -> Review:
        """Open ones first, and the newest."""
        rows = Review.objects.filter(run__in=self.refs).order_by(F("closed_at").desc(nulls_first=True), "-pk")
        found = self.pick_of(list(rows), n % 3)
        assert found is not None
        return found

    # --- propose and decide ---------------------------------------------------------------------------------

    @precondition(lambda self: self.has_effect("CONFIRMED", "PARTIAL"))
    @rule(n=small, who=st.sampled_from(["alice", "bob", "carol"]))
    def propose(self, n: int, who: str) -> None:
        rows = Effect.objects.filter(run__in=self.refs, settlement__in=["CONFIRMED", "PARTIAL", "UNKNOWN"])
        effect = self.pick_of(list(rows.order_by("settlement", "pk")), n)
        if effect is not None:
            self._propose(effect, who)

    def _propose(self, effect: Effect, who: str) -> None:
        try:
            answer = compensate.propose(actor=self.team.people[who], effect_id=effect.pk)
        except NotAllowed:
            return
        self.count(f"propose {getattr(answer, 'reason', 'proposed') or 'proposed'}")
        if not isinstance(answer, Compensation):
            return
        keep(effect.settlement in ("CONFIRMED", "PARTIAL"), "I14", "proposed for", effect.settlement)
        keep(self.rests(effect.run_id), "I14", "proposed for a run at work")

    @precondition(lambda self: self.has_review())
    @rule(n=small, who=st.sampled_from(REVIEWERS), stale=st.integers(0, 4))
    def approve(self, n: int, who: str, stale: int) -> None:
        """`stale`: what was shown is not what is asked by now."""
        review = self.review_at(n)
        self._approve(review, who, stale)

    def _approve(self, review: Review, who: str, stale: int = 1) -> None:
        shown = self._shown(review)
        digest = review.digest if stale else "what was shown before"
        before = Run.objects.get(pk=review.run_id)
        answer = self._decided(
            lambda: approvals.approve(
                actor=self.team.people[who], review_id=review.pk, digest=digest, signed_in_s=5.0
            )
        )
        self.count(
            f"approve {answer.answer if isinstance(answer, Decided) else getattr(answer, 'reason', '')}"
        )
        after = Run.objects.get(pk=review.run_id)
        keep(after.status == before.status, "I17", "an approval moved its run")
        if not isinstance(answer, Decided):
            return
        keep(stale, "I15", "approved what was not asked any more")
        until = self.now_s + DECIDE_S if review.subject == "compensation" else self.now_s + 86_400
        first = self.yes.setdefault(review.subject_id, [])
        until = min([until, *(one.until_s for one in first)])
        first.append(Yes(who, shown, until))
        if answer.started and review.subject == "effect":
            keep(self.refs[review.run_id].goes_on, "I17", "an approval started a run that was stopped")

    def _shown(self, review: Review) -> tuple[Any, ...]:
        if review.subject == "effect":
            return (BODY,)
        return shown_of(Compensation.objects.get(pk=review.subject_id))

    def _decided(self, call: Any) -> Any:
        try:
            return call()
        except NotAllowed:
            return None

    @precondition(lambda self: self.has_review())
    @rule(n=small, who=st.sampled_from(REVIEWERS), how=st.sampled_from(["revoke", "revoke", "reject"]))
    def take_back(self, n: int, who: str, how: str) -> None:
        review = self.review_at(n)
        verb = approvals.revoke if how == "revoke" else approvals.reject
        actor = self.team.people[who]
        answer = self._decided(lambda: verb(actor=actor, review_id=review.pk, reason="we were wrong"))
        told = answer.answer if isinstance(answer, Decided) else getattr(answer, "reason", "not allowed")
        self.count(f"{how} {told}")
        if isinstance(answer, Decided):
            mine = self.yes.get(review.subject_id, [])
            self.yes[review.subject_id] = [one for one in mine if how == "revoke" and one.person != who]

    @precondition(lambda self: self.has_repair("PROPOSED", "APPROVED"))
    @rule(n=small, who=st.sampled_from(["alice", "bob"]), amount=st.sampled_from(["€50", "€60", "€70"]))
    def edit(self, n: int, who: str, amount: str) -> None:
        one = self.pick_of(self.repairs("PROPOSED", "APPROVED"), n)
        assert one is not None
        review = reviews.open_of(one)
        if review is None:
            return
        answer = self._decided(
            lambda: compensate.edit(
                actor=self.team.people[who], compensation_id=one.pk, digest=review.digest, amount=amount
            )
        )
        self.count(f"edit {'edited' if isinstance(answer, Compensation) else getattr(answer, 'reason', '')}")

    @precondition(lambda self: self.has_repair("PROPOSED", "APPROVED", "FAILED"))
    @rule(n=small, who=st.sampled_from(["bob", "carol"]), how=st.sampled_from(["changes", "not needed"]))
    def decide(self, n: int, who: str, how: str) -> None:
        one = self.pick_of(self.repairs("PROPOSED", "APPROVED", "FAILED"), n)
        assert one is not None
        actor = self.team.people[who]
        if how == "changes":
            answer = self._decided(
                lambda: compensate.ask_for_changes(actor=actor, compensation_id=one.pk, wish="less")
            )
        else:
            answer = self._decided(
                lambda: compensate.not_needed(actor=actor, compensation_id=one.pk, reason="no harm")
            )
        if isinstance(answer, Compensation):
            self.yes.pop(one.pk, None)
            self.count(how)

    @precondition(lambda self: self.has_review())
    @rule()
    def reviews_expire(self) -> None:
        for pk in approvals.over():
            if approvals.expire(pk):
                self.count("expired")

    # --- carry out ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.has_repair("APPROVED"))
    @rule(n=small, far=st.sampled_from([0, 1, 2, 3, 3]), how=st.sampled_from(HOW))
    def carry_out(self, n: int, far: int, how: str) -> None:
        one = self.pick_of(self.repairs("APPROVED"), n)
        if one is not None:
            self._carry_out(one, far, how)

    def _carry_out(self, one: Compensation, far: int, how: str) -> None:
        answer = repair.dispatch(repair._ask_for(one), one)
        self.count(f"compensate {getattr(answer, 'reason', type(answer).__name__)}")
        if not isinstance(answer, Opened):
            return
        now = Compensation.objects.select_related("effect", "run").get(pk=one.pk)
        run, shown = now.run, shown_of(now)
        keep(run.status in AT_REST, "I14", "sent while its run was", run.status)
        keep(answer.permit.seen_version == run.cancel_version, "I14", "sent at another version of its run")
        keep(not self.is_halted(run.pk), "I18", "sent under a halt")
        keep(now.effect.settlement in ("CONFIRMED", "PARTIAL"), "I14", "sent for", now.effect.settlement)
        keep(now.effect.dispatched_at is not None, "I14", "its effect was never sent")
        good = self.counting(one.pk, shown, run.pk, self._barred(now))
        keep(len(good) >= self.needed, "I14", f"sent with {len(good)} of {self.needed}")
        self.yes.pop(one.pk, None)
        call = Call(answer.permit, run.pk, one.pk, "repair", "", self.now_s, bytes(now.body))
        self.calls.append(call)
        self._go_on(call, far, how)

    def _barred(self, one: Any) -> set[str]:
        users = {who.user.pk: name for name, who in self.team.people.items() if who.user is not None}
        return {users[pk] for pk in (one.proposer_id, one.editor_id) if pk in users}

    def _look(self, call: Call) -> str:
        if call.matter != "repair":
            return super()._look(call)
        try:
            repair._look_again(repair._sent_as(call.permit), call.permit, executor.now())
        except executor.NotOpen:
            return "shut"
        return "open"

    def _still_open(self, call: Call) -> bool:
        if call.matter != "repair":
            return super()._still_open(call)
        run = Run.objects.get(pk=call.run_id)
        at_rest = run.status in AT_REST and run.cancel_version == call.permit.seen_version
        return at_rest and not self.is_halted(run.pk) and self.now_s - call.at_s < PERMIT_S

    def _as_approved(self, call: Call) -> None:
        """I14: the bytes that leave are those that were approved."""
        if call.matter == "repair":
            sent = bytes(Compensation.objects.get(pk=call.key).body)
            keep(sent == call.body, "I14", "other bytes than those that were approved")

    # --- verified -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.has_repair("DISPATCHED", "UNKNOWN"))
    @rule(n=small, fails=st.integers(0, 4))
    def ask_of_repair(self, n: int, fails: int) -> None:
        one = self.pick_of(self.repairs("DISPATCHED", "UNKNOWN"), n)
        assert one is not None
        one, asked = repair.read_for_look_up(one.pk)
        self.asks.append((one.pk, "repair", self.bank.look(one.pk) if fails else "can't tell", asked))

    def apply_to_repair(self, subject: str, answer: str, asked: Any) -> None:
        named: dict[str, Any] = {"items": ["half"]} if answer == "partial" else {}
        after = repair.apply_answer(subject, Answer(answer, **named), asked=asked)
        self.count(f"compensation {answer} → {after}")
