"""The provider model against a real HTTP server: what a turn said, what it spent, what is not known."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import HTTPServer
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import executor, signing
from effects.executor import NotOpen
from effects.kinds import BadKind, NewKind, check
from effects.models import Account, Effect, Kind, Settlement
from effects.providers import model
from effects.settle import Told
from runs.models import Turn
from runs.turns import Spend
from tests.effects import outside
from tests.effects.sending import queued, stands
from tests.worlds import World, a_kind, fresh

ASKED = {"model": "small-1", "messages": [{"role": "user", "content": "Is it paid?"}]}
USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
SPENT = Spend("small-1", 12, 3)


def answered(content: str = "Yes.", reason: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}
    return {"id": "chat-1", "model": "small-1", "choices": [choice], "usage": USAGE, **more}


class Model:
    """A provider of models on loopback. `says`: status and body of the next answers; None: cuts the wire."""

    def __init__(self) -> None:
        self.says: tuple[int, Any] | None = (200, answered())

    def answer(self, handler: Any) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        if self.says is None:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status, body = self.says
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        outside.answer(handler, status, text)


@pytest.fixture
def maker() -> Model:
    return Model()


@pytest.fixture
def server(maker: Model, settings: Settings) -> Iterator[HTTPServer]:
    with outside.server(maker.answer) as made:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [outside.url_of(made)]
        yield made


def kind_of(server: HTTPServer, **more: Any) -> Kind:
    url = f"{outside.url_of(server)}/v1/chat/completions"
    return Kind(name="model.turn", provider="model", send={"url": url, **more})


def send(server: HTTPServer, body: Any = ASKED, **more: Any) -> Told:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return model.send(Effect(key="turn:1", body=raw), kind_of(server, **more), lambda: None)


# What the provider says, and what is known then: outcome, spend, whether an output was cut off.
SAID: dict[str, tuple[tuple[int, Any] | None, str, Spend | None, str | None]] = {
    "an output": ((200, answered()), "applied", SPENT, None),
    "no usage": ((200, answered(usage=None)), "applied", None, None),
    "cut off": ((200, answered("It is", "length")), "partial", SPENT, "It is"),
    "filtered": ((200, answered("", "content_filter")), "partial", SPENT, ""),
    "a refusal": ((400, {"error": {"message": "no"}}), "not_applied", None, None),
    "too many": ((429, {}), "unknown", None, None),
    "an error of its own": ((500, b"oops"), "unknown", None, None),
    "a page": ((200, b"<html>"), "unknown", None, None),
    "no choice": ((200, {"id": "x", "choices": [], "usage": USAGE}), "unknown", Spend("", 12, 3), None),
    "a negative count": ((200, answered(usage={"prompt_tokens": -1})), "applied", None, None),
    "nothing": (None, "unknown", None, None),
}


@pytest.mark.parametrize("case", SAID)
def test_each_answer_is_told_as_the_table_says(server: HTTPServer, maker: Model, case: str) -> None:
    maker.says, outcome, spend, cut = SAID[case]
    told = send(server)
    assert (told.outcome, told.spend, told.partial_output) == (outcome, spend, cut)
    assert len(outside.seen(server)) == 1
    if outcome == "unknown" and spend is None:
        assert "spend is not reported" in told.detail or "no chat completion" in told.detail


def test_the_output_is_kept_without_secrets_and_the_key_goes_along(server: HTTPServer, maker: Model) -> None:
    maker.says = (200, answered("Use sk_live_abcdefgh12345678 for it."))
    told = send(server)
    assert told.result["choices"][0]["message"]["content"].startswith("Use [redacted token ")
    assert told.provider_ref == "chat-1"
    assert outside.seen(server)[0][1]["Idempotency-Key"] == "turn:1"


@pytest.mark.parametrize(
    "body",
    [b"no json", [], {"model": "small-1"}, {**ASKED, "stream": True}, {**ASKED, "model": "large-9"}],
)
def test_a_body_that_asks_for_something_else_is_not_sent(server: HTTPServer, body: Any) -> None:
    told = send(server, body, model="small-1")
    assert (told.outcome, outside.seen(server)) == ("not_applied", [])
    assert send(server, ASKED, model="small-1").outcome == "applied"


@pytest.mark.invariant("I7")
def test_a_second_look_that_says_no_asks_nothing(server: HTTPServer) -> None:
    def shut() -> None:
        raise NotOpen("cancelled")

    with pytest.raises(NotOpen):
        model.send(Effect(key="k", body=json.dumps(ASKED).encode()), kind_of(server), shut)
    assert outside.seen(server) == []


def test_an_answer_is_waited_for_as_long_as_the_kind_says(server: HTTPServer, settings: Settings) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url]
        kind = Kind(name="model.turn", provider="model", send={"url": url, "limit_s": 0.3})
        told = model.send(Effect(key="k", body=json.dumps(ASKED).encode()), kind, lambda: None)
    assert (told.outcome, told.spend) == ("unknown", None)


def test_a_kind_says_where_and_how_long_and_is_a_model_turn() -> None:
    url = "https://models.example/v1/chat/completions"
    check(
        NewKind(provider="model", op_class="model_turn", send={"url": url, "model": "small-1", "limit_s": 90})
    )
    for field, given in (
        ("class", {"op_class": "external_write", "send": {"url": url}}),
        ("send", {"op_class": "model_turn"}),
        ("send", {"op_class": "model_turn", "send": {"url": url, "method": "PUT"}}),
        ("send.url", {"op_class": "model_turn", "send": {"url": "http://models.example/"}}),
        ("send.limit_s", {"op_class": "model_turn", "send": {"url": url, "limit_s": 900}}),
    ):
        with pytest.raises(BadKind) as refused:
            check(NewKind(provider="model", **given))
        assert refused.value.field == field


@pytest.mark.django_db(transaction=True)
def test_a_turn_of_our_executor_keeps_its_spend_and_shows_its_credential_to_its_origin_alone(
    server: HTTPServer, maker: Model, world: World
) -> None:
    a_kind(
        world.workspace,
        "model.turn",
        provider="model",
        op_class="model_turn",
        account="models",
        send=kind_of(server).send,
    )
    Account.objects.create(
        workspace=world.workspace,
        name="models",
        origin=outside.url_of(server),
        header="Authorization",
        credential=signing.seal("Bearer canary-123456789"),
    )
    maker.says = (200, answered("You said canary-123456789"))
    effect = queued(world, world.run(), "turn:1", kind="model.turn", body=json.dumps(ASKED).encode())
    assert executor.execute(effect.pk) == "applied"
    assert stands(effect)[0] == Settlement.CONFIRMED
    turn = Turn.objects.get()
    assert (turn.model, turn.tokens_in, turn.tokens_out) == ("small-1", 12, 3)
    assert outside.seen(server)[0][1]["Authorization"] == "Bearer canary-123456789"
    assert "canary" not in json.dumps(fresh(effect).result)
