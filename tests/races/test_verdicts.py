"""What people say of an unknown meets webhooks, look-ups and each other. One moves it; all are told.

Whoever comes second waits for the run, and then speaks of what is: a verdict of what is known by now is not
recorded, evidence that disagrees with a verdict puts it in doubt. Nothing that was said is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effects import inbound, reconcile, resolve
from effects.models import Effect, Inbound, Resolution
from effects.reconcile import Answer
from effects.resolve import NotResolved, Resolved
from runs.access import Actor
from runs.models import Evidence
from tests.effects.hooking import Teller, an_account
from tests.effects.unknowns import an_unknown, recorded, said, say
from tests.races import unsafe
from tests.races.sides import sides, together
from tests.races.test_decisions import meet
from tests.races.test_webhooks import message_of
from tests.worlds import World, a_kind, fresh, in_seconds, kinds_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]
HAPPENED, DID_NOT, CANNOT = "happened", "did not happen", "cannot be determined"
MOVES = ("effect.confirmed", "effect.not_applied", "effect.accepted_unknown", "effect.unknown")


class Scene:
    """A charge that is unknown, and a bank that may be asked and that tells of its own accord."""

    def __init__(self) -> None:
        self.world = World()
        self.bank = Teller(*an_account(self.world.workspace))
        given: dict[str, Any] = {
            "account": "bank",
            "updated_at": in_seconds(-3600),
            "lookup": {"url": "https://bank.test/"},
        }
        kind = a_kind(self.world.workspace, **given)
        self.effect: Effect = an_unknown(self.world, kind=kind)

    def verdict(self, verdict: str, by: Actor | None = None, **more: Any) -> Callable[[], Any]:
        """Somebody's word, said to what is shown now."""
        newest = Resolution.objects.filter(subject_id=self.effect.pk).order_by("-number").first()
        shown = newest.number if newest else 0
        return lambda: say(self.effect, by or self.world.alice, verdict, **{"seen": shown, **more})

    def webhook(self, says: str) -> Callable[[], str]:
        message = message_of(self.bank, self.effect.key, says)
        return lambda: inbound.receive(self.bank.account.pk, message)

    def look_up(self, answer: str) -> Callable[[], str]:
        return lambda: reconcile.apply_answer(self.effect.pk, Answer(answer))

    def agree(self, waits: Resolution, by: Actor) -> Callable[[], Any]:
        return lambda: resolve.agree(actor=by, resolution_id=waits.pk)

    @property
    def stands(self) -> tuple[str, str, bool]:
        now = fresh(self.effect)
        return now.settlement, now.ground, now.contradicted

    @property
    def lines(self) -> list[str]:
        return kinds_of(self.effect.run)

    @property
    def moves(self) -> list[str]:
        """The lines by which it moved, in their order."""
        return [line for line in self.lines if line in MOVES]

    @property
    def verdicts(self) -> list[str]:
        rows = Resolution.objects.filter(subject_id=self.effect.pk, in_force_at__isnull=False)
        return list(rows.order_by("number").values_list("verdict", flat=True))


def violations(scene: Scene) -> list[str]:
    """What no order of the two calls could have left behind."""
    found = []
    settled = {"effect.confirmed": "CONFIRMED", "effect.not_applied": "NOT_APPLIED"}
    last = settled.get(scene.moves[-1], "") if scene.moves else ""
    if last and last != scene.stands[0]:
        found.append("it stands otherwise than its last line says")
    grounds = Evidence.objects.filter(stream=scene.effect.run_id, kind__in=settled).order_by("seq")
    if list(grounds.values_list("ground", flat=True))[:1] == ["webhook"] and scene.stands[1] == "decided":
        found.append("a person's word replaced a provider's fact")
    return found


# --- Resolve and evidence -----------------------------------------------------------------------------------

SOURCES: dict[str, tuple[Callable[[Scene], Callable[[], str]], str, str]] = {
    "webhook": (lambda scene: scene.webhook("succeeded"), "webhook", "webhook.received"),
    "look-up": (lambda scene: scene.look_up("present"), "looked up", "effect.looked_up"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_verdict_that_comes_second_to_evidence_is_told_that_it_is_known(source: str) -> None:
    scene = Scene()
    evidence, ground, line = SOURCES[source]
    _, told = meet(evidence(scene), scene.verdict(DID_NOT))
    assert said(told) == "settled"
    assert scene.stands == ("CONFIRMED", ground, False)
    assert (scene.moves, scene.verdicts, scene.lines.count(line)) == (["effect.confirmed"], [], 1)
    assert violations(scene) == []


@pytest.mark.parametrize("source", SOURCES)
def test_evidence_that_comes_second_to_a_verdict_it_contradicts_puts_it_in_doubt(source: str) -> None:
    scene = Scene()
    evidence, _, line = SOURCES[source]
    told, _ = meet(scene.verdict(DID_NOT), evidence(scene))
    assert said(told) == "NOT_APPLIED"
    assert scene.stands[0::2] == ("UNKNOWN", True)
    assert scene.moves == ["effect.not_applied", "effect.unknown"]
    assert (scene.verdicts, scene.lines.count(line)) == ([DID_NOT], 1), "both are kept"
    assert violations(scene) == []


@pytest.mark.parametrize("source", SOURCES)
def test_evidence_that_comes_second_to_a_verdict_it_confirms_moves_nothing(source: str) -> None:
    scene = Scene()
    evidence, _, line = SOURCES[source]
    told, _ = meet(scene.verdict(HAPPENED), evidence(scene))
    assert said(told) == "CONFIRMED"
    assert scene.stands[0::2] == ("CONFIRMED", False)
    assert scene.moves[:1] == ["effect.confirmed"]
    assert "effect.unknown" not in scene.moves
    assert (scene.verdicts, scene.lines.count(line)) == ([HAPPENED], 1)


def test_whoever_comes_first_a_verdict_and_a_webhook_leave_what_one_order_leaves() -> None:
    verdict_first = webhook_first = 0
    for turn in range(6):
        scene = Scene()
        calls: list[Callable[[], Any]] = [scene.verdict(DID_NOT), scene.webhook("succeeded")]
        answers = together(calls[:: 1 if turn % 2 else -1])
        told = next(one for one in answers if not isinstance(one, str))
        if isinstance(told, Resolved):
            assert (scene.stands[0::2], scene.verdicts) == (("UNKNOWN", True), [DID_NOT])
            verdict_first += 1
        else:
            assert (said(told), scene.stands) == ("settled", ("CONFIRMED", "webhook", False))
            webhook_first += 1
        assert violations(scene) == []
    assert verdict_first + webhook_first == 6


@pytest.mark.only("postgresql")
def test_a_verdict_that_reads_and_then_writes_replaces_what_a_webhook_said() -> None:
    """The control: without the run's lock it reads what is no more, and its write asks nothing."""
    scene = Scene()
    with sides() as make:
        webhook = make("webhook", scene.webhook("succeeded"), hold="COMMIT")
        webhook.stands()
        person = make("verdict", lambda: unsafe.decide(scene.effect, "NOT_APPLIED"))
        assert person.waits_for(webhook), "it waits where it writes, and has read already"
        assert webhook.result() == "taken"
        assert person.result() == 1, "told that it was recorded"
    assert scene.stands == ("NOT_APPLIED", "decided", False), "and nobody sees that the bank said otherwise"
    assert violations(scene) == [
        "it stands otherwise than its last line says",
        "a person's word replaced a provider's fact",
    ]


# --- Resolve and resolve ------------------------------------------------------------------------------------


def test_of_two_verdicts_on_what_both_saw_one_is_recorded_and_the_other_is_told_whose() -> None:
    scene = Scene()
    first, second = meet(scene.verdict(HAPPENED), scene.verdict(DID_NOT, scene.world.bob))
    assert isinstance(first, Resolved)
    assert isinstance(second, NotResolved)
    assert (second.reason, second.by) == ("changed", first.resolution)
    assert (scene.stands[0], scene.verdicts, scene.moves) == ("CONFIRMED", [HAPPENED], ["effect.confirmed"])


def test_of_many_who_resolve_at_once_one_does() -> None:
    scene = Scene()
    people = (scene.world.alice, scene.world.bob, scene.world.carol)
    answers = together([scene.verdict(HAPPENED, one) for one in people])
    assert sorted(said(one) for one in answers) == ["CONFIRMED", "changed", "changed"]
    assert (Resolution.objects.count(), scene.moves) == (1, ["effect.confirmed"])


# --- A second person ----------------------------------------------------------------------------------------


def test_a_yes_that_comes_second_to_new_evidence_is_told_that_it_is_known() -> None:
    scene = Scene()
    waits = recorded(scene.effect, scene.world.alice, CANNOT)
    _, told = meet(scene.webhook("succeeded"), scene.agree(waits, scene.world.bob))
    assert said(told) == "settled"
    assert (scene.stands, scene.verdicts) == (("CONFIRMED", "webhook", False), [])
    assert scene.moves == ["effect.confirmed"]


def test_evidence_that_comes_second_to_a_yes_settles_what_was_accepted_as_unknown() -> None:
    scene = Scene()
    waits = recorded(scene.effect, scene.world.alice, CANNOT)
    told, _ = meet(scene.agree(waits, scene.world.bob), scene.webhook("succeeded"))
    assert said(told) == "ACCEPTED_UNKNOWN"
    assert (scene.stands, scene.verdicts) == (("CONFIRMED", "webhook", False), [CANNOT])
    assert scene.moves == ["effect.accepted_unknown", "effect.confirmed"], "each is kept"


def test_of_two_who_agree_at_once_one_is_the_second_person() -> None:
    scene = Scene()
    waits = recorded(scene.effect, scene.world.alice, CANNOT)
    bob, carol = scene.world.bob, scene.world.carol
    first, second = meet(scene.agree(waits, bob), scene.agree(waits, carol))
    assert (said(first), said(second)) == ("ACCEPTED_UNKNOWN", "withdrawn")
    assert Resolution.objects.get(pk=waits.pk).second == bob.user
    assert scene.moves == ["effect.accepted_unknown"]
    assert scene.lines.count("resolution.agreed") == 1


@pytest.mark.parametrize("first", ["agree", "withdraw"])
def test_a_yes_and_the_withdrawal_of_what_it_agrees_to_never_both_count(first: str) -> None:
    scene = Scene()
    waits = recorded(scene.effect, scene.world.alice, CANNOT)

    def withdraw() -> Any:
        return resolve.withdraw(actor=scene.world.alice, resolution_id=waits.pk)

    agree = scene.agree(waits, scene.world.bob)
    calls = (agree, withdraw) if first == "agree" else (withdraw, agree)
    done, late = meet(*calls)
    assert isinstance(done, Resolved)
    assert said(late) == "withdrawn"
    assert scene.stands[0] == ("ACCEPTED_UNKNOWN" if first == "agree" else "UNKNOWN")


# --- A correction -------------------------------------------------------------------------------------------


def decided() -> Scene:
    """Alice recorded that it happened."""
    scene = Scene()
    recorded(scene.effect, scene.world.alice, HAPPENED)
    return scene


def correction(scene: Scene) -> Callable[[], Any]:
    return scene.verdict(DID_NOT, scene.world.bob, correct=True)


def test_a_webhook_that_comes_second_to_a_correction_contradicts_what_is_now_said() -> None:
    scene = decided()
    told, _ = meet(correction(scene), scene.webhook("succeeded"))
    assert said(told) == "NOT_APPLIED"
    assert (scene.stands[0::2], scene.verdicts) == (("UNKNOWN", True), [HAPPENED, DID_NOT])
    assert scene.moves == ["effect.confirmed", "effect.unknown", "effect.not_applied", "effect.unknown"]
    assert violations(scene) == []


def test_a_correction_that_comes_second_to_a_webhook_against_it_never_decides_alone() -> None:
    """What the bank confirmed is no longer one person's word: to put it in doubt takes two."""
    scene = decided()
    _, told = meet(scene.webhook("succeeded"), correction(scene))
    assert isinstance(told, Resolved)
    assert told.waits
    assert scene.stands[0::2] == ("CONFIRMED", False)
    assert Inbound.objects.get().became in ("recorded", "settled")
    assert "effect.unknown" not in scene.moves


def test_of_two_corrections_at_once_one_counts() -> None:
    scene = decided()
    carols = scene.verdict(DID_NOT, scene.world.carol, correct=True)
    first, second = meet(correction(scene), carols)
    assert (said(first), said(second)) == ("NOT_APPLIED", "changed")
    assert scene.verdicts == [HAPPENED, DID_NOT]
    assert scene.moves == ["effect.confirmed", "effect.unknown", "effect.not_applied"]
