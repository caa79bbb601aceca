"""A kind in words: who sends its effects, who is asked about them and when, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from dashboard import words
from dashboard.pages.hiding import hide
from effects import jobs, presets, reconcile
from effects.models import Kind, Provider

Pair = tuple[str, str]
QUESTION = {
    "commits": "When does it commit?",
    "tells_apart": "Which settlements can it tell apart?",
    "idempotency": "What is its idempotency key?",
    "compensation": "What compensation is approved?",
    "durable_before_pause": "What must be durable before a pause?",
    "when_unknown": "What does a person see when confirmation can’t be had?",
}
SENDER = {
    Provider.HTTP: "Allstop, one request",
    Provider.WORKSPACE: "Allstop, into the folder of the workspace",
    Provider.JOB: "Allstop, one request that the provider carries out later",
    Provider.EMAIL: "Allstop, by SMTP",
    Provider.BROWSER: "Allstop, one action in a browser",
    Provider.MODEL: "Allstop, one model turn",
    Provider.OUTSIDE: "the agent itself, after the gate’s permit",
}


def sent(kind: Kind) -> Iterator[Pair]:
    """Who sends it and where to; whom a stop may ask to cancel."""
    yield "Sent by", SENDER.get(Provider(kind.provider), kind.provider)
    if kind.send.get("url"):
        yield "To", f"{kind.send.get('method', 'POST')} {hide(kind.send['url'])}"
    if kind.account:
        yield "Account", words.clean(kind.account)
    cancel = kind.send.get("cancel")
    if cancel:
        yield (
            "On a stop",
            f"its provider can be asked to cancel: {cancel.get('method', 'POST')} {hide(cancel['url'])}",
        )
    pauses = [words.span(pause) for pause in kind.retry_after_s]
    yield "Tried again", f"after {', '.join(pauses)}; never after a stop" if pauses else "never by itself"


def asked(kind: Kind) -> Iterator[Pair]:
    """Who is asked what happened, when, until when, and what an answer proves."""
    lookup = kind.lookup
    if not lookup:
        yield "Look-up", "none: unknown stays unknown until a person, a webhook or its own worker knows"
        return
    yield "Look-up", _how(lookup)
    if lookup.get("url"):
        yield "Found", found(lookup)
    yield "Schedule", schedule(kind)
    yield "Settle window", f"“not found” proves nothing within {words.span(kind.settle_window_s)} of the call"
    kept = words.span(kind.key_retention_s)
    yield "Key retention", f"{kept}: after that no retry, and “not found” proves nothing"
    yield "Key fencing", fencing(kind)
    job = lookup.get("job")
    if job:
        listed = [f"{state}: {', '.join(job[state])}" for state in jobs.STATES if job.get(state)]
        yield "Job", f"how far it is, at {words.clean(job['path'])} ({'; '.join(map(words.clean, listed))})"


def _how(lookup: dict[str, Any]) -> str:
    if lookup.get("poll"):
        return "its own agent comes for what is due, and answers"
    if lookup.get("callback"):
        return f"its own agent is called, signed: {hide(lookup['callback'])}"
    if lookup.get("url"):
        return f"{lookup.get('method', 'GET')} {hide(lookup['url'])}"
    return "its page is visited and read" if lookup.get("page") else "its files are inspected"


ANY_OBJECT = "its key is compared with nothing, so another’s object would count"


def found(lookup: dict[str, Any]) -> str:
    """What of an answer counts as the effect, and whether another's object would."""
    wanted, key = lookup.get("present_if") or {}, lookup.get("key_path")
    says = f"what comes with {wanted.get('status') or 200}"
    if wanted.get("json_path"):
        equals = wanted.get("equals")
        fits = "holds something" if equals is None else f"is {hide(str(equals))}"
        says += f"; {words.clean(wanted['json_path'])} {fits}"
    return f"{says}; its key is at {words.clean(key)}" if key else f"{says}; {ANY_OBJECT}"


def fencing(kind: Kind) -> str:
    """Whether a late send can be barred: what makes “not found” proof although a worker was lost."""
    if kind.lookup.get("fence"):
        return "the question bars a key that is not there; it counts where the answer says so"
    if kind.key_fencing:
        return "each look-up bars a key that is not there"
    return "none: of a lost worker, “not found” proves nothing"


def schedule(kind: Kind) -> str:
    """ "after 2 s, 7 s, 22 s, … then each 15 min 00 s, until 1 d 0 h after it became unknown"."""
    every = [float(pause) for pause in kind.check_every_s or reconcile.EVERY_S]
    if kind.lookup.get("inspect") and not kind.check_every_s:
        every = list(map(float, reconcile.EVERY_S))
    at = [words.span(moment) for moment in accumulate([2.0, *every[:-1]])]
    end = words.span(kind.check_for_s)
    return f"after {', '.join(at)}, then each {words.span(every[-1])}; it ends {end} after it became unknown"


def afterwards(kind: Kind) -> Iterator[Pair]:
    """What is said before the effect of lessening it, and the template of the call that would."""
    yield "Afterwards", presets.of_kind(kind).sentence
    template = kind.compensate
    if not template:
        yield "Compensation", "no template: an effect says its own, or that there is none"
        return
    yield "Compensation", words.brief(template.get("title") or template.get("kind") or "a template", 200)
    for name, word in (("kind", "Of kind"), ("expected", "Expected"), ("risks", "Risks")):
        if template.get(name):
            yield word, words.brief(template[name], 300)
