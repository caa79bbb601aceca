"""The provider email against a real mail server: what it says, and what it may say of each receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import executor
from effects.executor import NotOpen
from effects.kinds import BadKind, NewKind, check
from effects.models import Compensation, Effect, Kind, Settlement
from effects.providers import Sendable, email
from effects.settle import Told
from runs.models import StepStatus
from tests.effects.sending import queued, stands
from tests.post import Post
from tests.worlds import World, a_kind, fresh

ANNE, BEN, CLEO = "anne@example.org", "ben@example.org", "cleo@example.org"
LETTER = {"to": [ANNE, BEN], "cc": [CLEO], "subject": "Invoice 7", "text": "It is due.\n.\nRegards"}
KIND = Kind(name="mail.invoice", provider="email")


@pytest.fixture
def post(settings: Settings) -> Iterator[Post]:
    with Post() as post:
        post.settle(settings)
        yield post


def an_effect(body: Any = LETTER, key: str = "mail:7", run_id: str = "run_1") -> Effect:
    return Effect(run_id=run_id, key=key, body=json.dumps(body).encode())


def send(body: Any = LETTER, **fields: Any) -> Told:
    return email.send(an_effect(body, **fields), KIND, lambda: None)


# --- Sending --------------------------------------------------------------------------------------------


def test_a_message_arrives_whole_and_each_receiver_is_named(post: Post) -> None:
    told = send()
    (letter,) = post.letters
    assert told.outcome == "applied"
    assert told.result == {"message_id": letter["Message-ID"], "accepted": [ANNE, BEN, CLEO]}
    assert (letter["To"], letter["Cc"], letter["Subject"]) == (f"{ANNE}, {BEN}", CLEO, "Invoice 7")
    assert letter.get_payload() == "It is due.\r\n.\r\nRegards\r\n"  # a dot alone ends no text


def test_the_message_id_is_of_the_key_and_the_same_on_every_attempt(post: Post) -> None:
    ids = [
        send(key=key, run_id=run).provider_ref
        for key, run in (("k", "a"), ("k", "a"), ("k", "b"), ("l", "a"))
    ]
    assert ids == [letter["Message-ID"] for letter in post.letters]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_what_needs_more_than_seven_bits_arrives_too(post: Post) -> None:
    send({"to": [ANNE], "subject": "Größe ✓", "html": "<p>ä" + "x" * 3000})
    (letter,) = post.letters
    content = letter.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode().startswith("<p>ä")
    assert letter.get_content_type() == "text/html"


# What the server does, and what is known of each receiver then. `text`: whether it took the text.
SAID = {
    "all": ("", {}, "applied", None, 1),
    "one receiver refused": ("", {BEN: 550}, "partial", {"accepted": [ANNE, CLEO], "refused": {BEN: 550}}, 1),
    "one for now": ("", {CLEO: 451}, "partial", {"accepted": [ANNE, BEN], "refused": {CLEO: 451}}, 1),
    "each refused": ("refuse", {}, "not_applied", {"refused": {ANNE: 550, BEN: 550, CLEO: 550}}, 0),
    "sender refused": ("refuse_sender", {}, "not_applied", None, 0),
    "no text wanted": ("refuse_data", {}, "not_applied", {"not tried": [ANNE, BEN, CLEO]}, 0),
    "gone before the text": ("leave", {}, "not_applied", None, 0),
    "text refused": ("refuse_text", {}, "not_applied", {"not taken": [ANNE, BEN, CLEO]}, 0),
    "no answer": ("drop", {BEN: 550}, "unknown", {"unknown": [ANNE, CLEO], "refused": {BEN: 550}}, 1),
}


@pytest.mark.parametrize("case", SAID)
def test_each_answer_of_the_server_is_told_as_the_table_says(post: Post, case: str) -> None:
    fault, refused, outcome, items, took = SAID[case]
    post.fault(fault)
    for address, code in refused.items():
        post.refuse(address, code)
    told = send()
    assert (told.outcome, told.items, len(post.letters)) == (outcome, items, took)


def test_an_answer_that_is_too_late_is_unknown(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email, "LIMIT_S", 0.5)
    post.fault("hold")
    told = send()
    assert (told.outcome, told.items) == ("unknown", {"unknown": [ANNE, BEN, CLEO]})
    assert post.state.held.is_set()


def test_where_no_server_answers_or_is_set_nothing_was_sent(settings: Settings) -> None:
    with Post() as post:
        post.settle(settings)
    assert (send().outcome, post.letters) == ("not_applied", [])
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    told = send()
    assert (told.outcome, "EMAIL_URL" in told.detail) == ("not_applied", True)


@pytest.mark.invariant("I7")
def test_a_second_look_that_says_no_leaves_no_sender_named(post: Post) -> None:
    def shut() -> None:
        assert [line[:4].upper() for line in post.heard] == ["EHLO"]
        raise NotOpen("cancelled")

    with pytest.raises(NotOpen):
        email.send(an_effect(), KIND, shut)
    assert [line for line in post.heard if line.upper().startswith(("MAIL", "RCPT", "DATA"))] == []
    send()
    assert any(line.startswith("MAIL FROM") for line in post.heard)  # such a line is heard


# --- Bodies that are no message ---------------------------------------------------------------------------

BAD: dict[str, Any] = {
    "no object": ["a"],
    "no receiver": {"to": [], "subject": "s", "text": "t"},
    "a receiver that is a text": {"to": ANNE, "subject": "s", "text": "t"},
    "a header in the subject": {"to": [ANNE], "subject": "s\r\nBcc: mallory@example.org", "text": "t"},
    "a line separator in the subject": {"to": [ANNE], "subject": "s\u2028Bcc: x", "text": "t"},
    "a header in an address": {"to": [f"{ANNE}\r\nBcc: mallory@example.org"], "subject": "s", "text": "t"},
    "a command in an address": {
        "to": [f"{ANNE}>\r\nRCPT TO:<mallory@example.org"],
        "subject": "s",
        "text": "t",
    },
    "two addresses in one": {"to": [f"{ANNE}, mallory@example.org"], "subject": "s", "text": "t"},
    "a name and an address": {"to": [f"Anne <{ANNE}>"], "subject": "s", "text": "t"},
    "a quoted address": {"to": ['"a b"@example.org'], "subject": "s", "text": "t"},
    "a receiver twice": {"to": [ANNE], "cc": [ANNE.upper()], "subject": "s", "text": "t"},
    "too many receivers": {"to": [f"a{n}@example.org" for n in range(51)], "subject": "s", "text": "t"},
    "a long subject": {"to": [ANNE], "subject": "s" * 301, "text": "t"},
    "a long text": {"to": [ANNE], "subject": "s", "text": "ä" * 102_401},
    "no text": {"to": [ANNE], "subject": "s"},
    "two texts": {"to": [ANNE], "subject": "s", "text": "t", "html": "t"},
    "a blind copy": {"to": [ANNE], "bcc": [BEN], "subject": "s", "text": "t"},
    "a sender of its own": {"to": [ANNE], "from": BEN, "subject": "s", "text": "t"},
}


@pytest.mark.parametrize("case", BAD)
def test_a_body_that_is_no_plain_message_is_not_sent(post: Post, case: str) -> None:
    told = send(BAD[case])
    assert told.outcome == "not_applied"
    assert told.detail.startswith("nothing was sent: ")
    assert post.heard == []


# --- Registering, and the whole way -----------------------------------------------------------------------


def test_a_kind_is_refused_where_there_is_no_mail_server_or_where_it_says_too_much(
    post: Post, settings: Settings
) -> None:
    good = NewKind(provider="email", op_class="external_write")
    check(good)
    for field, bad in (
        ("class", NewKind(provider="email", op_class="read")),
        ("send", NewKind(provider="email", op_class="external_write", send={"url": "https://x.example/"})),
        (
            "lookup.url",
            NewKind(provider="email", op_class="external_write", lookup={"url": "https://x.example/"}),
        ),
    ):
        with pytest.raises(BadKind) as refused:
            check(bad)
        assert refused.value.field == field
    settings.EMAIL_CONFIGURED = False
    with pytest.raises(BadKind, match="EMAIL_URL"):
        check(good)


@pytest.mark.django_db(transaction=True)
def test_what_some_receivers_refused_is_partial_and_never_sent_again(post: Post, world: World) -> None:
    a_kind(world.workspace, "mail.invoice", provider="email")
    post.refuse(BEN, 550)
    run = world.run()
    effect = queued(world, run, "mail:7", kind="mail.invoice", body=json.dumps(LETTER).encode())
    assert executor.execute(effect.pk) == "partial"
    assert stands(effect) == (Settlement.PARTIAL, StepStatus.PARTIAL)
    assert fresh(effect).items == {"accepted": [ANNE, CLEO], "refused": {BEN: 550}}
    assert executor.execute(effect.pk) == "nothing to do"
    assert len(post.letters) == 1


@pytest.mark.django_db(transaction=True)
def test_a_lost_answer_is_unknown_with_nobody_to_ask_and_is_not_sent_again(post: Post, world: World) -> None:
    a_kind(world.workspace, "mail.invoice", provider="email")
    post.fault("drop")
    effect = queued(world, world.run(), "mail:7", kind="mail.invoice", body=json.dumps(LETTER).encode())
    assert executor.execute(effect.pk) == "unknown"
    assert stands(effect) == (Settlement.UNKNOWN, StepStatus.UNKNOWN)
    assert fresh(effect).next_check_at is None
    assert executor.execute(effect.pk) == "nothing to do"
    assert len(post.letters) == 1


def test_effects_and_compensations_are_sent_alike() -> None:
    both: list[Sendable] = [Effect(key="a"), Compensation(key="b")]
    assert [one.key for one in both] == ["a", "b"]
