"""The provider model: an effect is one turn of a model, as a chat completion in the shape of OpenAI's.

`kind.send`: {url, model? (the only one that may be asked), limit_s? (60; how long its answer may take)}.
The body is the request as it is sent. `kind.lookup` is empty, or that of provider http.

What it spent stands in its answer; without an answer it is not reported, which is not zero. An output that
was cut off is kept or dropped by the workspace's rule, as it is for turns that an agent reports.
"""

from __future__ import annotations

import json
from typing import Any

from effects import accounts, outbound
from effects.models import Kind
from effects.new_kind import BadKind, NewKind, Questions, check_class, check_lookup, check_url
from effects.settle import Told
from runs import redaction
from runs.models import OperationClass
from runs.turns import Spend

from . import answers
from .http import inspect, look_up, outcome_of
from .shape import Ready, Sendable

QUESTIONS = Questions(
    commits="When the provider has made its answer. It may be billed although the answer never arrives.",
    tells_apart=("CONFIRMED", "PARTIAL", "NOT_APPLIED"),
    idempotency="The effect key, in the header Idempotency-Key; most providers of models ignore it.",
    compensation="None: what a turn spent is spent, and nothing outside was changed by it.",
    durable_before_pause="The key and the raw bytes of the request.",
    when_unknown="The request left and no answer came. What it spent is not reported. It is not asked again.",
)
LIMIT_S, LONGEST_S = 60.0, 300.0
OUTPUT_MAX = 64 * 1024  # bytes of an output that was cut off
CUT_OFF = ("length", "content_filter")
FIELDS = {"url", "model", "limit_s"}


class BadTurn(ValueError):
    """The body is no request that may be sent. Nothing was sent."""


# send ---------------------------------------------------------------------------------------------


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """One request: applied (an output) · partial (it was cut off) · not_applied (refused) · unknown."""
    body = bytes(effect.body)
    try:
        _check_body(body, kind.send.get("model"))
        return told_by(accounts.call(kind, _request(effect, kind, body), ready))
    except (BadTurn, outbound.Refused, outbound.NoConnection) as error:
        return Told("not_applied", detail=f"nothing was sent: {error}")
    except outbound.NoAnswer as error:
        return Told("unknown", detail=f"{error}; its spend is not reported")


compensate = send


def _check_body(body: bytes, model: Any) -> None:
    """A stream has no one answer to keep; another model would be another price. Raises BadTurn."""
    try:
        asked = answers.read(body)
    except answers.NotData as error:
        raise BadTurn("the body is not JSON") from error
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        raise BadTurn("the body is no request for a chat completion")
    if asked.get("stream"):
        raise BadTurn("a stream can't be asked for")
    if model and asked.get("model") != model:
        raise BadTurn(f"the kind asks {model} and no other model")


def _request(effect: Sendable, kind: Kind, body: bytes) -> outbound.Request:
    headers = {"Idempotency-Key": effect.key, "Content-Type": "application/json"}
    limit = min(float(kind.send.get("limit_s") or LIMIT_S), LONGEST_S)
    return outbound.Request("POST", str(kind.send.get("url", "")), headers, body, limit)


def told_by(answer: outbound.Answer) -> Told:
    """2xx with an output applied, with one that was cut off partial; a 2xx that is no such answer unknown."""
    outcome, detail = outcome_of(answer.status), f"the provider answered {answer.status}"
    if outcome != "applied":
        more = "; its spend is not reported" if outcome == "unknown" else ""
        return Told(outcome, result=answers.keep(answer.body) if answer.body else None, detail=detail + more)
    found = _found(answer)
    output = answers.at(found, "choices.0.message")
    if not isinstance(output, dict):
        return Told("unknown", detail=f"{detail}, and it is no chat completion", spend=spend_of(found))
    ref = answers.at(found, "id")
    named: dict[str, Any] = {
        "provider_ref": str(answers.tidy(ref))[:300] if isinstance(ref, str) else "",
        "spend": spend_of(found),
    }
    reason = answers.at(found, "choices.0.finish_reason")
    if reason in CUT_OFF:
        cut = _text(output)
        return Told(
            "partial", partial_output=cut, detail=f"{detail}; the output was cut off: {reason}", **named
        )
    return Told("applied", result=answers.keep(answer.body), detail=detail, **named)


def _found(answer: outbound.Answer) -> Any:
    try:
        return None if answer.cut else answers.read(answer.body)
    except answers.NotData:
        return None


def _text(output: dict[str, Any]) -> str:
    """What an output that was cut off said, as it is kept: without secrets, and not beyond a limit."""
    said = output.get("content")
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    clean = redaction.text(answers.UNKEEPABLE.sub("\ufffd", text))
    return clean.encode()[:OUTPUT_MAX].decode(errors="ignore")


def spend_of(found: Any) -> Spend | None:
    """What an answer says that it spent; None when it says nothing of it."""
    model = answers.at(found, "model")
    spend = Spend(
        model=str(answers.tidy(model))[:120] if isinstance(model, str) else "",
        tokens_in=_tokens(found, "prompt_tokens", "input_tokens"),
        tokens_out=_tokens(found, "completion_tokens", "output_tokens"),
    )
    told = spend.tokens_in is not None or spend.tokens_out is not None
    return spend if told else None


def _tokens(found: Any, *names: str) -> int | None:
    for name in names:
        value = answers.at(found, f"usage.{name}")
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
    return None


# registering --------------------------------------------------------------------------------------


def check(new: NewKind) -> None:
    """Raises BadKind."""
    check_class(new, OperationClass.MODEL_TURN)
    if "url" not in new.send:
        raise BadKind("send", "A kind of provider model says where it is sent to")
    if set(new.send) - FIELDS:
        raise BadKind("send", "A kind of provider model says url, model and limit_s")
    check_url("send.url", new.send["url"], needs_key=False)
    limit = new.send.get("limit_s", LIMIT_S)
    if not isinstance(limit, int | float) or not 1 <= limit <= LONGEST_S:
        raise BadKind("send.limit_s", f"It waits 1 to {LONGEST_S:g} seconds")
    check_lookup(new)


__all__ = ["QUESTIONS", "check", "compensate", "inspect", "look_up", "send"]
