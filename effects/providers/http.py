"""The provider http: an effect is one request with its key in a header; a look-up is one GET.

`kind.send`: {url, method? (POST), content_type? (application/json), ref_path? (id)}.
`kind.lookup`: {url with {key}, method? (GET alone), present_if? {status (200), json_path?, equals?},
absent_status? ([404]), key_path?, partial_path?, partial_equals?, items?, count_path?,
ref_path? (id), fence? (true, or {param? (fence), value? (1), path?}): the question also bars a key that is
not there, and the answer says so at `path`}. Paths are dotted (`data.0.id`). `send.cancel`, `lookup.job`: see
job.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from django.db import close_old_connections

from effects import accounts, jobs, outbound
from effects.models import Kind
from effects.new_kind import (
    KEY,
    REF,
    BadKind,
    NewKind,
    Questions,
    check_cancel,
    check_lookup,
    check_url,
)
from effects.reconcile import ABSENT, CANT_TELL, PARTIAL, PRESENT, Answer
from effects.settle import Told

from . import answers
from .shape import Inspection, Ready, Sendable, inspection_of

QUESTIONS = Questions(
    commits="When the provider answers 2xx; or at any moment after the request left, when no answer comes.",
    tells_apart=("CONFIRMED", "PARTIAL", "NOT_APPLIED"),
    idempotency="The effect key, in the header Idempotency-Key; the same on every attempt.",
    compensation="What was declared with the effect: a request of a kind of its own.",
    durable_before_pause="The key and the raw bytes of the request, committed before anything is sent.",
    when_unknown="The request left and no answer came. It is not repeated; its look-up, if any, is asked.",
)
SENDS = ("POST", "PUT", "PATCH", "DELETE")
ASKS = ("GET",)
# The provider has not decided: too slow, in conflict (perhaps with our own first try), too early,
# too many. Whether it happened can't be read from these.
UNDECIDED = (408, 409, 425, 429)


# send --------------------------------------------------------------------------------------------


def send(effect: Sendable, kind: Kind, ready: Ready = lambda: None) -> Told:
    """One request with the stored bytes and the effect's key; what the answer means.

    applied · partial · not_applied (refused by it, or nothing was sent) · unknown (all else).
    """
    try:
        answer = accounts.call(kind, _request(effect, kind), ready)
    except (outbound.Refused, outbound.NoConnection) as error:
        return Told("not_applied", detail=f"nothing was sent: {error}")
    except outbound.NoAnswer as error:
        return Told("unknown", detail=str(error))
    return told_by(answer, kind)


compensate = send


def _request(effect: Sendable, kind: Kind) -> outbound.Request:
    method = str(kind.send.get("method") or "POST").upper()
    if method not in SENDS:
        raise outbound.Refused(f"{method} does not send an effect")
    headers = {
        "Idempotency-Key": effect.key,
        "Content-Type": str(kind.send.get("content_type") or "application/json"),
    }
    return outbound.Request(method, str(kind.send.get("url", "")), headers, bytes(effect.body))


def told_by(answer: outbound.Answer, kind: Kind) -> Told:
    """The answer table: 2xx applied, 4xx not applied but for the undecided ones, all else unknown."""
    outcome, found = outcome_of(answer.status), _data(answer)
    missing = _partly(found, kind.lookup) if outcome == "applied" else None
    return Told(
        "partial" if missing is not None else outcome,
        result=answers.keep(answer.body) if answer.body else None,
        provider_ref=_text(answers.at(found, kind.send.get("ref_path") or "id")),
        items=missing,
        detail=f"the provider answered {answer.status}",
    )


def outcome_of(status: int) -> str:
    """2xx applied; 4xx refused by it, but for those that leave it open; all else unknown."""
    if 200 <= status < 300:
        return "applied"
    return "not_applied" if 400 <= status < 500 and status not in UNDECIDED else "unknown"


def _data(answer: outbound.Answer) -> Any:
    try:
        return answers.read(answer.body)
    except answers.NotData:
        return None


# look up -----------------------------------------------------------------------------------------


def look_up(effect: Sendable, kind: Kind) -> Answer:
    """What the provider holds under the effect's key, now: present · partial · absent · can't tell.

    It says what it saw; what that proves is for reconcile.meaning_of().
    """
    asked: dict[str, Any] = {}
    try:
        question = _question(effect, kind.lookup)
        asked = {"asked": f"{question.method} {outbound.target_of(question.url).origin}"}
        answer = accounts.call(kind, question, close_old_connections if kind.account else _ready)
        seen = seen_in(answer, effect, kind.lookup)
    except (outbound.Refused, outbound.NoConnection, outbound.NoAnswer) as error:
        seen = Answer(CANT_TELL, str(error))
    return replace(seen, observed={**asked, **seen.observed})


def inspect(effect: Sendable) -> Inspection | None:
    """What a look-up sees now; None for a kind without one."""
    kind = effect.kind
    return inspection_of(look_up(effect, kind)) if kind is not None and kind.lookup else None


def _ready() -> None:
    """No connection to the database was opened, so none has to be given back before the call."""


def _question(effect: Sendable, lookup: dict[str, Any]) -> outbound.Request:
    method = str(lookup.get("method") or "GET").upper()
    if method not in ASKS:
        raise outbound.Refused(f"{method} does not ask")
    return outbound.Request(method, _barring(filled(str(lookup.get("url", "")), effect), lookup))


def filled(url: str, effect: Sendable) -> str:
    """The address with the effect key, and the provider's own number, in their places. Raises Refused."""
    if REF in url and not effect.provider_ref:
        raise outbound.Refused("the provider's own number of it is not known")
    return url.replace(KEY, quote(effect.key, safe="")).replace(REF, quote(effect.provider_ref, safe=""))


def _fence(lookup: dict[str, Any]) -> dict[str, str] | None:
    """How the provider is asked to bar the key: {param, value, path?}; None when it is not."""
    said = lookup.get("fence")
    return {"param": "fence", "value": "1", **(said if isinstance(said, dict) else {})} if said else None


def _barring(url: str, lookup: dict[str, Any]) -> str:
    fence = _fence(lookup)
    if fence is None:
        return url
    asked = urlencode({fence["param"]: fence["value"]})
    return f"{url}{'&' if '?' in url else '?'}{asked}"


def seen_in(answer: outbound.Answer, effect: Sendable, lookup: dict[str, Any]) -> Answer:
    """An answer read by the kind's rules. Whatever doesn't fit them is "can't tell"."""
    status = answer.status
    if answer.cut:
        return _cant_tell(status, "the answer is too large")
    if answers.is_page(answer.content_type, answer.body):
        return _cant_tell(status, "the answer is a page, not data")
    absent = lookup.get("absent_status")
    if status in ([404] if absent is None else absent):
        return _absent(answer, lookup)
    wanted = lookup.get("present_if") or {}
    if status != (wanted.get("status") or 200):
        return _cant_tell(status, f"the provider answered {status}")
    try:
        found = answers.read(answer.body)
    except answers.NotData:
        return _cant_tell(status, "the answer is not JSON")
    return _seen_object(found, status, effect, lookup)


def _absent(answer: outbound.Answer, lookup: dict[str, Any]) -> Answer:
    """Nothing there. Where the question was to bar the key too, the answer says whether it does: at `path`,
    or by being given at all.
    """
    fence, status = _fence(lookup), answer.status
    if fence is None:
        return Answer(ABSENT, f"the provider answered {status}", {"status": status})
    path = fence.get("path")
    fenced = answers.at(_data(answer), path) is True if path else True
    says = "will not apply the key any more" if fenced else "did not say that it bars the key"
    seen = {"status": status, "fenced": fenced}
    return Answer(ABSENT, f"the provider answered {status} and {says}", seen, fenced=fenced)


def _cant_tell(status: int, why: str, fields: dict[str, Any] | None = None) -> Answer:
    return Answer(CANT_TELL, why, {"status": status, **(fields or {})})


def _seen_object(found: Any, status: int, effect: Sendable, lookup: dict[str, Any]) -> Answer:
    wanted = lookup.get("present_if") or {}
    key_path, path = lookup.get("key_path"), wanted.get("json_path")
    if not found:  # an empty list is no object, and no 404 either
        return _cant_tell(status, "the answer holds nothing")
    if key_path and answers.at(found, key_path) != effect.key:
        return _cant_tell(status, "the answer is about another object", _observed(found, key_path))
    if path and not _as_wanted(answers.at(found, path), wanted):
        return _cant_tell(status, f"{path} is not as expected", _observed(found, path))
    missing, job = _partly(found, lookup), lookup.get("job") or {}
    return Answer(
        PRESENT if missing is None else PARTIAL,
        f"the provider answered {status}",
        {"status": status, **_observed(found, key_path, path, lookup.get("partial_path"), job.get("path"))},
        items=missing,
        provider_ref=_text(answers.at(found, lookup.get("ref_path") or "id")),
        count=_count(found, lookup),
        job=jobs.state_in(answers.at(found, job["path"]), job) if job.get("path") else "",
    )


def _as_wanted(value: Any, wanted: dict[str, Any]) -> bool:
    equals = wanted.get("equals")
    return value is not None if equals is None else answers.same(value, equals)


def _observed(found: Any, *paths: str | None) -> dict[str, Any]:
    """The fields that were looked at, by path."""
    fields = {path: answers.member(path, answers.at(found, path)) for path in paths if path}
    return {"fields": fields} if fields else {}


def _partly(found: Any, lookup: dict[str, Any]) -> Any:
    """The items to keep when only a part happened, else None.

    `partial_path` leads to what is missing (a list that is not empty, or a yes), or, with
    `partial_equals`, to the word for it. `items` leads to what to keep; without it, to the same.
    """
    path = lookup.get("partial_path")
    if not path:
        return None
    value, word = answers.at(found, path), lookup.get("partial_equals")
    partly = bool(value) if word is None else answers.same(value, word)
    return answers.tidy(answers.at(found, lookup.get("items") or path)) or {} if partly else None


def _count(found: Any, lookup: dict[str, Any]) -> int | None:
    value = answers.at(found, lookup["count_path"]) if lookup.get("count_path") else None
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    word = isinstance(value, str | int) and not isinstance(value, bool)
    return str(answers.tidy(value))[:300] if word else ""


# registering --------------------------------------------------------------------------------------


def check(new: NewKind) -> None:
    """It says where it is sent to. Raises BadKind."""
    if "url" not in new.send:
        raise BadKind("send", f"A kind of provider {new.provider} says where it is sent to")
    check_url("send.url", new.send["url"], needs_key=False)
    check_lookup(new)
    check_cancel(new)
