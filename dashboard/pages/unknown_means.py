"""What each verdict would mean, computed before it is given: for its plan, its key and its run."""

from __future__ import annotations

from dashboard.pages.unknown_subject import Subject
from effects.delivery_moves import UNSETTLED
from effects.models import SETTLED, Delivery, Effect, Matter, Verdict
from runs.models import RunStatus

LAST = " It is the run’s last open question: the run then counts as stopped, for good."
SECOND = "A second person must agree."


def means(s: Subject) -> dict[str, str]:
    """Verdict → one or two sentences. Two queries where its run waits for this one, else none."""
    ends = LAST if _ends_run(s) else ""
    if s.is_settled:
        return dict.fromkeys(Verdict, f"A correction. {SECOND} Both records stay.")
    return {
        Verdict.HAPPENED: f"{_if_happened(s)}{ends}",
        Verdict.DID_NOT: f"{_if_not(s)}{ends}",
        Verdict.PARTLY: f"Say which part. The rest stays open for people to decide about.{ends}",
        Verdict.CANNOT_TELL: f"Accept as unknown. {SECOND}{_if_accepted(s)}",
    }


def _if_happened(s: Subject) -> str:
    if s.matter == Matter.DELIVERY:
        return "It counts as handed over. Nothing calls it back."
    if s.matter == Matter.COMPENSATION:
        return "It counts as verified, by your decision."
    plan, none = s.plan
    if plan and s.run.status != RunStatus.ABANDONED:
        return f"The declared plan “{plan}” becomes available for review."
    if plan:
        return f"The declared plan “{plan}” stays as it is: its run was abandoned."
    return f"Nothing could lessen it{f': {none}' if none else ', as it was declared'}."


def _if_not(s: Subject) -> str:
    """Its key may be sent again only where its run goes on."""
    if s.matter == Matter.DELIVERY:
        return "It counts as not handed over."
    needs = "Needs the provider’s record after its settle window."
    if s.matter == Matter.COMPENSATION:
        return f"{needs} It counts as failed, and the original stands."
    goes_on = s.run.status == RunStatus.ACTIVE
    return f"{needs} Its key may then be sent again, through the gate." if goes_on else needs


def _if_accepted(s: Subject) -> str:
    """A stop waits no longer for what two people accepted; its key is never sent again."""
    if s.run.status == RunStatus.UNKNOWN and s.matter != Matter.COMPENSATION:
        return " The stop of its run no longer waits for it."
    return " Its key is never sent again." if s.matter == Matter.EFFECT else ""


def _ends_run(s: Subject) -> bool:
    """Whether its run rests on this alone: everything else of it is settled."""
    if not s.is_unknown or s.run.status != RunStatus.UNKNOWN or s.matter == Matter.COMPENSATION:
        return False
    mine = {"run": s.run}
    effects = Effect.objects.filter(**mine).exclude(settlement__in=SETTLED).exclude(pk=s.u.id)
    doubtful = Delivery.objects.filter(**mine, state__in=UNSETTLED).exclude(pk=s.u.id)
    return not effects.exists() and not doubtful.exists()
