"""Every answer that there is about one unknown: its evidence lines, read as sentences, oldest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from dashboard import words
from dashboard.event_words import event
from dashboard.pages.facts import name_actors
from dashboard.pages.hiding import hide_in
from dashboard.unknown_words import GROUND, UNREACHED, VERDICT, items_in_words
from effects.backing import PROVIDERS_OWN
from effects.models import Ground, Matter
from runs.models import Boundary, Evidence, EvidencePayload

SHOWN = 60  # lines of one unknown: the first few, and the newest; the evidence page holds all
FIRST = 5
ROOM = 300
LOOKED = ("effect.looked_up", "compensation.looked_up")
UNTOLD = ("permit.opened", "step.registered")  # another line says the same of it
SETTLED = frozenset(
    {
        "CONFIRMED",
        "PARTIAL",
        "NOT_APPLIED",
        "NOT_STARTED",
        "HANDED_OVER",
        "NOT_HANDED_OVER",
        "VERIFIED",
        "FAILED",
    }
)
# What a line tells, before its details; the rest keep the words of the evidence page.
SAW = {
    "present": "found",
    "partial": "found, but not whole",
    "absent": "not found",
    "refused": "refused by the provider",
}
MEANS = {"happened": "it happened", "partly": "part of it happened", "did not happen": "it did not happen"}
PROVES = {"happened": "yes", "partly": "part", "did not happen": "no"}
NO_PROOF = "That proves nothing yet: it means “can’t tell”."
REPORTED = {
    "applied": "it happened",
    "partial": "part of it happened",
    "not_applied": "it did not happen",
    "unknown": "it can’t say",
    "not_sent": "nothing was sent",
}


@dataclass(frozen=True)
class Answer:
    """One line in words. `fields`: what was observed; `citable`: a provider said it, so it may be cited.

    `proves`: the verdict that it can carry, as the form's classes name it; "acc": only that nobody can tell.
    `settles`: it said what became of it.
    """

    seq: int
    at: datetime
    says: str
    more: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    citable: bool = False
    settles: bool = False
    proves: str = ""


class Answers:
    """The lines about one subject: `rows` oldest first, and how many in the middle are left out."""

    def __init__(self, run_id: str, matter: str, key: str) -> None:
        lines, self.total = lines_of(run_id, matter, key)
        bodies = _bodies(run_id, [line.seq for line in lines])
        names = name_actors(line.actor for line in lines)
        self.rows: list[Answer] = []
        looked = 0
        for line in lines:
            looked += line.kind in LOOKED
            told = bodies.get(line.seq, {})
            self.rows.append(_answer(line, told, names.get(line.actor, ""), looked))

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)

    @property
    def citable(self) -> list[Answer]:
        """What the provider itself said, newest first, what proves something before what could not tell."""
        rows = [row for row in reversed(self.rows) if row.citable]
        return sorted(rows, key=lambda row: row.proves == "acc")[:10]

    @property
    def proving(self) -> bool:
        """Whether any of it can carry more than that nobody can tell."""
        return any(row.citable and row.proves != "acc" for row in self.rows)


def lines_of(run_id: str, matter: str, key: str) -> tuple[list[Evidence], int]:
    """The first lines and the newest, oldest first, and how many there are: three queries at most."""
    mine = Evidence.objects.filter(stream=run_id, effect_key=key).exclude(kind__in=UNTOLD)
    if matter == Matter.DELIVERY:  # an effect may have the same key
        of_people = Q(kind__startswith="unknown.") | Q(kind__startswith="resolution.")
        mine = mine.filter(Q(boundary=Boundary.DELIVER) | of_people)
    else:
        mine = mine.exclude(boundary=Boundary.DELIVER)
    newest = list(mine.order_by("-seq")[: SHOWN + 1])
    if len(newest) <= SHOWN:
        return newest[::-1], len(newest)
    first = list(mine.order_by("seq")[:FIRST])
    return [*first, *newest[: SHOWN - FIRST][::-1]], mine.count()


def _bodies(run_id: str, seqs: list[int]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    rows = EvidencePayload.objects.filter(stream=run_id, seq__in=seqs).values_list("seq", "body")
    for seq, body in rows:
        try:
            told = json.loads(body or "{}")
        except ValueError:
            told = {}
        found[seq] = told if isinstance(told, dict) else {}
    return found


def _answer(line: Evidence, told: dict[str, Any], who: str, looked: int) -> Answer:
    reader = READERS.get(line.kind, _other)
    says, more = reader(line, told, words.brief(who or line.actor, 60))
    if line.kind in LOOKED:
        says = says.format(n=looked)
    citable = line.ground in PROVIDERS_OWN and bool(told.get("answer"))
    proves = PROVES.get(str(told.get("means", "")), "acc") if citable else ""
    return Answer(line.seq, line.at, says, more, tuple(_fields(told)), citable, reader is _settled, proves)


BRACES = {ord("{"): "(", ord("}"): ")"}  # a name is no place to be filled
Reader = Callable[[Evidence, dict[str, Any], str], tuple[str, str]]


def _brief(told: dict[str, Any], *names: str) -> str:
    """The first of these that says something, as it was said."""
    found = next((told[name] for name in names if told.get(name) not in (None, "", [], {})), "")
    return words.brief(hide_in(found), ROOM) if isinstance(found, str) else ""


def _worker(line: Evidence, who: str) -> str:
    return f"worker {words.brief(line.worker)}" if line.worker else who


def _dispatched(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    under = "" if line.carried_version is None else f" under v{line.carried_version}"
    return f"A permit to send it was given to {_worker(line, who)}{under}.", ""


def _reported(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    late = " late" if line.kind.endswith("_late") else ""
    said = REPORTED.get(str(told.get("outcome", "")), "its call is over")
    holder = _worker(line, who)
    part = items_in_words(told.get("items"))
    more = " · ".join(one for one in (_brief(told, "detail"), f"part: {part}" if part else "") if one)
    return f"{holder[0].upper()}{holder[1:]} reported{late}: {said}.", more


def _lost(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    return f"The lease of {_worker(line, who)} ran out; nobody says what happened.", ""


def _looked(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    """A failed look-up is not an absence: it says why, and that it stays unknown."""
    asked = "" if who == words.OURS["system"] else f", asked by {who.translate(BRACES)}"
    if told.get("answered_by"):
        asked = f"{asked}, answered by its agent"
    return f"Look-up {{n}}{asked}: {_saw(told).translate(BRACES)}", _brief(told, "detail")


def _webhook(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    return f"The provider’s webhook: {_saw(told)}", _brief(told, "detail")


def _saw(told: dict[str, Any]) -> str:
    saw, means = str(told.get("answer", "")), str(told.get("means", ""))
    if saw in SAW:
        return f"{SAW[saw]}. {f'It means: {MEANS[means]}.' if means in MEANS else NO_PROOF}"
    failed = UNREACHED.search(str(told.get("detail", "")))
    return f"{'the provider could not be reached' if failed else 'it could not tell'}; still unknown."


def _unknown(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    was, head = str(told.get("was", "")), "Unknown from here on."
    if was in SETTLED:
        who_says = "a second person" if line.ground == Ground.DECIDED else "later evidence"
        head = f"Contradicted: it was {was.lower().replace('_', ' ')}, and {who_says} disagrees."
    return head, _brief(told, "why", "detail")


def _settled(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    ground = GROUND.get(line.ground, "")
    by = f", by {who}" if line.ground == Ground.DECIDED else ""
    return f"{event(line.kind)}{f', {ground}' if ground else ''}{by}.", _brief(told, "why", "detail")


def _recorded(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    """What a person said, in their own words."""
    said = VERDICT.get(str(told.get("verdict", "")), "a verdict")
    waits = " It waits for a second person." if told.get("waits") else ""
    part = items_in_words(told.get("items"))
    return f"{who} recorded: {said}.{waits}{f' Part: {part}.' if part else ''}", _brief(told, "evidence")


def _by(says: str) -> Reader:
    def reader(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
        return says.format(who=who), _brief(told, "why", "text", "file_name")

    return reader


def _withdrawn(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    own = told.get("by", line.actor) == line.actor
    says = f"{who} withdrew it." if own else f"It waits for nobody any more: {who} recorded another."
    return says, _brief(told, "why") if own else ""


def _ended(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    return "The look-ups ended: their schedule is over. A later report still counts.", ""


def _other(line: Evidence, told: dict[str, Any], who: str) -> tuple[str, str]:
    by = f", {who}" if line.actor.startswith(("user:", "token:")) else ""
    return f"{event(line.kind)}{by}.", _brief(told, "detail", "why", "reason", "evidence", "text")


READERS: dict[str, Reader] = {
    "effect.dispatched": _dispatched,
    "delivery.dispatched": _dispatched,
    "compensation.dispatched": _dispatched,
    "permit.reported": _reported,
    "permit.reported_late": _reported,
    "permit.not_sent": _reported,
    "permit.not_sent_late": _reported,
    "permit.lost": _lost,
    **dict.fromkeys(LOOKED, _looked),
    "webhook.received": _webhook,
    "effect.unknown": _unknown,
    "delivery.unknown": _unknown,
    "compensation.unknown": _unknown,
    "effect.confirmed": _settled,
    "effect.partial": _settled,
    "effect.not_applied": _settled,
    "delivery.handed_over": _settled,
    "delivery.not_handed_over": _settled,
    "compensation.verified": _settled,
    "compensation.failed": _settled,
    "reconcile.ended": _ended,
    "resolution.recorded": _recorded,
    "resolution.agreed": _by("{who} agreed to it."),
    "resolution.withdrawn": _withdrawn,
    "unknown.taken": _by("{who} looks after it."),
    "unknown.given_back": _by("{who} released it."),
    "unknown.attached": _by("{who} attached evidence."),
    "unknown.asked": _by("{who} asked for a look-up."),
    "unknown.overdue": _by("It passed its due time."),
}


def _fields(told: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """What was observed, by name; secrets are hidden, and what is long is cut."""
    observed = told.get("observed")
    seen = dict(observed) if isinstance(observed, dict) else {}
    inner = seen.pop("fields", None)
    seen |= inner if isinstance(inner, dict) else {}
    seen |= {name: told[name] for name in ("provider_ref", "count", "result") if told.get(name) is not None}
    for name, value in list(hide_in(seen).items())[:12]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield words.brief(name, 60), words.brief(text, 200)
