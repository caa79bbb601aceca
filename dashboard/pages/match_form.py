"""What a form says that a policy is about: read alike for New switch and for the list of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from django.db.models import QuerySet
from django.http import QueryDict
from pydantic import ValidationError

from dashboard import words
from runs.fields import Class
from runs.models import Workspace
from runs.policies import Match

NAME_MAX, KINDS = 120, 50
CLASSES = {name: words.CLASS[name] for name in get_args(Class) if name != "approval_wait"}


class NoMatch(ValueError):
    """Why these fields make no policy. Nothing was changed."""


def read_name(sent: Mapping[str, str]) -> str:
    """The policy's name. Raises NoMatch."""
    name = words.clean(sent.get("name", ""))[:NAME_MAX]
    if not name:
        raise NoMatch("Give it a name.")
    return name


def read_match(sent: QueryDict) -> Match:
    """Labels `name = value` a line, kinds a line, classes as ticked. Raises NoMatch, saying which.

    Nothing is left out: a policy without one of its labels would reach further than what was typed.
    """
    labels: dict[str, str] = {}
    for line in _lines(sent.get("labels", "")):
        name, sign, value = (part.strip() for part in line.partition("="))
        if not (name and sign and value):
            raise NoMatch(f"Write a label as name = value, not “{words.brief(line)}”.")
        if labels.get(name, value) != value:
            raise NoMatch(f"The label {words.brief(name)} has two values, and no run has both.")
        labels[name] = value
    told = {"labels": labels, "kinds": _lines(sent.get("kinds", "")), "classes": sent.getlist("classes")}
    try:
        return Match.model_validate(told)
    except ValidationError as error:
        raise NoMatch(" ".join(_said(one) for one in error.errors()[:3])) from error


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _said(error: Any) -> str:
    where = " ".join(str(part) for part in error["loc"][:1])
    said = str(error["msg"]).removeprefix("Value error, ")
    return f"{where.capitalize()}: {said}." if where else f"{said}."


def offered(workspace: Workspace, sent: QueryDict) -> dict[str, Any]:
    """What the fields hold and offer: `typed`, `classes` (value, word, ticked), the registered `kinds`."""
    ticked = sent.getlist("classes")
    kinds: QuerySet[Any, Any] = workspace.kinds.order_by("name").values_list("name", flat=True)
    return {
        "typed": {name: sent.get(name, "") for name in ("name", "labels", "kinds")},
        "classes": [(name, word, name in ticked) for name, word in CLASSES.items()],
        "kinds": kinds[:KINDS],
        "name_max": NAME_MAX,
    }
