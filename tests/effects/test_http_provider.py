"""The provider http against a real one: what it sends, and what it reads from a look-up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import outbound, providers
from effects.models import Effect, Kind
from effects.providers import NoSender, http
from effects.reconcile import ABSENT, CANT_TELL, PARTIAL, PRESENT, Answer
from effects.settle import Told
from tests.provider import Provider, refused_address

BODY = b'{"amount":1e2,"to":"a","to":"b"}'  # a parser that writes it again would change it


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "LIMIT_S", 0.5)


def kind_of(bank: Provider, **lookup: Any) -> Kind:
    rules = {"url": f"{bank.url}/charges?key={{key}}", "key_path": "key", **lookup}
    return Kind(name="bank.charge", provider="http", send={"url": f"{bank.url}/charges"}, lookup=rules)


def effect_of(key: str = "k", body: bytes = BODY) -> Effect:
    return Effect(key=key, body=body)


def send(bank: Provider, key: str = "k", **lookup: Any) -> Told:
    return http.send(effect_of(key), kind_of(bank, **lookup))


def look_up(bank: Provider, key: str = "k", **lookup: Any) -> Answer:
    return http.look_up(effect_of(key), kind_of(bank, **lookup))


# --- Sending --------------------------------------------------------------------------------------------


def test_the_stored_bytes_and_the_key_arrive_as_they_are(bank: Provider) -> None:
    told = send(bank, "pay:7/2")
    line = bank.ledger.lines("request")[0]
    assert (line["text"], line["key"], line["path"]) == (BODY.decode(), "pay:7/2", "/charges")
    assert json.dumps(json.loads(BODY)) != BODY.decode()
    assert told.outcome == "applied"
    assert told.provider_ref == bank.state.objects["pay:7/2"]["id"]


def test_each_answer_of_a_real_provider_is_told_as_the_table_says(bank: Provider) -> None:
    for status, outcome in ((402, "not_applied"), (429, "unknown"), (500, "unknown"), (302, "unknown")):
        bank.fault("answer", status=status)
        assert send(bank, f"k{status}").outcome == outcome
        assert (bank.ledger.sends(f"k{status}"), bank.ledger.applied(f"k{status}")) == (1, 0)


def test_an_error_after_the_charge_was_made_is_unknown(bank: Provider) -> None:
    bank.fault("answer_after", status=500)
    assert (send(bank).outcome, bank.ledger.applied("k")) == ("unknown", 1)


@pytest.mark.parametrize(("fault", "applied"), [("drop_before", 0), ("drop_after", 1)])
def test_a_lost_answer_is_unknown_whether_it_was_applied_or_not(
    bank: Provider, fault: str, applied: int
) -> None:
    bank.fault(fault)
    assert send(bank).outcome == "unknown"
    assert (bank.ledger.sends("k"), bank.ledger.applied("k")) == (1, applied)


@pytest.mark.usefixtures("quick")
def test_an_answer_that_is_too_late_is_unknown(bank: Provider) -> None:
    bank.fault("hold_after")
    assert (send(bank).outcome, bank.ledger.applied("k")) == ("unknown", 1)


def test_a_refused_connection_was_not_applied(bank: Provider, settings: Settings) -> None:
    with refused_address() as url:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url]
        told = http.send(effect_of(), Kind(send={"url": f"{url}/charges"}))
    assert told.outcome == "not_applied"
    assert told.detail.startswith("nothing was sent: no connection")


@pytest.mark.parametrize(
    "rules",
    [{"url": "https://169.254.169.254/"}, {"url": "gopher://x/"}, {}, {"url": "GET", "method": "GET"}],
)
def test_what_our_rules_forbid_was_not_applied(rules: dict[str, Any]) -> None:
    told = http.send(effect_of(), Kind(send=rules))
    assert (told.outcome, told.detail.startswith("nothing was sent")) == ("not_applied", True)


def test_a_huge_answer_is_still_an_answer(bank: Provider) -> None:
    bank.fault("answer_after", status=201, text="x" * 2_000_000)
    told = send(bank)
    assert (told.outcome, len(told.result) <= 2_001) == ("applied", True)


def test_a_batch_that_was_done_in_part_is_told_so(bank: Provider) -> None:
    bank.fault("partial", count=2)
    body = b'{"items": ["a", "b", "c"]}'
    kind = kind_of(bank, partial_path="failed", items="applied")
    told = http.send(effect_of("batch", body), kind)
    assert (told.outcome, told.items) == ("partial", ["a", "b"])


def test_method_and_content_type_come_from_the_kind(bank: Provider) -> None:
    asked: list[outbound.Request] = []

    def call(request: outbound.Request, ready: object = None) -> outbound.Answer:
        asked.append(request)
        return outbound.Answer(200, "", b"")

    rules = {"url": bank.url, "method": "put", "content_type": "text/csv"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbound, "call", call)
        http.send(effect_of(), Kind(send=rules))
    assert (asked[0].method, asked[0].headers["Content-Type"]) == ("PUT", "text/csv")


def test_an_agents_own_kind_is_never_sent_by_us(bank: Provider) -> None:
    kind = kind_of(bank)
    kind.provider = "outside"
    with pytest.raises(NoSender):
        providers.send(effect_of(), kind, lambda: None)
    assert bank.ledger.lines() == []


# --- Looking up -----------------------------------------------------------------------------------------


def test_what_was_applied_is_present_with_its_reference(bank: Provider) -> None:
    send(bank)
    seen = look_up(bank, present_if={"json_path": "status", "equals": "succeeded"})
    assert (seen.answer, seen.provider_ref) == (PRESENT, bank.state.objects["k"]["id"])
    fields = {"key": "k", "status": "succeeded"}
    assert seen.observed == {"asked": f"GET {bank.url}", "status": 200, "fields": fields}


def test_what_was_never_sent_is_absent(bank: Provider) -> None:
    seen = look_up(bank)
    assert (seen.answer, seen.observed["status"]) == (ABSENT, 404)


def test_a_look_up_sends_nothing_but_a_question(bank: Provider) -> None:
    look_up(bank)
    assert [line["method"] for line in bank.ledger.lines("request")] == ["GET"]


def test_a_key_is_written_into_the_address_so_that_it_stays_one(bank: Provider) -> None:
    key = "pay&x=1/../#?%ä"
    send_key = "plain"
    send(bank, send_key)
    look_up(bank, key)
    assert bank.ledger.lines("request", method="GET")[0]["key"] == key


def test_absence_is_said_by_the_statuses_of_the_kind_alone(bank: Provider) -> None:
    bank.fault("answer", method="GET", status=410, times=2)
    assert look_up(bank).answer == CANT_TELL
    assert look_up(bank, absent_status=[404, 410]).answer == ABSENT
    assert look_up(bank, absent_status=[410]).answer == CANT_TELL


NOT_AN_ANSWER: dict[str, dict[str, Any]] = {
    "a page": {"status": 200, "text": "<!doctype html><p>sign in", "content_type": "text/html"},
    "a page in disguise": {"status": 200, "text": "  <html>", "content_type": "application/json"},
    "a page that says 404": {"status": 404, "text": "<html>no route", "content_type": "text/html"},
    "a text": {"status": 200, "text": "OK"},
    "nothing": {"status": 200, "text": ""},
    "an empty list": {"status": 200, "text": "[]"},
    "an empty object": {"status": 200, "text": "{}"},
    "null": {"status": 200, "text": "null"},
    "half an object": {"status": 200, "text": '{"key": "k", "sta'},
    "an error": {"status": 500},
    "a gateway's error": {"status": 502},
    "too many": {"status": 429},
    "a redirect": {"status": 302},
    "no permission": {"status": 401},
    "no access": {"status": 403},
    "something too large": {"status": 200, "text": '{"key": "k", "x": "' + "x" * 300_000 + '"}'},
    "nesting": {"status": 200, "text": "[" * 100_000},
}


@pytest.mark.parametrize("what", NOT_AN_ANSWER)
def test_a_look_up_that_failed_is_neither_presence_nor_absence(bank: Provider, what: str) -> None:
    send(bank)
    assert look_up(bank).answer == PRESENT
    bank.fault("answer", method="GET", **NOT_AN_ANSWER[what])
    seen = look_up(bank)
    assert (seen.answer, bool(seen.detail)) == (CANT_TELL, True)
    assert seen.observed["status"] == NOT_AN_ANSWER[what]["status"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", ["hold_before", "drop_before"])
def test_a_look_up_without_an_answer_can_not_tell(bank: Provider, fault: str) -> None:
    bank.fault(fault, method="GET")
    seen = look_up(bank)
    assert (seen.answer, seen.detail.startswith("no answer")) == (CANT_TELL, True)
    assert len(bank.ledger.lines("request", method="GET")) == 1


def test_a_look_up_that_our_rules_forbid_can_not_tell(bank: Provider) -> None:
    for url in ("https://127.0.0.1/{key}", "http://elsewhere.example/{key}", "", "nonsense"):
        seen = look_up(bank, url=url)
        assert (seen.answer, bool(seen.detail)) == (CANT_TELL, True)
    assert look_up(bank, method="DELETE").answer == CANT_TELL
    assert bank.ledger.lines() == []


def test_somebody_elses_object_is_not_ours(bank: Provider) -> None:
    send(bank)
    bank.fault("wrong", method="GET", times=2)
    seen = look_up(bank)
    assert (seen.answer, seen.detail) == (CANT_TELL, "the answer is about another object")
    assert seen.observed["fields"] == {"key": "somebody-else"}
    assert look_up(bank, key_path=None).answer == PRESENT  # the control: without the rule it passes


def test_a_key_that_is_missing_from_the_answer_is_not_ours(bank: Provider) -> None:
    send(bank)
    assert look_up(bank, key_path="metadata.key").answer == CANT_TELL


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ({"json_path": "status", "equals": "succeeded"}, PRESENT),
        ({"json_path": "status", "equals": "pending"}, CANT_TELL),
        ({"json_path": "body.amount"}, PRESENT),
        ({"json_path": "body.nothing"}, CANT_TELL),
        ({"status": 201}, CANT_TELL),
        ({}, PRESENT),
        (None, PRESENT),
    ],
)
def test_an_object_is_present_only_as_the_kind_describes_it(
    bank: Provider, rule: dict[str, Any] | None, answer: str
) -> None:
    http.send(effect_of("k", b'{"amount": 1}'), kind_of(bank))
    assert look_up(bank, present_if=rule).answer == answer


def test_a_part_does_not_pass_as_the_whole(bank: Provider) -> None:
    rules = {"partial_path": "failed", "items": "applied"}
    for count, answer, items in ((2, PARTIAL, ["a", "b"]), (3, PRESENT, None)):
        bank.fault("partial", count=count)
        http.send(effect_of(f"b{count}", b'{"items": ["a", "b", "c"]}'), kind_of(bank))
        seen = look_up(bank, f"b{count}", **rules)
        assert (seen.answer, seen.items) == (answer, items)
    named = {"partial_path": "status", "partial_equals": "partial", "items": "applied"}
    assert look_up(bank, "b2", **named).answer == PARTIAL
    assert look_up(bank, "b3", **named).answer == PRESENT


def test_a_count_says_that_a_key_was_applied_twice(bank: Provider) -> None:
    send(bank)
    for text, count in (
        ('{"key": "k", "n": 2}', 2),
        ('{"key": "k", "n": [1, 2, 3]}', 3),
        ('{"key": "k"}', None),
    ):
        bank.fault("answer", method="GET", status=200, text=text)
        assert look_up(bank, count_path="n").count == count


def test_nothing_secret_of_an_answer_is_observed(bank: Provider) -> None:
    text = '{"key": "k", "client_secret": "canary-7", "id": "Bearer canary77777"}'
    bank.fault("answer", method="GET", status=200, text=text)
    seen = look_up(bank, present_if={"json_path": "client_secret"})
    assert seen.answer == PRESENT
    assert "canary" not in json.dumps(seen.payload)


def test_the_kind_of_an_agent_that_sends_for_itself_is_looked_up_too(bank: Provider) -> None:
    send(bank)
    effect = effect_of()
    effect.kind = kind_of(bank)
    effect.kind.provider = "outside"
    assert providers.look_up(effect).answer == PRESENT


def test_a_kind_without_a_look_up_can_not_tell(bank: Provider) -> None:
    effect = effect_of()
    assert providers.look_up(effect).answer == CANT_TELL
    effect.kind = Kind(name="opaque")
    assert providers.look_up(effect).answer == CANT_TELL


def test_rules_that_were_left_out_and_rules_that_are_null_are_the_same(bank: Provider) -> None:
    send(bank)
    names = (
        "present_if",
        "absent_status",
        "partial_path",
        "partial_equals",
        "items",
        "count_path",
        "ref_path",
    )
    nulls: dict[str, Any] = dict.fromkeys(names)
    bare = look_up(bank)
    assert look_up(bank, **nulls) == bare
    inner = look_up(bank, present_if={"status": None, "json_path": "status", "equals": None})
    assert (inner.answer, bare.answer) == (PRESENT, PRESENT)
    assert look_up(bank, "other", **nulls).answer == ABSENT
    kind = kind_of(bank)
    kind.send |= dict.fromkeys(("method", "content_type", "ref_path"))
    assert http.send(effect_of("k2"), kind).provider_ref == bank.state.objects["k2"]["id"]


@pytest.mark.parametrize("nothing", ["[]", "{}", "null", '""', "0", "false"])
def test_an_answer_that_holds_nothing_is_no_object_even_without_rules(bank: Provider, nothing: str) -> None:
    for text, answer in ((nothing, CANT_TELL), ('{"id": 1}', PRESENT)):
        bank.fault("answer", method="GET", status=200, text=text)
        assert look_up(bank, key_path=None).answer == answer


def test_people_read_what_a_look_up_sees_now(bank: Provider) -> None:
    kind = kind_of(bank)
    effect = Effect(key="k", body=BODY, kind=kind)
    before = providers.inspect(effect)
    send(bank)
    after = providers.inspect(effect)
    assert before is not None
    assert after is not None
    assert (before.says, after.observed["fields"]) == ("absent: the provider answered 404", {"key": "k"})
    kind.lookup = {}
    assert providers.inspect(effect) is None
