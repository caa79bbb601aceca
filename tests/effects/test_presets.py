"""What is said before an effect of lessening it: the two lists, by kind, provider, answer and wire."""

from __future__ import annotations

import pytest

from effects import presets
from effects.models import Kind
from tests.wire import agent_of, kind_body
from tests.worlds import World

CAN = {"reservation", "draft", "local_resource", "staged_change", "payment"}
CANNOT = {"mail_sent", "webhook_consumed", "public_post", "deletion", "human_decision"}


def test_there_are_two_lists_and_each_sentence_says_on_which_it_stands() -> None:
    assert {one.name for one in presets.CAN} == CAN
    assert {one.name for one in presets.CANNOT} == CANNOT
    for one in presets.PRESETS.values():
        begins = "It can be compensated by " if one.can else "It can’t be called back, because "
        assert one.sentence.startswith(begins)


@pytest.mark.parametrize(
    ("reversible", "provider", "can"),
    [
        ("payment", "http", True),
        ("public_post", "outside", False),
        ("", "email", False),  # its provider says it
        ("draft", "email", True),  # the kind's own word counts
        ("", "http", None),
        ("gone", "http", None),
    ],
)
def test_a_kind_says_it_or_its_provider_or_nobody(reversible: str, provider: str, can: bool | None) -> None:
    assert presets.of_kind(Kind(reversible=reversible, provider=provider)).can is can


def test_an_unregistered_kind_promises_nothing() -> None:
    assert presets.of_kind(None) == presets.UNSAID
    assert presets.UNSAID.can is None


@pytest.mark.django_db(transaction=True)
def test_the_gates_answer_says_it_before_anything_is_sent_and_the_wire_takes_a_wish_to_forward() -> None:
    agent = agent_of(World().workspace)
    send = {"url": "https://x.example/jobs", "cancel": {"url": "https://x.example/{ref}"}}
    lookup = {"url": "https://x.example/{key}", "job": {"path": "status", "running": ["busy"]}}
    kind = {"class": "external_job", "provider": "job", "reversible": "public_post", "send": send}
    assert agent.put("/kinds/post.video", kind_body(**kind, lookup=lookup)).status == 201
    run = agent.run()
    said = agent.effect(run, "post:1", kind="post.video", on_stop="ask_provider")
    assert (said.status, said.data["effect"]["on_stop"], said.data["permit"]) == (201, "ask_provider", None)
    assert said.data["reversible"] == {
        "preset": "public_post",
        "can": False,
        "sentence": presets.PRESETS["public_post"].sentence,
    }
    assert agent.effect(run, "x:1", kind="opaque").data["reversible"]["can"] is None
    refused = agent.effect(run, "x:2", kind="opaque", on_stop="ask_provider")
    assert (refused.status, refused.data["errors"][0]["field"]) == (422, "on_stop")
