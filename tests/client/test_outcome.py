"""What an HTTP answer says about the world. The table is written by hand."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx2
import pytest
from allstop import Client, NotApplied, Outcome, http_outcome

from tests.client.stub import Stub
from tests.provider import Provider, refused_address


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "applied"), (201, "applied"), (202, "applied"), (204, "applied"),
        (301, "unknown"), (302, "unknown"), (304, "unknown"),
        (400, "not_applied"), (401, "not_applied"), (402, "not_applied"), (403, "not_applied"),
        (404, "not_applied"), (405, "not_applied"), (410, "not_applied"), (422, "not_applied"),
        (408, "unknown"), (409, "unknown"), (425, "unknown"), (429, "unknown"),
        (500, "unknown"), (502, "unknown"), (503, "unknown"), (504, "unknown"),
    ],
)  # fmt: skip
def test_a_status_has_one_outcome(status: int, outcome: str) -> None:
    response = httpx2.Response(status, json={"id": "x"}, request=httpx2.Request("POST", "http://bank"))
    assert http_outcome(response).name == outcome
    raised = httpx2.HTTPStatusError("no", request=response.request, response=response)
    assert http_outcome(raised).name == outcome


def test_a_refused_connection_was_refused_before_any_byte() -> None:
    with refused_address() as url:
        with pytest.raises(httpx2.ConnectError) as by_httpx:
            httpx2.post(url)
        with pytest.raises(urllib.error.URLError) as by_urllib:
            urllib.request.urlopen(url, b"x", timeout=5)
    assert http_outcome(by_httpx.value).name == "not_applied"
    assert http_outcome(by_urllib.value).name == "not_applied"


def test_an_answer_that_was_lost_is_unknown(tmp_path: Path) -> None:
    with Provider(tmp_path / "ledger") as bank:
        bank.fault("drop_after")
        with pytest.raises(httpx2.RequestError) as lost:
            httpx2.post(f"{bank.url}/charges", json={}, headers={"Idempotency-Key": "k"})
        assert bank.ledger.applied("k") == 1
    assert http_outcome(lost.value).name == "unknown"


def test_a_refusal_that_merely_came_before_says_nothing_about_the_last_attempt() -> None:
    error = TimeoutError("the second address took the request")
    error.__context__ = ConnectionRefusedError("the first did not")
    assert http_outcome(error).name == "unknown"


def test_a_transport_that_retried_by_itself_says_nothing_about_its_first_attempts() -> None:
    class MaxRetryError(Exception):
        reason = ConnectionRefusedError()

    assert http_outcome(MaxRetryError()).name == "unknown"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (Outcome("partial"), "partial"),
        (NotApplied("declined"), "not_applied"),
        (TimeoutError(), "unknown"),
        (ConnectionResetError(), "unknown"),
        ({"status": 500}, "applied"),
    ],
)
def test_other_values_keep_their_meaning(value: object, outcome: str) -> None:
    assert http_outcome(value).name == outcome


def test_an_outcome_has_one_of_four_names() -> None:
    with pytest.raises(ValueError, match="applied"):
        Outcome("done")


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (None, "applied"),
        ({"do": "answer", "status": 404}, "not_applied"),
        ({"do": "answer", "status": 429}, "unknown"),
        ({"do": "answer_after", "status": 500}, "unknown"),
        ({"do": "answer_after", "status": 200, "text": "<html>", "content_type": "text/html"}, "applied"),
    ],
)
def test_a_returned_response_is_judged_by_its_status_unasked(
    client: Client, stub: Stub, tmp_path: Path, fault: dict[str, Any] | None, outcome: str
) -> None:
    with Provider(tmp_path / "ledger") as bank:
        if fault:
            bank.fault(**fault)
        with client.run("r") as run:
            effect = run.effect(key="k", kind="bank.charge", none_because="a test")
            effect.send(httpx2.post, f"{bank.url}/charges", headers={"Idempotency-Key": effect.key}, json={})
        assert bank.ledger.sends("k") == 1
    assert stub.seen("/report$")[0].body["outcome"] == outcome
