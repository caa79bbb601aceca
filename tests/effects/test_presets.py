"""What is said before an effect of lessening it: the two lists, by kind, provider, answer and wire."""

from __future__ import annotations

import pytest

from effects import presets
from effects.models import Kind

CAN = {"reservation", "draft", "local_resource", "staged_change", "payment"}
CANNOT = {"mail_sent", "webhook_consumed", "public_post", "deletion", "human_decision"}


def test_there_are_two_lists_and_each_sentence_says_on_which_it_stands() -> None:
    assert {one.name for one in presets.CAN} == CAN
    assert {one.name for one in presets.CANNOT} == CANNOT
    for one in presets.PRESETS.values():
        begins = "It can be compensated by " if one.can else "It can't be called back, because "
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
def test_a_kind_says_it_or_its_provider_does_or_nobody(
    reversible: str, provider: str, can: bool | None
) -> None:
    assert presets.of_kind(Kind(reversible=reversible, provider=provider)).can is can


def test_an_unregistered_kind_promises_nothing() -> None:
    assert presets.of_kind(None) == presets.UNSAID
    assert presets.UNSAID.can is None
