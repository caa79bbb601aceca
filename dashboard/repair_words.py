"""Compensations in words: each place where one can stand has its word, sentence, icon and css class here.

No word says more than is known: a compensation that was reported done is not yet one that was seen.
"""

from __future__ import annotations

from typing import Any

from dashboard import words
from dashboard.words import Term
from effects.models import Compensation, CompensationState
from runs.models import PermitState, StepStatus
from runs.rules import DAY_S

NEW_ACTION = "It does not erase the original, can fail, and can have effects of its own."
GROUND = {
    "decided": "by a person’s decision, with evidence",
    "reported": "by its sender’s report",
    "looked up": "by a look-up at the provider",
    "webhook": "by the provider’s webhook",
    "inspected": "by inspection",
}
WORDS = {
    "waiting": ("Waiting", "st-comp", "People decide before it may be sent."),
    "approved": ("Approved, queued", "st-waiting", "The gate looks once more before it is sent."),
    "halted": ("Approved, halted", "st-paused", "It is not sent until a reviewer lifts the halt."),
    "running": ("Running", "st-flight", "A permit to send it was given; it may still complete."),
    "verifying": ("Done, verifying", "st-quiet", "Its sender reported it done. It is not seen there yet."),
    "verified": ("Verified", "st-settled", "It is there, {ground}."),
    "unverified": ("Done, result unknown", "st-unknown", "Reported done, and not verified. It may be there."),
    "unknown": ("Result unknown", "st-unknown", "We cannot yet say whether it happened."),
    "accepted": ("Accepted as unknown", "st-accepted", "Two people accepted that it cannot be determined."),
    "failed": ("Failed", "st-failed", "It did not happen. The original effect stands as it did."),
    "partly": ("Failed in part", "st-partial", "Only part of it happened. The rest of the original stands."),
    "rejected": ("Rejected", "st-refused", "Rejected by {by}. Nothing was sent."),
    "expired": ("Expired", "st-none", "Its time was over. Nothing was sent."),
    "void": ("Void", "st-none", "What it stood on is gone. Nothing was sent."),
    "not_needed": ("Not needed", "st-none", "{by} decided that nothing more has to be done."),
}
PLAIN = {
    CompensationState.REJECTED: "rejected",
    CompensationState.EXPIRED: "expired",
    CompensationState.VOID: "void",
    CompensationState.NOT_NEEDED: "not_needed",
    CompensationState.VERIFIED: "verified",
    CompensationState.ACCEPTED_UNKNOWN: "accepted",
}
# What a compensation may still come to: the rest of it is over, or waits for a new one.
STILL = (
    *(CompensationState.PROPOSED, CompensationState.APPROVED),
    *(CompensationState.DISPATCHED, CompensationState.UNKNOWN),
)
POLICY = {
    "never": "nobody may carry it out",
    "approve": "people approve it first",
    "automatic": "carried out by itself, unless a stop of its run was recorded",
}


def stage_of(compensation: Compensation, permit_state: str = "", *, halted: bool = False) -> str:
    """Where it stands: a key of WORDS. `permit_state`: of the permit under which it was sent, if any."""
    if compensation.state == CompensationState.FAILED:
        return "partly" if in_part(compensation) else "failed"
    return stage_by(compensation.state, reported=permit_state == PermitState.REPORTED, halted=halted)


def stage_by(state: str, *, reported: bool = False, halted: bool = False) -> str:
    """The same from what is known of it; of a failed one without knowing whether a part happened."""
    match state:
        case CompensationState.PROPOSED:
            return "waiting"
        case CompensationState.APPROVED:
            return "halted" if halted else "approved"
        case CompensationState.DISPATCHED:
            return "verifying" if reported else "running"
        case CompensationState.UNKNOWN:
            return "unverified" if reported else "unknown"
        case CompensationState.FAILED:
            return "failed"
    return PLAIN[CompensationState(state)]


def in_part(compensation: Compensation) -> bool:
    """Whether part of a failed one happened: its items say which, or the step of its attempt that one did."""
    step = compensation.permit.step if compensation.permit else None
    return bool(compensation.items) or bool(step and step.status == StepStatus.PARTIAL)


def term_of(
    compensation: Compensation, permit_state: str = "", *, halted: bool = False, of: str = ""
) -> Term:
    """Its chip; `of`: "1 of 2" approvals, where it waits for them."""
    stage = stage_of(compensation, permit_state, halted=halted)
    word, icon, sentence = WORDS[stage]
    return Term(stage, f"{word}, {of}" if stage == "waiting" and of else word, sentence, icon, icon)


def told(term: Term, compensation: Compensation, by: str = "") -> str:
    """The sentence of its chip with its facts, and what is known of the part or of the reason."""
    said = term.say(ground=GROUND.get(compensation.ground, "as recorded"), by=words.clean(by) or "A reviewer")
    more = part(compensation.items) if term.value == "partly" else ""
    if term.value in ("unknown", "unverified") and compensation.why_unknown:
        more = f"Why: {words.brief(compensation.why_unknown, 160)}."
    reason = words.brief(compensation.reason, 300)
    if reason and term.value in ("rejected", "not_needed"):
        more = f"“{reason}”"
    if reason and term.value in ("expired", "void"):  # no person's words
        more = f"{reason[0].upper()}{reason[1:]}."
    return f"{said} {more}".strip()


def part(items: Any) -> str:
    """What is known of the part of a compensation that happened."""
    if not items:
        return ""
    if isinstance(items, list):
        shown = [words.brief(one if isinstance(one, str) else _plain(one), 60) for one in items[:5]]
        left = len(items) - len(shown)
        named = words.listed([*shown, f"{left} more"] if left else shown)
        return f"Known of the part: {named}."
    return f"Known of the part: {words.brief(_plain(items), 160)}."


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def approve_says(title: str) -> str:
    """ "Refund of €120.00" as it stands behind "Approve": "refund of €120.00"; a name keeps its capital."""
    first, rest = title[:1], title[1:]
    return first.lower() + rest if rest[:1].islower() else title


def rule_says(rule: Any) -> str:
    """A compensation rule in words; None: there is none, which means never."""
    if rule is None or rule.policy == "never":
        return "No rule permits it" if rule is None else "The rules forbid it"
    said = POLICY["automatic"]
    if rule.policy == "approve":
        said = f"{words.count(rule.approvals, 'person approves', 'people approve')} it first"
        said += f", within {words.span(rule.expires_s)}" if rule.expires_s != DAY_S else ", within a day"
    return f"{said}; {'also' if rule.after_a_stop else 'not'} for a run that a stop ended or holds"
