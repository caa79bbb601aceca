"""What a version says that the one before did not: made from both, never typed by anybody.

Two documents are compared, so each sentence names what it was and what it is, with the lines of now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from dashboard import words
from runs.models import RunStatus

from .frozen import moment
from .model import Changes, Claim, ManifestRow, RepairRow, Report, StopFacts
from .sentences import Clock, effect_state, name, quoted

MOST = 200
MOMENTS = {
    "gate_at": "took effect",
    "fenced_at": "has its complete list of what was in flight",
    "quiet_at": "is quiet",
    "timed_out_at": "timed out",
    "closed_at": "is closed",
}
Body = Mapping[str, Any]


def changes_since(before: Body, after: Report) -> Changes:
    """Sentences about what differs between a frozen document and the one that follows it."""
    told = [*_outcome(before, after), *_stops(before, after), *_effects(before, after)]
    told += [*_repairs(before, after), *_messages(before, after), *_late(before, after)]
    told += [*_refusals(before, after), *_answers(before, after)]
    claims = [Claim(f"changed-{n}", c.text, c.lines, c.lead, effect=c.effect) for n, c in enumerate(told, 1)]
    return Changes(before["version"], claims[:MOST], max(0, len(claims) - MOST))


def _say(text: str, *lines: int | None, lead: str = "", effect: str = "") -> Claim:
    return Claim("", text, sorted({line for line in lines if line}), lead, effect=effect)


def _newer(before: Body, after: Report, *kinds: str) -> list[int]:
    """The cited lines of these kinds that the version before could not know."""
    return [
        line.seq for line in after.evidence if line.seq > before["upto_seq"] and line.kind.startswith(kinds)
    ]


def _outcome(before: Body, after: Report) -> Iterator[Claim]:
    if before["outcome"] != after.outcome:
        lines = _newer(before, after, "run.")
        yield _say(f"It was “{before['outcome']}”; it is “{after.outcome}”.", *lines, lead="Outcome.")
    elif before["status"] != after.status:
        was, now = (words.RUN[RunStatus(one)].word for one in (before["status"], after.status))
        if was != now:
            yield _say(f"It was “{was}”; it is “{now}”.", *_newer(before, after, "run."), lead="Status.")


def _stops(before: Body, after: Report) -> Iterator[Claim]:
    old = {stop["number"]: stop for stop in _stops_in(before)}
    for stop in [after.stop, *after.earlier_stops]:
        if stop is not None:
            yield from _stop(before, after, old.get(stop.number), stop)


def _stops_in(before: Body) -> list[Any]:
    return [*([before["stop"]] if before["stop"] else []), *before["earlier_stops"]]


def _stop(before: Body, after: Report, old: Any, stop: StopFacts) -> Iterator[Claim]:
    lines = _newer(before, after, "stop.")
    if old is None:
        yield _say(f"Stop #{stop.number} was recorded, mode {stop.mode}.", *lines, lead="A stop came.")
        return
    came = [said for name, said in MOMENTS.items() if getattr(stop, name) and not old[name]]
    if came:
        why = f": {words.clean(stop.closed_because)}" if stop.closed_at and not old["closed_at"] else ""
        yield _say(f"Stop #{stop.number} {words.listed(came)}{why}.", *lines)


def _effects(before: Body, after: Report) -> Iterator[Claim]:
    old = {row["id"]: row for row in before["manifest"]["rows"]}
    clock = Clock(after.stop.recorded_at if after.stop else after.as_of)
    for row in after.manifest.rows:
        said = _effect(before, after, old.get(row.id), row, clock)
        if said:
            lead = f"{name(row.name, row.amount, row.target)}."
            yield _say(said, row.line, lead=lead, effect=row.id)


def _effect(before: Body, after: Report, old: Any, row: ManifestRow, clock: Clock) -> str:
    now = effect_state(row.settlement, after.status)
    if old is None:
        return f"It was not in version {before['version']}; it is {now}."
    was = effect_state(old["settlement"], before["status"])
    if was != now:
        against = " Later evidence spoke against what was settled." if row.contradicted else ""
        return f"It was {was}; it is {now}. {row.ground}.{against}"
    if row.settlement == old["settlement"] == "UNKNOWN" and row.contradicted and not old["contradicted"]:
        return f"It is still {now}, and its evidence disagrees. {row.ground}."
    if _next(row.next_check_at) != old["next_check_at"]:
        ahead = f"The next look-up is due {clock.at(row.next_check_at)}" if row.next_check_at else NO_MORE
        return f"It is still {now}. {ahead}."
    return f"It stands on other evidence: {row.ground}." if row.ground != old["ground"] else ""


NO_MORE = "It is not looked up any more"


def _next(at: datetime | None) -> str | None:
    return moment(at) if at else None


def _repairs(before: Body, after: Report) -> Iterator[Claim]:
    old = {row["id"]: row for row in before.get("repairs", {}).get("rows", [])}
    for row in after.repairs.rows:
        said = _repair(old.get(row.id), row)
        if said:
            yield _say(said, row.line, lead=f"{name(row.name, row.amount, row.target)}.", effect=row.effect)


def _repair(old: Any, row: RepairRow) -> str:
    what = f"The compensation of {quoted(row.effect_name)}"
    if old is None:
        return f"{what} is new: {_lower(row.stands)}."
    if (old["stands"], old["says"]) != (row.stands, row.says):
        return f"{what} was {_lower(old['stands'])}; it is {_lower(row.stands)}. {row.says}"
    if old["approved_by"] != row.approved_by:
        return (
            f"{what} has {words.count(len(row.approved_by), 'approval')}; it had {len(old['approved_by'])}."
        )
    return ""


def _lower(word: str) -> str:
    return word[:1].lower() + word[1:]


def _messages(before: Body, after: Report) -> Iterator[Claim]:
    was, now = words.messages(before.get("deliveries", {})), after.messages
    if was != now:
        lines = _newer(before, after, "delivery.")
        yield _say(f"They were: {was or 'none'}. They are: {now or 'none'}.", *lines, lead="Messages.")


def _late(before: Body, after: Report) -> Iterator[Claim]:
    more = after.late.total - before["late"]["total"]
    if more > 0:
        came = words.count(more, "report came late", "reports came late")
        lines = [row.line for row in after.late.rows if row.line > before["upto_seq"]]
        yield _say(f"{came}. {'Each is' if more > 1 else 'It is'} kept as evidence.", *lines[:5])


def _refusals(before: Body, after: Report) -> Iterator[Claim]:
    more = after.log.asked - before["log"]["asked"]
    if more > 0:
        lines = [row.line for row in after.log.rows if row.line and row.line > before["upto_seq"]]
        said = words.count(more, "attempt more was refused", "attempts more were refused")
        yield _say(f"{said} by our gates.", *lines[:5])


def _answers(before: Body, after: Report) -> Iterator[Claim]:
    """The questions whose answers read differently: what a list of rows can't show is said at least so."""
    old = {section["key"]: [_text(one) for one in section["claims"]] for section in before["sections"]}
    differ = [one.title for one in after.sections if old.get(one.key) != [c.says for c in one.claims]]
    if differ:
        read = "reads" if len(differ) == 1 else "read"
        yield _say(f"{words.listed([quoted(title) for title in differ])} {read} differently.")


def _text(claim: Body) -> str:
    return " ".join(part for part in (claim["lead"], claim["text"], claim["stress"]) if part)
