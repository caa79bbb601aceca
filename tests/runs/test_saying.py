"""Whether a text says something. That verbs which demand a reason ask so is in the tests of each verb."""

from __future__ import annotations

import pytest

from runs.saying import words_in
from tests.texts import SAYS_NOTHING, SAYS_SOMETHING


@pytest.mark.parametrize("text", SAYS_NOTHING)
def test_what_shows_no_letter_and_no_figure_says_nothing(text: str) -> None:
    assert words_in(text) == ""


@pytest.mark.parametrize("text", SAYS_SOMETHING)
def test_a_letter_or_a_figure_says_something(text: str) -> None:
    assert words_in(text)


def test_what_nobody_sees_is_not_kept() -> None:
    assert words_in(" \u3164a\u200bb.\u2800\u202e ") == "ab."
