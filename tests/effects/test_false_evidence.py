"""What is no evidence, however it is brought in: each of these settled something once."""

from __future__ import annotations

from typing import Any

import pytest

from effects import polled
from effects.models import Effect, Kind
from effects.reconcile import Answer
from runs.models import Evidence, Token
from tests.effects.unknowns import an_unknown, looked_up, now, said, say
from tests.worlds import World, a_kind, a_token, in_seconds

pytestmark = pytest.mark.django_db


def a_polled_kind(world: World, **fields: Any) -> Kind:
    rules = {"lookup": {"poll": True}, "updated_at": in_seconds(-9_000), "settle_window_s": 60}
    return a_kind(world.workspace, **{**rules, **fields})


def an_agent_of(world: World, person: Any) -> Any:
    agent = a_token(world.workspace)
    assert agent.token is not None
    Token.objects.filter(pk=agent.token.pk).update(created_by=person.user)
    return agent


def answered(world: World, row: Any, by: Any, said: Answer) -> int:
    """An agent comes for the look-up of this effect and answers it; the seq of its line."""
    Effect.objects.filter(pk=row.pk).update(next_check_at=in_seconds(-1), check_until=in_seconds(3_600))
    [turn] = [one for one in polled.take(by, world.workspace.pk) if one.effect.pk == row.pk]
    polled.answer(actor=by, effect_id=row.pk, turn=turn.id, said=said)
    line = Evidence.objects.filter(stream=row.run_id, kind="effect.looked_up").order_by("-seq").first()
    assert line is not None
    return line.seq


# --- An agent in its provider's place ---


@pytest.mark.parametrize(("of", "reason"), [("alice", "own_run"), ("bob", "NOT_APPLIED")])
def test_what_ones_own_agent_says_of_ones_own_run_is_ones_own_word(
    world: World, of: str, reason: str
) -> None:
    kind = a_polled_kind(world)
    row = an_unknown(world, owner=world.alice.user, kind=kind, permit="LOST")
    line = answered(world, row, an_agent_of(world, getattr(world, of)), Answer("absent"))
    assert now(row) == "UNKNOWN", "a lost holder may still send"
    assert said(say(row, world.alice, "did not happen", lines=[line])) == reason


def test_what_an_agent_answers_to_our_question_is_nobodys_evidence_of_the_run_of_its_owner(
    world: World,
) -> None:
    row = an_unknown(world, owner=world.alice.user, kind=a_polled_kind(world), permit="LOST")
    line = looked_up(row, "absent", answered_by="callback")
    assert said(say(row, world.alice, "did not happen", lines=[line])) == "own_run"
    by_the_provider = looked_up(row, "absent")
    assert said(say(row, world.alice, "did not happen", lines=[by_the_provider])) == "NOT_APPLIED"
