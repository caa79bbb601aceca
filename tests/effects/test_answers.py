"""What a provider's HTTP answer means, and what is kept of it. The table was written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effects.models import Kind
from effects.outbound import Answer
from effects.providers import answers, http

APPLIED = [200, 201, 202, 204, 299]
NOT_APPLIED = [400, 401, 402, 403, 404, 405, 406, 410, 412, 422, 451, 499]
UNKNOWN = [100, 300, 301, 302, 304, 307, 408, 409, 425, 429, 500, 501, 502, 503, 504, 599, 600, 999]


def told(status: int, body: bytes = b"{}", send: Any = None, lookup: Any = None) -> Any:
    kind = Kind(send=send or {}, lookup=lookup or {})
    return http.told_by(Answer(status, "application/json", body), kind)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, "applied") for status in APPLIED),
        *((status, "not_applied") for status in NOT_APPLIED),
        *((status, "unknown") for status in UNKNOWN),
    ],
)
def test_the_status_alone_says_what_a_send_came_to(status: int, outcome: str) -> None:
    assert told(status).outcome == outcome
    assert told(status, b"<html>", {}).outcome == outcome


def test_every_status_has_exactly_one_meaning() -> None:
    meanings = {status: told(status).outcome for status in range(100, 600)}
    unsure = {408, 409, 425, 429}
    assert [s for s, m in meanings.items() if m == "applied"] == list(range(200, 300))
    assert [s for s, m in meanings.items() if m == "not_applied"] == [
        s for s in range(400, 500) if s not in unsure
    ]


def test_the_answer_is_kept_with_its_reference() -> None:
    kept = told(201, b'{"id": "ch_1", "amount": 100}')
    assert (kept.result, kept.provider_ref) == ({"id": "ch_1", "amount": 100}, "ch_1")
    assert kept.detail == "the provider answered 201"
    assert told(201, b'{"data": [{"ref": 7}]}', {"ref_path": "data.0.ref"}).provider_ref == "7"
    assert told(200, b"done").result == "done"
    assert told(204, b"").result is None


@pytest.mark.parametrize("reference", [b"true", b"null", b"[1]", b'{"a": 1}', b"1.5"])
def test_a_reference_is_a_word_or_a_number(reference: bytes) -> None:
    assert told(201, b'{"id": ' + reference + b"}").provider_ref == ""


def test_a_partial_answer_does_not_pass_as_applied() -> None:
    body = b'{"status": "partial", "applied": ["a"], "failed": ["b"]}'
    rules: dict[str, Any] = {"partial_path": "failed", "items": "applied"}
    assert (told(201, body).outcome, told(201, body, lookup=rules).outcome) == ("applied", "partial")
    assert told(201, body, lookup=rules).items == ["a"]
    assert told(201, b'{"failed": []}', lookup=rules).outcome == "applied"
    assert told(422, body, lookup=rules).outcome == "not_applied"


# --- What is kept ---------------------------------------------------------------------------------------


HOSTILE = [
    b'{"a": "x\\u0000y"}',
    b'{"a": "\\ud800"}',
    b'{"\\u0000": 1}',
    b'{"a": NaN}',
    b'{"a": [Infinity, -Infinity]}',
    b'{"a": 1e999}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b"[" * 500 + b"]" * 500,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b"\xff\xfe\x00",
    b"\x00",
    b'"' + b"x" * 300_000 + b'"',
    json.dumps({f"k{n}": "x" * 90 for n in range(2000)}).encode(),
    b"<script>alert(1)</script>",
    b"",
]


@pytest.mark.parametrize("body", HOSTILE)
def test_whatever_a_provider_answers_can_be_kept(body: bytes) -> None:
    """As any database takes it: strict JSON in UTF-8, without NUL, of a bounded size and depth."""
    kept = json.dumps(answers.keep(body), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in kept
    assert len(kept.encode()) <= answers.KEPT_BYTES
    assert json.loads(kept) == answers.keep(body)


def test_these_answers_can_not_be_kept_as_they_are() -> None:
    """The control: without care, each of the first ones breaks a database, an encoder or a parser."""

    def breaks(body: bytes) -> bool:
        try:
            text = json.dumps(json.loads(body), allow_nan=False, ensure_ascii=False)
            return "\\u0000" in text or not text.encode()
        except (ValueError, RecursionError):
            return True

    assert all(breaks(body) for body in HOSTILE[:8])


def test_an_ordinary_answer_is_kept_as_it_is() -> None:
    value = {"id": "ch_1", "amount": 100, "rate": 0.5, "ok": True, "none": None, "list": [1, {"a": "ä"}]}
    assert answers.keep(json.dumps(value).encode()) == value


CANARIES = {
    "in a field": ({"client_secret": "canary-7"}, "canary-7"),
    "in a nested field": ({"a": [{"Authorization": {"x": "canary-7"}}]}, "canary-7"),
    "a provider's key": ({"note": "use sk_live_canary7canary7 now"}, "canary7"),
    "a webhook's secret": ({"note": "whsec_canary7canary7"}, "canary7"),
    "a bearer token": ({"note": "Authorization: Bearer canary7canary7"}, "canary7"),
    "a JWT": ({"note": "eyJhbGciOiJI.eyJzdWIiOiJj.canary7canary7"}, "canary7"),
    "one of our tokens": ({"note": "als_00000000_" + "a1" * 20 + "_deadbeef"}, "a1a1"),
    "a password in an address": ({"url": "https://user:canary7@host/x"}, "canary7"),
    "a private key": (
        {"pem": "-----BEGIN RSA PRIVATE KEY-----\ncanary7\n-----END RSA PRIVATE KEY-----"},
        "canary7",
    ),
    "a private key cut off": ({"pem": "x -----BEGIN PRIVATE KEY-----\ncanary7"}, "canary7"),
    "a name that is one": ({"sk_live_canary7canary7": 1}, "canary7"),
}


@pytest.mark.parametrize("where", CANARIES)
def test_what_looks_like_a_secret_is_not_kept(where: str) -> None:
    value, canary = CANARIES[where]
    body = json.dumps(value).encode()
    assert canary in body.decode()
    for kept in (answers.keep(body), answers.keep(b"not JSON: " + str(value).encode())):
        if isinstance(kept, str) and "field" in where:
            continue  # text has no fields
        assert canary not in json.dumps(kept)
        assert "[redacted " in json.dumps(kept)


def test_a_path_leads_to_a_value_or_nowhere() -> None:
    value = {"data": [{"id": 7, "off": False}], "0": "zero"}
    assert answers.at(value, "data.0.id") == 7
    assert answers.at(value, "data.0.off") is False
    assert answers.at(value, "0") == "zero"
    for nowhere in ("data.1.id", "data.-1.id", "data.x", "data.0.id.more", "", "data..id", "nothing"):
        assert answers.at(value, nowhere) is None


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [(1, 1, True), (1, 1.0, True), (1, True, False), (True, True, True), ("1", 1, False), (None, None, True)],
)
def test_values_are_compared_as_json_does(found: Any, wanted: Any, same: bool) -> None:
    assert answers.same(found, wanted) is same
