"""The JSON Schema of the report's JSON, made from the dataclasses; docs/report.schema.json is its text."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .model import SCHEMA, Report, VersionRow
from .signed import SignRow, StatementFacts

PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}
HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


class _Definitions:
    """Each dataclass once, by its name."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        if kind in PLAIN:
            return PLAIN[kind]
        if is_dataclass(kind):
            return self._named(kind)
        inner, origin = get_args(kind), get_origin(kind)
        if origin is Literal:
            return {"enum": list(inner)}
        if origin is UnionType:
            return {"anyOf": [self.of(one) for one in inner]}
        if origin is list:
            return {"type": "array", "items": self.of(inner[0])}
        assert origin is dict, kind
        return {"type": "object", "additionalProperties": self.of(inner[1])}

    def _named(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.made:
            self.made[name] = {}
            self.made[name] = self.shape(kind)
        return {"$ref": f"#/$defs/{name}"}

    def shape(self, kind: Any) -> dict[str, Any]:
        """An object of this class; a field that came later may be missing in a document from before."""
        hints = get_type_hints(kind)
        kept = [one for one in fields(kind) if not one.metadata.get("beside")]
        told: dict[str, Any] = {"type": "object"}
        if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
            told["description"] = " ".join(kind.__doc__.split())
        told["properties"] = {one.name: self.of(hints[one.name]) for one in kept}
        told["required"] = [one.name for one in kept if not _later(one)]
        return told | {"additionalProperties": False}


def _later(one: Any) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def schema() -> dict[str, Any]:
    """The schema of `reports.read()`: the document, and `issue` beside it."""
    made = _Definitions()
    told = made.shape(Report)
    told["properties"]["schema"] = {"const": SCHEMA}
    told["properties"]["issue"] = _issue(made)
    told["required"].append("issue")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Allstop report",
        "description": DESCRIPTION,
    }
    return head | told | {"$defs": made.made}


DESCRIPTION = (
    "One version of a report, or the draft of now. `issue` stands beside the document and is not under its"
    " digest: the digest is the SHA-256 of the canonical JSON (sorted keys, no spaces, UTF-8) of all other"
    " fields."
)


def _issue(made: _Definitions) -> dict[str, Any]:
    names = {"type": "object", "additionalProperties": {"type": "string"}}
    properties = {
        "id": {"anyOf": [PLAIN[str], PLAIN[NoneType]]},
        "digest": {"anyOf": [HEX, PLAIN[NoneType]]},
        "names": names | {"description": "The name behind each actor's id, read now."},
        "versions": {"type": "array", "items": made.of(VersionRow)},
        "signed": {"type": "array", "items": made.of(SignRow)},
        "statement": {"anyOf": [made.of(StatementFacts), PLAIN[NoneType]]},
        "missing": PLAIN[str] | {"description": "What a restore lost of the run; empty if nothing."},
    }
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


def text() -> str:
    """As docs/report.schema.json holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
