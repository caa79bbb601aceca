"""A webhook meets the dispatch of its effect, a look-up, and itself. What is true is found, once."""

from __future__ import annotations

import pytest
from django.db import connection

from effects import inbound, intents, reconcile
from effects.inbound import Message
from effects.models import Effect, Inbound
from effects.reconcile import Answer
from runs.guard import Opened
from runs.models import Run
from tests.effects.hooking import Teller, an_account
from tests.races.sides import Side, sides, together
from tests.worlds import World, a_kind, fresh, in_seconds, intention, kinds_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]
KEY = "charge:7"


def message_of(bank: Teller, key: str, says: str, message_id: str = "") -> Message:
    """What the bank would send of this key, signed now."""
    body = bank.body(key, says)
    named = bank.headers(body, message_id)
    return Message(named["webhook-id"], named["webhook-timestamp"], named["webhook-signature"], body)


class Scene:
    """An account, a kind of it, and a run; its effect is not there yet."""

    def __init__(self) -> None:
        self.world = World()
        self.bank = Teller(*an_account(self.world.workspace))
        a_kind(self.world.workspace, account="bank", updated_at=in_seconds(-600))
        self.run: Run = self.world.run()

    def message(self, says: str = "succeeded", message_id: str = "") -> Message:
        return message_of(self.bank, KEY, says, message_id)

    def hear(self, message: Message) -> str:
        return inbound.receive(self.bank.account.pk, message)

    def dispatch(self) -> object:
        return intents.dispatch(self.world.ask(self.run, step_key=KEY), intention(KEY))

    def unknown(self) -> Effect:
        self.world.report(self.world.opened(self.run), "unknown")
        return Effect.objects.get()

    def sweep(self) -> list[str]:
        return [inbound.apply_waiting(one) for one in inbound.to_apply()]


@pytest.mark.parametrize("first", ["webhook", "dispatch"])
def test_a_webhook_and_the_dispatch_of_its_effect_find_each_other(first: str) -> None:
    """Where neither has seen the other, the sweep has; one that is told twice settles once."""
    scene = Scene()
    message = scene.message()
    calls = {"webhook": lambda: scene.hear(message), "dispatch": scene.dispatch}
    second = "dispatch" if first == "webhook" else "webhook"
    with sides() as make:
        one: Side[object] = make(first, calls[first], hold="COMMIT")
        one.stands()
        other: Side[object] = make(second, calls[second])
        met = other.waits_for(one)
        told = {first: one.result(), second: other.result()}
    assert told["webhook"] == "taken"
    assert isinstance(told["dispatch"], Opened)
    if connection.vendor == "postgresql":  # the situation: it was not seen, and is found all the same
        assert not met
        assert Inbound.objects.get().subject_id == ""
        assert scene.sweep() == ["settled"]
    else:
        assert met
        scene.sweep()
    assert (fresh(Effect.objects.get()).settlement, Inbound.objects.get().became) == ("CONFIRMED", "settled")
    assert kinds_of(scene.run).count("webhook.received") == 1


def test_a_replay_at_the_same_moment_is_one_message() -> None:
    scene = Scene()
    scene.unknown()
    message = scene.message()
    answers = together([lambda: scene.hear(message)] * 4)
    assert sorted(answers) == ["known", "known", "known", "taken"]
    assert Inbound.objects.count() == 1
    assert kinds_of(scene.run).count("webhook.received") == 1


def test_a_look_up_that_was_asked_before_a_webhook_settled_it_contradicts_nothing() -> None:
    """It saw nothing because it asked too early; both lines are kept."""
    scene = Scene()
    effect = scene.unknown()
    asked = reconcile.Asked(in_seconds(0), effect.attempt)
    message = scene.message()
    with sides() as make:
        webhook = make("webhook", lambda: scene.hear(message), hold="COMMIT")
        webhook.stands()
        look = make("look-up", lambda: reconcile.apply_answer(effect.pk, Answer("absent"), asked=asked))
        assert look.waits_for(webhook)
        assert (webhook.result(), look.result()) == ("taken", "CONFIRMED")
    now = fresh(effect)
    assert (now.settlement, now.ground, now.contradicted) == ("CONFIRMED", "webhook", False)
    assert {"webhook.received", "effect.looked_up"} <= set(kinds_of(scene.run))


def test_a_webhook_that_says_no_after_a_look_up_said_yes_is_a_contradiction_that_people_see() -> None:
    scene = Scene()
    effect = scene.unknown()
    with sides() as make:
        look = make("look-up", lambda: reconcile.apply_answer(effect.pk, Answer("present")), hold="COMMIT")
        look.stands()
        late = scene.message("failed")
        assert look.result() == "CONFIRMED"
    assert scene.hear(late) == "taken"
    now = fresh(effect)
    assert (now.settlement, now.contradicted) == ("UNKNOWN", True)


def test_two_sweeps_and_a_task_apply_a_waiting_one_once() -> None:
    scene = Scene()
    scene.hear(scene.message())
    scene.dispatch()
    [waiting] = inbound.to_apply()
    answers = together([lambda: inbound.apply_waiting(waiting)] * 3)
    assert sorted(answers) == ["", "", "settled"]
    assert kinds_of(scene.run).count("webhook.received") == 1
