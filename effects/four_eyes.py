"""What an approval is for, who may not give it, and whether it counts: four eyes, read afresh each time.

Everything here is read under the run's lock, in statements younger than it, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from runs.access import ROLE_MAY
from runs.evidence import canonical, digest
from runs.models import Evidence, Membership, Press, Result, Run, ScheduledStop, StopPart, StopRequest, Token
from runs.rules import DEFAULTS, Rules
from runs.store import Now

from .models import Approval, Compensation, Effect, Review
from .review_tables import ApprovalState, Subject

EXPIRES_S = 86_400
MAY_APPROVE = [role for role, rights in ROLE_MAY.items() if "approve" in rights]
BARRED: dict[str, str] = {
    "editor": "changed it last",
    "proposer": "asked for it, or made the token that asked",
    "stopper": "asked for a stop of this run, or for one that it was a part of",
    "owner": "owns this run",
}


@dataclass(frozen=True)
class Need:
    """How many approvals an effect needs before it is sent, who says so, and how long people have."""

    approvals: int
    because: str = ""
    expires_s: int = EXPIRES_S


def needed_for(kind: str, op_class: str, amount: str, asked: int, rules: Mapping[str, Any] | None) -> Need:
    """The stricter of what the agent asked for and of what its workspace's rules (their JSON) want."""
    standing = Rules.model_validate(rules) if rules and rules.get("approvals") else DEFAULTS
    rule = standing.approval_for(kind, op_class, amount)
    if rule is None:
        return Need(asked, "agent")
    because = "rules" if not asked else "both"
    return Need(max(asked, rule.approvals), because, rule.expires_s)


# what was approved --------------------------------------------------------------------------------


def digest_of(effect: Effect, evidence_seq: int) -> str:
    """SHA-256 over the bytes as they are stored: what is sent and where to, the plan, the evidence."""
    kind = effect.kind
    call = [kind.send, kind.provider, kind.account] if kind else []
    told = [effect.run_id, effect.key, effect.kind_name, effect.op_class, effect.title, effect.target]
    stored = [effect.amount, digest(bytes(effect.body)), digest(bytes(effect.plan)), call]
    return digest(canonical([*told, *stored, evidence_seq]))


def digest_of_compensation(compensation: Compensation, evidence_seq: int) -> str:
    """The same of a compensation: its call, the plan that was declared, the evidence of the effect that it
    answers, and the version of the run at which it may be sent.
    """
    one, effect, kind = compensation, compensation.effect, compensation.kind
    call = [kind.send, kind.provider, kind.account] if kind else []
    told = [one.run_id, one.run_version, one.key, one.kind_name, one.op_class, one.title, one.target]
    stored = [one.amount, digest(bytes(one.body)), one.expected, one.risks, call]
    return digest(canonical([*told, *stored, effect.key, digest(bytes(effect.plan)), evidence_seq]))


def stored(review: Review) -> tuple[str, int]:
    """The digest of what a review is about as it is stored now, and how far the evidence in it goes."""
    if review.subject == Subject.EFFECT:
        effect = Effect.objects.select_related("kind").get(pk=review.effect_id)
        seq = evidence_of(effect)
        return digest_of(effect, seq), seq
    rows = Compensation.objects.select_related("kind", "effect")
    compensation = rows.get(pk=review.subject_id)
    seq = evidence_of(compensation.effect)
    return digest_of_compensation(compensation, seq), seq


def evidence_of(effect: Effect) -> int:
    """The newest line of what became of an effect; its mere declaration is no news. 0: none."""
    lines = Evidence.objects.filter(stream=effect.run_id, effect_key=effect.key, kind__startswith="effect.")
    newest = lines.exclude(kind="effect.declared").order_by("-seq").values_list("seq", flat=True).first()
    return newest or 0


def evidence_by_key(run: Run, keys: Iterable[str]) -> dict[str, int]:
    """The same for many effects of one run, in one query; those without any are left out."""
    lines = Evidence.objects.filter(stream=run.pk, effect_key__in=list(keys), kind__startswith="effect.")
    newest = lines.exclude(kind="effect.declared").order_by().values("effect_key").annotate(last=Max("seq"))
    return dict(newest.values_list("effect_key", "last"))


# who may not --------------------------------------------------------------------------------------


def people_behind(actors: Iterable[str]) -> set[int]:
    """The people behind actor ids: themselves, or whoever made the token."""
    ids = set(actors)
    people = {int(i.removeprefix("user:")) for i in ids if i.startswith("user:")}
    tokens = [i.removeprefix("token:") for i in ids if i.startswith("token:")]
    if tokens:
        made = Token.objects.filter(pk__in=tokens, created_by__isnull=False)
        people |= set(made.values_list("created_by_id", flat=True))
    return people


def stoppers(run: Run) -> set[int]:
    """The people behind every stop that this run was stopped by: its own, those of a scope or of many runs
    that it was a part of, its parent's; who pressed them, and who planned them for later.
    """
    mine = StopRequest.objects.filter(run=run)
    parts = StopPart.objects.filter(run=run).exclude(result=Result.NOT_PERMITTED)
    concerned = Q(stop__in=parts.values("stop"))
    concerned |= Q(stop__in=mine.values("pk")) | Q(stop__in=mine.values("parent_stop"))
    pressed = Press.objects.filter(concerned).values_list("actor", flat=True)
    planned = ScheduledStop.objects.filter(concerned).values_list("actor", flat=True)
    return people_behind([*pressed.distinct(), *planned])


def barred(review: Review, run: Run) -> dict[int, str]:
    """Who may not approve this, whatever their role: user id → a key of BARRED."""
    return barred_from(run, review.proposer_id, review.editor_id)


def barred_from(run: Run, proposer_id: int | None = None, editor_id: int | None = None) -> dict[int, str]:
    """The same before there is a review, for somebody who would ask for one."""
    found: dict[int, str] = {}
    if editor_id:
        found[editor_id] = "editor"
    if proposer_id:
        found[proposer_id] = "proposer"
    found |= dict.fromkeys(stoppers(run), "stopper")
    if run.owner_id:
        found[run.owner_id] = "owner"
    return found


def nobody_left(run: Run, needed: int, barred: Mapping[int, str]) -> bool:
    """Whether fewer people than that could approve, of all who have the right: then nothing that needs it
    can be approved in this workspace.
    """
    able = Membership.objects.filter(
        workspace_id=run.workspace_id, role__in=MAY_APPROVE, user__is_active=True
    ).exclude(user_id__in=barred)
    return able.count() < needed


def given(review: Review) -> QuerySet[Any, Any]:
    """The approvals that nothing ended yet, whether they count or not."""
    rows: QuerySet[Any, Any] = Approval.objects.filter(review=review, state=ApprovalState.GIVEN)
    return rows.order_by("pk")


def counting(review: Review, run: Run) -> list[Approval]:
    """The approvals that count at this moment: unexpired, of these bytes, by people who may still decide."""
    role = Membership.objects.filter(
        user_id=OuterRef("person_id"),
        workspace_id=review.workspace_id,
        role__in=MAY_APPROVE,
        user__is_active=True,
    )
    rows = given(review).filter(Exists(role), digest=review.digest, expires_at__gt=Now())
    found: list[Approval] = list(rows)
    never = barred(review, run) if found else {}
    return [approval for approval in found if approval.person_id not in never]


# whether they count ------------------------------------------------------------------------------


def is_over(review: Review) -> bool:
    """Its time is over, by the database's clock of now."""
    return Review.objects.filter(pk=review.pk, closed_at__isnull=True, expires_at__lte=Now()).exists()


def is_granted(review: Review, run: Run) -> bool:
    """Whether enough approvals count right now."""
    return len(counting(review, run)) >= review.needed


def still_granted(review: Review, run: Run) -> bool:
    """As `is_granted`, for the bytes and the evidence as they are stored now."""
    return stored(review)[0] == review.digest and is_granted(review, run)
