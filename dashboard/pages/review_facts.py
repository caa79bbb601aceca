"""What the review pages tell: lists by who is waited for, and one review with the call as it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import BooleanField, Case, Value, When

from dashboard import repair_words, words
from dashboard.pages.facts import name_actors
from dashboard.pages.hiding import ALL_OF_IT, body_lines, hide
from dashboard.words import Term
from effects import approvals, four_eyes, presets
from effects.kinds import answer_of
from effects.models import Approval, Compensation, Effect, Kind, Provider, Review
from effects.review_lists import for_person, open_in, with_given
from effects.review_tables import ApprovalState, Subject
from effects.schemas import status_of
from runs.access import Actor
from runs.models import User, Workspace

SHOWN, DECIDED = 100, 20


def term_of(review: Review, given: int) -> Term:
    """The chip of a review: "Waiting, 1 of 2"; of a compensation where it stands itself."""
    compensation = compensation_of(review)
    if compensation is not None:
        state = compensation.permit.state if compensation.permit else ""
        of = "" if review.closed_at else f"{given} of {review.needed}"  # asked again, it has a newer review
        return repair_words.term_of(compensation, state, of=of)
    term = words.REVIEW[status_of(review)]
    if term.value not in ("waiting", "granted"):
        return term
    return Term(term.value, f"{term.word}, {given} of {review.needed}", term.sentence, term.icon, term.css)


def compensation_of(review: Review) -> Compensation | None:
    """The compensation that a review is about, where `with_compensations` has read it."""
    found: Compensation | None = getattr(review, "compensation", None)
    return found


def with_compensations(reviews: Iterable[Any]) -> list[Any]:
    """The same reviews, each with the `compensation` that it is about, if it is about one: one query."""
    found = list(reviews)
    ids = [one.subject_id for one in found if one.subject == Subject.COMPENSATION]
    rows = Compensation.objects.filter(pk__in=ids).select_related("permit__step", "kind", "effect__kind")
    known = {one.pk: one for one in rows} if ids else {}
    for review in found:
        review.compensation = known.get(review.subject_id)
    return found


def title_of(review: Review) -> str:
    """What would be done in words: title, amount and target, each once."""
    return named(compensation_of(review) or review.effect)


def named(subject: Effect | Compensation) -> str:
    """An effect or a compensation in words: title, amount and target, each once."""
    title = words.brief(subject.title, 120)
    more = [words.brief(part, 80) for part in (subject.amount, subject.target) if part]
    said = [part for part in more if part not in title]
    return f"{title} ({', '.join(said)})" if said else title


@dataclass(frozen=True)
class Row:
    """One review in a list."""

    review: Any
    title: str
    term: Term
    asked_by: str

    @property
    def what(self) -> str:
        """An effect before it is sent, or a compensation of one that was."""
        return "compensation" if compensation_of(self.review) else "effect"


class Lists:
    """Who is waited for: `mine`, `others`; and what was `decided` last. Four queries and their names."""

    def __init__(self, workspace: Workspace, user: User, *, may_approve: bool) -> None:
        ours = for_person(user) if may_approve else None
        mine = Case(When(ours, then=Value(True)), default=Value(False)) if ours is not None else Value(False)
        rows = with_given(open_in(workspace.pk)).annotate(
            is_mine=mine if ours is not None else Value(False, output_field=BooleanField())
        )
        waiting = list(rows.select_related("effect", "run").order_by("expires_at", "pk")[: SHOWN + 1])
        closed = with_given(Review.objects.filter(workspace=workspace, closed_at__isnull=False))
        decided = list(closed.select_related("effect", "run").order_by("-closed_at", "-pk")[:DECIDED])
        with_compensations([*waiting, *decided])
        self.cut = len(waiting) > SHOWN
        names = name_actors(one.asked_by for one in [*waiting, *decided])
        self.mine = [_row(one, names) for one in waiting[:SHOWN] if one.is_mine]
        self.others = [_row(one, names) for one in waiting[:SHOWN] if not one.is_mine]
        self.decided = [_row(one, names) for one in decided]

    @property
    def says(self) -> str:
        """The h2 of the page: what waits for whom."""
        mine, others = len(self.mine), len(self.others)
        first = f"{mine} wait{'s' if mine == 1 else ''} for you." if mine else "Nothing waits for you."
        rest = f" {others} wait{'s' if others == 1 else ''} for others." if others else ""
        return first + rest


def _row(review: Any, names: dict[str, str]) -> Row:
    return Row(review, title_of(review), term_of(review, review.given), names[review.asked_by])


@dataclass(frozen=True)
class Slot:
    """One place for an approval: who gave it, or that it is open."""

    number: int
    who: str
    approval: Any = None


@dataclass(frozen=True)
class Barred:
    """Somebody who may not approve this, and why."""

    who: str
    why: str


class Detail:
    """One review: the call from its stored bytes, who said what, who may not, and what this person may do."""

    compensation: Compensation | None = None

    def __init__(self, review: Any, actor: Actor, now: datetime, signed_in_s: float | None) -> None:
        self.review, self.actor, self.now = review, actor, now
        self.effect, self.run = review.effect, review.run
        self.signed_in_s = signed_in_s

    @cached_property
    def given(self) -> list[Approval]:
        """Every approval, oldest first."""
        return list(Approval.objects.filter(review=self.review).select_related("person").order_by("pk"))

    @property
    def standing(self) -> list[Approval]:
        """Those that count, or were used."""
        return [one for one in self.given if one.state in (ApprovalState.GIVEN, ApprovalState.CONSUMED)]

    @property
    def ended(self) -> list[Approval]:
        return [one for one in self.given if one not in self.standing]

    @property
    def term(self) -> Term:
        return term_of(self.review, len(self.standing))

    @property
    def title(self) -> str:
        return title_of(self.review)

    @property
    def approve_says(self) -> str:
        """What the button says after "Approve"."""
        return words.brief(self.title, 60)

    @property
    def is_open(self) -> bool:
        return self.review.closed_at is None

    @property
    def slots(self) -> list[Slot]:
        taken = [Slot(n, str(one.person), one) for n, one in enumerate(self.standing, 1)]
        free = range(len(taken) + 1, self.review.needed + 1) if self.is_open else ()
        return [*taken, *(Slot(n, "") for n in free)]

    @cached_property
    def names(self) -> dict[str, str]:
        actors = [self.review.asked_by, self.review.closed_by]
        return name_actors([*actors, *(f"user:{pk}" for pk in self._barred)])

    @cached_property
    def _barred(self) -> dict[int, str]:
        return four_eyes.barred(self.review, self.run) if self.is_open else {}

    @property
    def barred(self) -> list[Barred]:
        """Who may not, whatever their role; the agent itself first."""
        people = [Barred(self.names[f"user:{pk}"], four_eyes.BARRED[why]) for pk, why in self._barred.items()]
        return [Barred(self.asked_by, "asked for it; tokens never count"), *people]

    @property
    def asked_by(self) -> str:
        return self.names[self.review.asked_by]

    @property
    def closed_says(self) -> str:
        """How it closed, by whom, and why."""
        if self.is_open:
            return ""
        by = self.names.get(self.review.closed_by, "")
        quotes = self.review.closed_as in ("rejected", "not_needed")
        why = f" “{words.brief(self.review.reason, 300)}”" if quotes else ""
        return words.REVIEW[self.review.closed_as].say(by=words.clean(by), reason=self.review.reason) + why

    @cached_property
    def objection(self) -> str:
        """Why this person may not approve now: a key of WHY_NOT, or "". An old sign-in is asked for later."""
        return approvals.objection(self.review, self.run, self.actor, 0.0)

    @property
    def why_not(self) -> str:
        return approvals.WHY_NOT.get(self.objection, "")

    @property
    def asks_password(self) -> bool:
        return self.signed_in_s is None or self.signed_in_s >= approvals.FRESH_S

    @property
    def my_approval(self) -> Approval | None:
        """The one that this person could revoke."""
        user = self.actor.user
        mine = (one for one in self.given if one.state == ApprovalState.GIVEN)
        return next((one for one in mine if user and one.person_id == user.pk), None)

    # what would be sent -------------------------------------------------------------------------

    @property
    def call(self) -> list[tuple[str, str]]:
        """Name and value, in the order in which they are sent; secrets are hidden, the digest covers them."""
        to = [*where_to(self.effect.kind), ("kind", self.effect.kind_name), ("key", self.effect.key)]
        named = [("target", self.effect.target), ("amount", self.effect.amount)]
        return [(name, words.clean(value)) for name, value in [*to, *named] if value]

    @property
    def body(self) -> str:
        """The stored body as a person reads it; bytes that are no text are told as that."""
        return "\n".join(body_lines(bytes(self.effect.body), ALL_OF_IT))

    @property
    def op_class(self) -> str:
        return words.CLASS[self.effect.op_class]

    @property
    def plan(self) -> tuple[str, str]:
        """What could lessen it, and the rest of that plan; or that there is nothing, and why."""
        plan: dict[str, Any] = json.loads(bytes(self.effect.plan) or b"{}")
        if plan.get("none_because"):
            return "None", words.clean(plan["none_because"])
        return words.clean(plan.get("title") or plan.get("kind", "")), words.clean(hide(plan.get("body", "")))

    @property
    def afterwards(self) -> str:
        """Whether it could be lessened afterwards: said before it is sent."""
        return presets.of(self.effect).sentence

    @property
    def if_unknown(self) -> str:
        """What its kind, or its provider for it, says of an answer that never comes."""
        return answer_of(self.effect.kind, "when_unknown") if self.effect.kind else ""

    @property
    def key_says(self) -> str:
        return answer_of(self.effect.kind, "idempotency") if self.effect.kind else ""

    @property
    def digest(self) -> str:
        """The first signs of the digest, in fours, for two people to compare."""
        short = self.review.digest[:16]
        return " ".join(short[i : i + 4] for i in range(0, 16, 4))


def where_to(kind: Kind | None) -> list[tuple[str, str]]:
    """Who sends it, and where to."""
    if kind is None or kind.provider == Provider.OUTSIDE:
        return [("sent by", "the agent itself, after the gate’s permit")]
    if not kind.send.get("url"):
        return [("sent by", "Allstop, into the folder of the workspace")]
    method, address = kind.send.get("method", "POST"), hide(kind.send["url"])
    return [
        ("method", f"{method} {address}"),
        ("content type", kind.send.get("content_type", "application/json")),
    ]
