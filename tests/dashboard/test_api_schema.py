"""The schema says what the API does: it is checked in, whole, and each problem is explained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dashboard.api import schema_text
from runs.problems import PROBLEMS
from tests.wire import Wire

DOCS = Path(__file__).resolve().parents[2] / "docs"
REWRITE = (
    "python3 manage.py shell --verbosity 0"
    " --command 'from dashboard.api import schema_text; print(schema_text(), end=\"\")' > docs/openapi.json"
)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Every method and path of the schema."""
    paths = json.loads(schema_text())["paths"]
    return [(method, path, told) for path, methods in paths.items() for method, told in methods.items()]


def test_the_schema_that_is_checked_in_is_the_one_that_is_served(client: Any) -> None:
    assert (DOCS / "openapi.json").read_text() == schema_text(), f"rewrite it: {REWRITE}"
    served = client.get("/api/v1/openapi.json")
    assert json.loads(served.content) == json.loads(schema_text())
    assert json.loads(served.content)["openapi"].startswith("3.1")


def test_no_pages_are_served_with_the_schema() -> None:
    assert Wire().get("/docs").status == 404


def test_every_operation_has_a_name_of_its_own_a_sentence_and_asks_for_a_token() -> None:
    names = [told["operationId"] for _, _, told in operations()]
    assert len(names) == len(set(names)) == 94
    for _, path, told in operations():
        assert told["security"] == [{"TokenAuth": []}], path
        assert told["description"].strip(), path


def test_bodies_that_write_forbid_unknown_fields_and_stops_do_not() -> None:
    schemas = json.loads(schema_text())["components"]["schemas"]
    for _, path, told in operations():
        body = told.get("requestBody")
        if body is None:
            continue
        schema = body["content"]["application/json"]["schema"]
        (schema,) = schema.get("allOf", [schema])  # of a body that may be left out
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        assert schema["additionalProperties"] is path.endswith(("/stops", "/gate/shut")), path


def test_every_post_that_creates_needs_a_key_and_a_stop_never_does() -> None:
    needed = {
        told["operationId"]: parameter["required"]
        for _, _, told in operations()
        for parameter in told["parameters"]
        if parameter["name"] == "Idempotency-Key"
    }
    assert {name for name, required in needed.items() if required} == {
        "add_run",
        "answer_look_up",
        "answer_compensation",
        "add_step",
        "add_delivery",
        "add_effect",
        "dispatch_effect",
        "hand_over",
        "open_permit",
        "report_permit",
    }
    assert needed["stop_run"] is needed["stop_any"] is needed["stop_step"] is False
    assert "heartbeat" not in needed


def test_each_problem_is_explained_with_its_status_and_what_to_do() -> None:
    text = (DOCS / "problems.md").read_text()
    told = dict(re.findall(r"^## `/problems/([a-z-]+)` · (\d{3})$", text, re.MULTILINE))
    assert told == {name: str(status) for name, (status, _) in PROBLEMS.items()}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        assert "**What to do:**" in section, section.splitlines()[0]


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_problem_has_a_title_without_an_end_stop(name: str) -> None:
    status, title = PROBLEMS[name]
    assert 400 <= status < 600
    assert title
    assert not title.endswith(".")
