"""The provider browser: an effect is one action on a web page, done by a real browser and then looked at.

`kind.send`: {start (the address of the page; {key}), do [{fill | select: selector, with: text}, {click:
selector}, {wait: selector}], the last of them the one that changes something (commit?: its place), shows?
(how the page says what became of it), origins? [others that the page needs]}. `with` may hold {key},
{target}, {amount}, {body.path}. `kind.lookup`: {page (with {key}), selector, text? | equals?,
absent_selector?, counts?, origins?}, or that of provider http.

Until the second look the page can only read; directly after it the one action is done, and none after that.
What became of it is what the page shows, or the site's own record: a click proves nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from effects import accounts, browsing, outbound
from effects.browsing import Busy, Failed, NoBrowser, Visit
from effects.models import Kind
from effects.new_kind import KEY, BadKind, NewKind, Questions, check_class, check_lookup, check_url
from effects.reconcile import ABSENT, CANT_TELL, PRESENT, Answer
from effects.settle import Told
from runs.evidence import canonical
from runs.models import OperationClass

from . import http
from .page_rules import BadScript, Rule, Script, Step, check_rule, check_script, script_of
from .shape import Inspection, Ready, Sendable, inspection_of

QUESTIONS = Questions(
    commits="When the site takes what the one action sends; the page may show it later, or not at all.",
    tells_apart=("CONFIRMED", "NOT_APPLIED"),
    idempotency="None, unless the site takes the effect key in its address or in a field.",
    compensation="What was declared with the effect: an action of a kind of its own.",
    durable_before_pause="The key, the values for the page, and the permit to act.",
    when_unknown="The action was done and the page did not say what came of it. Nothing is clicked again.",
)
PREPARE_S, ACT_S, SHOWN_S = 8.0, 5.0, 8.0  # until it could be done · to do it · until the page shows it
PAUSE_S = 0.1


# send ---------------------------------------------------------------------------------------------


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """Open the page, do all but the action, look again, act once, read the page.

    applied or not_applied as `shows` says it · not_applied (nothing was done) · not_sent (no browser was
    free) · unknown (all else). What `ready` raises goes on to the caller, with the page only read.
    """
    try:
        script, start = script_of(kind.send, effect), filled(str(kind.send.get("start", "")), effect)
        with browsing.visit(_origins(start, kind.send), _shown(kind, start, kind.send)) as visit:
            rule = Rule.of(kind.send.get("shows"), effect)
            _prepare(visit, start, script, rule)
            ready()
            return _act(visit, script.action, rule)
    except Busy as error:  # the second look was not asked yet: the effect waits for its turn
        return Told("not_sent", detail=str(error))
    except (BadScript, NoBrowser, Failed, outbound.Refused, outbound.NoConnection) as error:
        return Told("not_applied", detail=f"nothing was done: {error}")


compensate = send


def _prepare(visit: Visit, start: str, script: Script, rule: Rule | None) -> None:
    """Up to the action, which is tried out. Raises Failed, outbound.Refused, outbound.NoConnection."""
    end = time.monotonic() + PREPARE_S
    status = _open(visit, start)
    if status >= 400:
        raise Failed(f"the page answered {status}")
    for step in script.before:
        visit.run(step.do(visit.page), _left(end))
    visit.run(script.action.try_out(visit.page), _left(end))
    if rule is not None and visit.run(rule.read(visit.page), _left(end)).answer != CANT_TELL:
        raise Failed("the page shows already what would tell the outcome")


def _open(visit: Visit, address: str) -> int:
    """Load a page; its status. What our rules forbid is said before the browser tries it."""
    target = outbound.target_of(address)
    outbound.places_of(target, time.monotonic() + outbound.LIMIT_S)
    response = visit.run(visit.page.goto(address, wait_until="load"), PREPARE_S)
    return int(response.status) if response else 0


def _left(end: float) -> float:
    return max(0.05, end - time.monotonic())


def _act(visit: Visit, action: Step, rule: Rule | None) -> Told:
    """The one action. From here on nothing is certain but what the page shows."""
    visit.let_change()
    try:
        visit.run(action.do(visit.page), ACT_S)
    except Failed as error:
        return Told("unknown", detail=f"the action began and did not come to its end: {error}")
    seen = _shown_by(visit, rule, SHOWN_S)
    observed = {**_without(visit, seen.observed), "requests": _requests(visit)}
    if seen.answer in OUTCOME:
        return Told(OUTCOME[seen.answer], result=observed, detail=f"the page says so: {seen.detail}")
    return Told("unknown", usage=observed, detail=f"the action was done; {seen.detail}")


OUTCOME = {PRESENT: "applied", ABSENT: "not_applied"}


def _requests(visit: Visit) -> list[str]:
    """What the action sent, with the status of each answer that came."""
    return [f"{one.method} {one.path}: {one.status or 'no answer'}" for one in visit.sent[:20]]


# look up ------------------------------------------------------------------------------------------


def look_up(effect: Sendable, kind: Kind) -> Answer:
    """What a page of the site shows under the key, or its own record: present · absent · can't tell."""
    if "page" not in kind.lookup:
        return http.look_up(effect, kind)
    address = filled(str(kind.lookup["page"]), effect)
    try:
        with browsing.visit(_origins(address, kind.lookup), _shown(kind, address, kind.lookup)) as visit:
            status = _open(visit, address)
            if status >= 400:
                return Answer(CANT_TELL, f"the page answered {status}", {"status": status})
            seen = _shown_by(visit, Rule.of(kind.lookup, effect), SHOWN_S)
            return replace(seen, observed=_without(visit, seen.observed))
    except (NoBrowser, Failed, outbound.Refused, outbound.NoConnection) as error:
        return Answer(CANT_TELL, f"the page could not be seen: {error}")


def inspect(effect: Sendable) -> Inspection | None:
    """What a look-up sees now; None for a kind without one."""
    kind = effect.kind
    return inspection_of(look_up(effect, kind)) if kind is not None and kind.lookup else None


def _without(visit: Visit, observed: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a page: nothing of a credential that it was shown and repeats."""
    text = canonical(observed).encode()
    for shown in visit.headers.values():
        text = accounts.without(text, shown)
    kept: dict[str, Any] = json.loads(text)
    return kept


def _shown_by(visit: Visit, rule: Rule | None, limit_s: float) -> Answer:
    """What the page shows, as soon as it shows one thing or the other."""
    end = time.monotonic() + limit_s
    while True:
        seen = _seen_now(visit, rule, end)
        if seen.answer != CANT_TELL:
            return seen
        if _is_lost(visit):
            return Answer(CANT_TELL, "no answer came to what it sent", seen.observed)
        if time.monotonic() >= end or (rule is None and _is_answered(visit)):
            return seen
        visit.run(asyncio.sleep(PAUSE_S), 2)


def _seen_now(visit: Visit, rule: Rule | None, end: float) -> Answer:
    if rule is None:
        return Answer(CANT_TELL, "its kind does not say how the page shows it")
    try:
        return visit.run(rule.read(visit.page), _left(end))
    except Failed as error:
        return Answer(CANT_TELL, f"the page can't be read: {error}")


def _is_lost(visit: Visit) -> bool:
    """No answer came to what the action sent: the page can't show one."""
    return bool(visit.sent) and all(one.failed for one in visit.sent)


def _is_answered(visit: Visit) -> bool:
    return bool(visit.sent) and all(one.status for one in visit.sent)


# addresses ----------------------------------------------------------------------------------------


def filled(address: str, effect: Sendable) -> str:
    """An address with the effect key where {key} stands."""
    return address.replace(KEY, quote(effect.key, safe=""))


def _origins(address: str, rules: dict[str, Any]) -> list[str]:
    """The origins that the page may reach. Raises outbound.Refused."""
    return [outbound.target_of(one).origin for one in (address, *rules.get("origins", []))]


def _shown(kind: Kind, address: str, rules: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The credential of the kind's account, for a page that reaches its origin and no other: a redirect
    would take it along."""
    shown = {} if rules.get("origins") else accounts.credential_for(kind, address)
    return {outbound.target_of(address).origin: shown} if shown else {}


# registering --------------------------------------------------------------------------------------


def check(new: NewKind) -> None:
    """Raises BadKind."""
    if why := browsing.lacks():
        raise BadKind("provider", f"This server has no browser: {why}")
    check_class(new, OperationClass.BROWSER_ACTION)
    check_url("send.start", str(new.send.get("start", "")), needs_key=False)
    _check_origins("send.origins", new.send)
    check_script(new.send)
    if "shows" in new.send:
        check_rule("send.shows", new.send["shows"])
    if "page" not in new.lookup:
        check_lookup(new)
        return
    check_url("lookup.page", str(new.lookup["page"]), needs_key=True)
    _check_origins("lookup.origins", new.lookup)
    check_rule("lookup", new.lookup)


def _check_origins(field: str, rules: dict[str, Any]) -> None:
    others = rules.get("origins", [])
    if not isinstance(others, list) or len(others) > 20:
        raise BadKind(field, "It is a list of at most 20 origins")
    for one in others:
        check_url(field, str(one), needs_key=False)
        if outbound.target_of(str(one)).path != "/":
            raise BadKind(field, "An origin is scheme, host and port alone")


__all__ = ["QUESTIONS", "check", "compensate", "inspect", "look_up", "send"]
