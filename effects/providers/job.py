"""The provider job: a request that the provider accepts now and carries out later, at its own place.

`kind.send`: as of http, and {cancel? {url with {key} or {ref}, method? (POST)}}: how it is asked to end it.
`kind.lookup`: as of http, and {job? {path, accepted? [words], running?, completed?, failed?, url? with {key}
or {ref}}}: how far a job is, as the provider's own word at that path. CONFIRMED means accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from effects import accounts, jobs, outbound
from effects.models import Effect, Kind
from effects.new_kind import BadKind, NewKind, Questions, check_class
from effects.reconcile import ABSENT, Answer
from effects.settle import Told
from runs.models import OperationClass

from . import answers, http
from .http import SENDS, compensate, filled, inspect, look_up, seen_in, send, told_by
from .shape import Ready

QUESTIONS = Questions(
    commits="When the provider accepts it. What the job does there comes later, and goes on without us.",
    tells_apart=("CONFIRMED (accepted)", "NOT_APPLIED"),
    idempotency="The effect key, in the header Idempotency-Key; the same on every attempt.",
    compensation="What was declared with the effect. Asking the provider to cancel is not one.",
    durable_before_pause="The key and the raw bytes of the request; then the provider's number of the job.",
    when_unknown="Whether the provider accepted it is asked by its key; how far it is, only once it did.",
)


@dataclass(frozen=True)
class Heard:
    """How far a job is (one of jobs.STATES; "": the provider could not tell) and what was said."""

    state: str
    detail: str


def ask(effect: Effect, kind: Kind) -> Heard:
    """Ask how far a job is. Never raises for what a provider does."""
    rules: dict[str, Any] = kind.lookup.get("job") or {}
    lookup = {**kind.lookup, "url": rules.get("url") or kind.lookup.get("url", "")}
    lookup.pop("fence", None)  # a key that was used is not barred
    try:
        answer = accounts.call(kind, outbound.Request("GET", filled(lookup["url"], effect)))
    except (outbound.Refused, outbound.NoConnection, outbound.NoAnswer) as error:
        return Heard("", str(error))
    return _heard(seen_in(answer, effect, lookup), answer, rules)


def _heard(seen: Answer, answer: outbound.Answer, rules: dict[str, Any]) -> Heard:
    if seen.answer == ABSENT:
        return Heard(jobs.UNKNOWN, f"{seen.detail}: it does not know the job any more")
    if not seen.job:
        return Heard("", seen.detail)
    word = answers.tidy(answers.at(answers.read(answer.body), rules["path"]))
    return Heard(seen.job, f"the provider says {word!s:.80}")


def cancel(asking: Effect, kind: Kind, ready: Ready = lambda: None) -> Told:
    """Ask the provider to end what `asking.asks_about` began there: one request under the asking's own key.

    applied: it took the request, which says nothing of the job · not_applied: it refused, or nothing was
    sent · unknown.
    """
    about, rules = asking.asks_about, kind.send.get("cancel") or {}
    if about is None or not rules:
        return Told("not_applied", detail="nothing was sent: its kind does not say how to ask for that")
    try:
        answer = accounts.call(kind, _request(asking, about, rules), ready)
    except (outbound.Refused, outbound.NoConnection) as error:
        return Told("not_applied", detail=f"nothing was sent: {error}")
    except outbound.NoAnswer as error:
        return Told("unknown", detail=str(error))
    return told_by(answer, kind)


def _request(asking: Effect, about: Effect, rules: dict[str, Any]) -> outbound.Request:
    method = str(rules.get("method") or "POST").upper()
    if method not in SENDS:
        raise outbound.Refused(f"{method} does not ask to cancel")
    url = filled(str(rules.get("url", "")), about)
    return outbound.Request(method, url, {"Idempotency-Key": asking.key}, bytes(asking.body))


def check(new: NewKind) -> None:
    """As of http, and of class external_job. Raises BadKind."""
    check_class(new, OperationClass.EXTERNAL_JOB)
    http.check(new)
    rules = new.lookup.get("job")
    if rules is not None and not rules.get("path"):
        raise BadKind("lookup.job.path", "Say where the answer holds the state of the job")


__all__ = ["QUESTIONS", "cancel", "check", "compensate", "inspect", "look_up", "send"]
