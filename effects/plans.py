"""What was declared before an effect to lessen it, and the exact call that follows from it.

A plan of its own text is the effect's stored bytes. One that names a kind alone takes its text from the
template of the effect's kind, as that stood when the effect was declared.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any

from runs import redaction

from .compensation import RESTORE_FILES
from .models import Effect, Provider
from .providers import answers

PLACEHOLDER = re.compile(r"\{(key|ref|target|amount|(?:body|result)(?:\.[\w-]+)+)\}")
SIZES = {"title": 300, "target": 300, "amount": 60}
LITERAL = re.compile(r'"(?:[^"\\]++|\\.)*+"(\s*:)?', re.DOTALL)  # of JSON, and whether it names a member
# What could change the meaning of a text around it: a form, CSV, YAML, XML, a query, JSON with a gap.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\"'\\,;+&=<>%#?{}\[\]]")
TEXTS = ("title", "target", "amount", "expected", "risks")


class CannotFill(ValueError):
    """A placeholder has no value here, or one that can't stand where it is."""


@dataclass(frozen=True)
class Plan:
    """What was declared, its placeholders as they are. `lacks`: why no call follows from it, else "".

    `lacks` is one of: none (declared that nothing lessens it, `none_because`) · undeclared · changed.
    """

    kind: str = ""
    title: str = ""
    target: str = ""
    amount: str = ""
    body: str = ""
    expected: str = ""
    risks: str = ""
    none_because: str = ""
    lacks: str = ""
    from_template: bool = False


@dataclass(frozen=True)
class Call:
    """A plan with its placeholders filled: what would be sent, and what it says of itself."""

    kind: str
    title: str
    target: str
    amount: str
    body: bytes
    expected: str
    risks: str


# what was declared --------------------------------------------------------------------------------


def declared(effect: Effect) -> Plan:
    """The plan that was committed with the intent of an effect."""
    said = _plan_of(effect)
    if said.get("none_because"):
        return Plan(none_because=str(said["none_because"]), lacks="none")
    plan = Plan(kind=_text(said.get("kind")), title=_text(said.get("title")), body=_text(said.get("body")))
    if plan.kind == RESTORE_FILES:
        files = effect.kind is not None and effect.kind.provider == Provider.WORKSPACE
        return replace(plan, body="", lacks="" if files else "undeclared")
    if not plan.kind or plan.body:
        return replace(plan, lacks="" if plan.kind else "undeclared")
    return _by_template(effect, plan)


def _plan_of(effect: Effect) -> dict[str, Any]:
    try:
        said = json.loads(bytes(effect.plan))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _by_template(effect: Effect, plan: Plan) -> Plan:
    kind = effect.kind
    template = kind.compensate if kind is not None else {}
    if kind is None or not template.get("body") or template.get("kind", plan.kind) != plan.kind:
        return replace(plan, lacks="undeclared")
    if kind.updated_at > effect.declared_at:
        return replace(plan, lacks="changed")
    names = {one.name for one in fields(Plan)} & set(template) - {"kind", "title"}
    told = {name: _text(template[name]) for name in names}
    return replace(plan, **told, title=plan.title or _text(template.get("title")), from_template=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


# the call -----------------------------------------------------------------------------------------


def call_of(effect: Effect, plan: Plan) -> Call:
    """The exact call that a plan comes to, from what is stored of its effect. Raises CannotFill.

    Whatever an agent wrote into its plan ends here: a run that comes to rest is not held up by it.
    """
    try:
        told = {name: _filled(effect, getattr(plan, name)) for name in TEXTS}
        body = _body(effect, plan.body)
    except CannotFill:
        raise
    except (ValueError, RecursionError) as error:  # no JSON that can be kept, no number that can be read
        raise CannotFill("body") from error
    told["title"] = told["title"] or f"Compensate: {effect.title}"
    told["target"] = told["target"] or effect.target
    told["amount"] = told["amount"] or effect.amount
    told |= {name: told[name][:size] for name, size in SIZES.items()}
    unkeepable = [name for name in TEXTS if answers.UNKEEPABLE.search(told[name])]
    if unkeepable:
        raise CannotFill(unkeepable[0])
    return Call(kind=plan.kind, body=body, **told)


def _filled(effect: Effect, text: str) -> str:
    return PLACEHOLDER.sub(lambda found: _written(value_of(effect, found[1])), text)


def _body(effect: Effect, text: str) -> bytes:
    """JSON is filled as JSON, literal by literal, so that nothing in a value can break out, and all around
    them stays as it was declared to the byte; other text only with what can't change its meaning.
    """
    if not PLACEHOLDER.search(text):
        return text.encode()
    try:
        json.loads(text, parse_int=str)
    except (ValueError, RecursionError):
        return PLACEHOLDER.sub(lambda found: _harmless(value_of(effect, found[1]), found[1]), text).encode()
    return LITERAL.sub(lambda found: _in_json(effect, found), text).encode()


def _in_json(effect: Effect, found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[0]
    said = json.loads(found[0])
    if not PLACEHOLDER.search(said):
        return found[0]
    whole = PLACEHOLDER.fullmatch(said)  # alone it keeps its type: a number stays a number
    value = value_of(effect, whole[1]) if whole else _filled(effect, said)
    return _written(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def value_of(effect: Effect, name: str) -> Any:
    """What a placeholder stands for. Raises CannotFill where there is nothing, or it was not kept."""
    place, _, path = name.partition(".")
    if path:
        value = answers.at(_json_of(effect) if place == "body" else effect.result, path)
    else:
        value = getattr(effect, {"ref": "provider_ref"}.get(name, name))
    if value in (None, "") or isinstance(value, dict | list) or redaction.is_redacted(value):
        raise CannotFill(name)
    return value


class _Exact(float):
    """A number with a point, as it was written: 10.00 is not 10.0 where it is money."""

    def __new__(cls, text: str) -> _Exact:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def _json_of(effect: Effect) -> Any:
    try:
        return json.loads(bytes(effect.body), parse_float=_Exact, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a name that comes twice: which of the two its provider took nobody knows."""
    told = dict(pairs)
    if len(told) < len(pairs):
        raise ValueError(len(pairs))
    return told


def _written(value: Any) -> str:
    """As text. Raises ValueError for what no JSON holds."""
    if isinstance(value, _Exact):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _harmless(value: Any, name: str) -> str:
    text = _written(value)
    if UNSAFE.search(text):
        raise CannotFill(name)
    return text
