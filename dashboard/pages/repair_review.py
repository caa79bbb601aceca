"""The review of a compensation: what it answers, what was declared, what would be sent, who may not."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from django.urls import reverse

from dashboard import repair_words, words
from dashboard.pages import call_diff
from dashboard.pages.call_diff import Part, part, parts_of
from dashboard.pages.facts import name_actors
from dashboard.pages.halts import Told, told
from dashboard.pages.hiding import ALL_OF_IT, body_lines, hide
from dashboard.pages.original import Original
from dashboard.pages.review_facts import Barred, Detail, named, term_of, where_to
from dashboard.words import Term
from effects import approvals, compensate, four_eyes, plans
from effects.compensation import RESTORE_FILES
from effects.models import Compensation, CompensationState, Kind, Review
from runs import halts
from runs.access import Actor
from runs.models import Evidence
from runs.rules import rules_of

RECHECKED = "Plan re-checked"
SENT = (
    *(CompensationState.DISPATCHED, CompensationState.VERIFIED, CompensationState.FAILED),
    *(CompensationState.UNKNOWN, CompensationState.ACCEPTED_UNKNOWN),
)
WHERE = ("sent by", "method", "content type")


class RepairDetail(Detail):
    """One review of a compensation. Everything is read anew for each page, so that nobody decides about
    what was shown a while ago."""

    def __init__(
        self, review: Any, compensation: Compensation, actor: Actor, now: datetime, signed_in_s: float | None
    ) -> None:
        super().__init__(review, actor, now, signed_in_s)
        self.compensation, self.repair = compensation, compensation

    # what it is and where it stands ---------------------------------------------------------------

    @property
    def title(self) -> str:
        return named(self.repair)

    @property
    def approve_says(self) -> str:
        """What the button says: it names the amount."""
        return repair_words.approve_says(self.title)

    @cached_property
    def halt(self) -> Told | None:
        """What halts it, while it may still be sent."""
        if self.repair.state not in (CompensationState.PROPOSED, CompensationState.APPROVED):
            return None
        kinds = [(one.kind_name, one.op_class) for one in (self.repair, self.effect)]
        halt = halts.over(self.run, kinds)
        return told(halt) if halt else None

    @property
    def term(self) -> Term:
        halted = self.halt is not None and self.repair.state == CompensationState.APPROVED
        if halted:
            return repair_words.term_of(self.repair, halted=True)
        return term_of(self.review, len(self.standing))

    @property
    def stands(self) -> str:
        """Where it stands, in a sentence."""
        by = self.names.get(self.repair.decided_by, "")
        return repair_words.told(self.term, self.repair, by)

    @property
    def closed_says(self) -> str:
        """Where it stands, once there is nothing to decide any more; and that a newer review is open."""
        return "" if self.is_open else self.stands

    @property
    def came_of_it(self) -> str:
        """Since when what is said of it stands, and its number at the provider; "" before it was sent."""
        at = self.repair.settled_at or self.repair.unknown_since
        if at is None or self.repair.state not in SENT:
            return ""
        ref = f", reference {words.brief(self.repair.provider_ref, 120)}" if self.repair.provider_ref else ""
        return f"Recorded {words.moment_utc(at)}{ref}."

    @cached_property
    def newest_line(self) -> int | None:
        """The newest move of it: the line that its state stands on."""
        rows = Evidence.objects.filter(stream=self.run.pk, effect_key=self.repair.key)
        moves = rows.filter(kind__startswith="compensation.").order_by("-seq")
        return moves.values_list("seq", flat=True).first()

    @property
    def call_says(self) -> str:
        """A permit says that it may have been sent, not that it was."""
        sent = self.repair.state in SENT
        return "The call that its permit was given for" if sent else "The call as it would be sent"

    @property
    def unknown_href(self) -> str:
        """Its item on the unknowns desk, while nobody can say whether it happened."""
        unknown = self.repair.state == CompensationState.UNKNOWN
        return reverse("unknown", args=[self.repair.pk]) if unknown else ""

    @cached_property
    def newer(self) -> str:
        """The open review of the same compensation, when this one is closed: it was asked again."""
        if self.is_open:
            return ""
        rows = Review.objects.filter(subject_id=self.repair.pk, closed_at__isnull=True)
        return rows.values_list("pk", flat=True).first() or ""

    @cached_property
    def original(self) -> Original:
        return Original(self.effect, self.run)

    # who ------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> dict[str, str]:
        one = self.repair
        actors = [self.review.asked_by, self.review.closed_by, one.proposed_by, one.decided_by]
        editor = [f"user:{one.editor_id}"] if one.editor_id else []
        actors += [*editor, self.original.declared_by]
        return name_actors([*actors, *(f"user:{pk}" for pk in self._barred)])

    @property
    def barred(self) -> list[Barred]:
        """Who may not, whatever their role; a token that proposed it first."""
        people = [Barred(self.names[f"user:{pk}"], four_eyes.BARRED[why]) for pk, why in self._barred.items()]
        if not self.repair.proposed_by.startswith("token:"):
            return people
        return [Barred(self.proposed_by, "proposed it; tokens never count"), *people]

    @property
    def proposed_by(self) -> str:
        return self.names[self.repair.proposed_by]

    @cached_property
    def wish(self) -> str:
        """What whoever proposed it said to it."""
        return words.brief(compensate.wish_of(self.repair), 400)

    @property
    def editor(self) -> str:
        """Who changed the call last; "" when nobody did."""
        return self.names.get(f"user:{self.repair.editor_id}", "")

    @cached_property
    def nobody_left(self) -> bool:
        """Whether no other person of this workspace could give the approvals that it needs."""
        return self.is_open and four_eyes.nobody_left(self.run, self.review.needed, self._barred)

    @property
    def why_not(self) -> str:
        return approvals.WHY_NOT.get(self.objection, "")

    # what was declared, and what would be sent ----------------------------------------------------

    @cached_property
    def declared(self) -> plans.Plan:
        return plans.declared(self.effect)

    @property
    def declared_says(self) -> str:
        """When and by whom it was declared, and since when the exact call stands."""
        made = self.original
        by = words.clean(self.names.get(made.declared_by, "")) or "the agent"
        said = f"Declared by {by} at {_clock(made.declared_at)}, before the effect."
        if self.declared.from_template:
            said += " Its text is the template of the effect’s kind, as it stood then."
        if self.editor:
            times = words.count(self.repair.edits, "time")
            return (
                f"{said} Changed by {words.clean(self.editor)} since ({times} in all): read the difference."
            )
        return f"{said} Exact call fixed at {_clock(self.repair.proposed_at)}."

    @cached_property
    def lines(self) -> list[call_diff.Line]:
        """The declaration against the exact call."""
        one, plan = self.repair, self.declared
        return difference(plan, one.kind, one)

    @property
    def diff_says(self) -> str:
        return call_diff.says(self.lines)

    @property
    def call(self) -> list[tuple[str, str]]:
        """Name and value, in the order in which they are sent; secrets are hidden, the digest covers them."""
        one = self.repair
        to = [*_where(one.kind, one.kind_name), ("kind", one.kind_name), ("key", one.key)]
        return [(name, words.clean(value)) for name, value in [*to, *_named(one)] if value]

    @property
    def body(self) -> str:
        return "\n".join(body_lines(bytes(self.repair.body), ALL_OF_IT))

    @property
    def op_class(self) -> str:
        return words.CLASS[self.repair.op_class]

    @property
    def expected(self) -> str:
        return words.brief(self.repair.expected, 600) or "It was not declared."

    @property
    def risks(self) -> str:
        return words.brief(self.repair.risks, 600) or "None was declared; that is no proof of none."

    @property
    def verified_by(self) -> str:
        return verified_by(self.repair.kind, self.repair.kind_name)

    @cached_property
    def permitted_by(self) -> str:
        rule = rules_of(self.run.workspace_id).compensation_for(self.repair.kind_name)
        return repair_words.rule_says(rule)

    # what this person may do ----------------------------------------------------------------------

    @property
    def may_edit(self) -> bool:
        """Whether the call can still be changed; that voids every approval."""
        undecided = (CompensationState.PROPOSED, CompensationState.APPROVED)
        return self.is_open and self.repair.state in undecided

    @property
    def may_wave(self) -> bool:
        """Whether somebody may still decide that nothing has to be done."""
        proposed = self.is_open and self.repair.state == CompensationState.PROPOSED
        return proposed or self.open_failure

    @cached_property
    def open_failure(self) -> bool:
        """Failed, with neither a decision nor a later one for the same effect."""
        if self.repair.state != CompensationState.FAILED:
            return False
        later = Compensation.objects.filter(effect=self.effect, number__gt=self.repair.number)
        return not later.exists()


def difference(plan: plans.Plan, kind: Kind | None, call: Any) -> list[call_diff.Line]:
    """A plan as it was declared against a call (a compensation, or what one would be)."""
    where = [part(name, value) for name, value in _where(kind, call.kind_name)]
    before = [*where, part("kind", plan.kind), *_parts(plan), *(parts_of(plan.body) if plan.body else [])]
    after = [*where, part("kind", call.kind_name), *_parts(call), *parts_of(bytes(call.body))]
    return call_diff.diff(before, after)


def _parts(of: Any) -> list[Part]:
    return [part(name, value) for name, value in _named(of) if value]


def _named(of: Any) -> list[tuple[str, str]]:
    return [("title", of.title), ("target", of.target), ("amount", of.amount)]


def _where(kind: Kind | None, name: str) -> list[tuple[str, str]]:
    if name == RESTORE_FILES:
        return [("sent by", "Allstop: it puts back the files of the workspace as they were before")]
    return where_to(kind)


def verified_by(kind: Kind | None, name: str) -> str:
    """How it becomes known that it is there, and from when on nothing found means something."""
    if name == RESTORE_FILES:
        return "The files themselves: path, size and digest of each."
    if kind is None or not kind.lookup:
        return "Nothing: its kind has no look-up. It stays “done, result unknown” until people know."
    window = words.span(kind.settle_window_s)
    if kind.lookup.get("poll"):
        return (
            f"Its agent, which comes for look-ups: by its own key. Not found before {window} is “can’t tell”."
        )
    where = hide(str(kind.lookup.get("url", "")))
    at = f" at {where}" if where else ""
    return f"A look-up by its own key{at}. Not found before {window} is “can’t tell”."


def _clock(at: datetime | None) -> str:
    return words.moment_utc(at) if at else "an unknown time"
