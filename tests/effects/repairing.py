"""An approved refund at a real bank, and what carries it out, for tests of compensations that are sent."""

from __future__ import annotations

from typing import Any

from effects import reconcile, repair, settle
from effects.models import Compensation, Effect, Review
from effects.reconcile import Answer
from effects.settle import Reported, Told
from runs.access import EXECUTOR, Actor
from runs.guard import Opened
from runs.models import Permit, Run
from tests.effects.compensations import REFUND, allow, approve, brought_to, charged, proposed, said
from tests.provider import Provider
from tests.worlds import World, a_kind, fresh, in_seconds


def with_refunds(world: World, url: str = "https://bank.example", **refund: Any) -> World:
    """Charges and refunds that our executor sends to this bank; one approval permits a refund."""
    at: dict[str, Any] = {"send": {"url": f"{url}/charges"}, "lookup": {"url": f"{url}/charges?key={{key}}"}}
    a_kind(world.workspace, provider="http", **at)
    mine = {"send": {"url": f"{url}/refunds"}, "lookup": {"url": f"{url}/refunds?key={{key}}"}}
    a_kind(world.workspace, "bank.refund", provider="http", **{**mine, "settle_window_s": 0, **refund})
    allow(world)
    return world


def at_the_bank(bank: Provider, **refund: Any) -> World:
    return with_refunds(World(), bank.url, **refund)


def a_proposal(
    world: World, status: str = "COMPLETED", run: Run | None = None, **fields: Any
) -> Compensation:
    """A refund that Alice proposed, of a charge whose run has come to rest in this status."""
    run = run or world.run()
    effect = charged(world, run, **{"plan": REFUND, **fields})
    brought_to(world, run, status)
    return proposed(fresh(effect), world.alice)


def approved(
    world: World, status: str = "COMPLETED", by: Actor | None = None, run: Run | None = None, **fields: Any
) -> Compensation:
    """The same, approved by Bob."""
    made = a_proposal(world, status, run, **fields)
    assert said(approve(made, by or world.bob)) == "granted"
    return fresh(made)


def ask(compensation: Compensation) -> Any:
    """What the gate says to our executor, as it asks."""
    return repair.dispatch(repair._ask_for(compensation), compensation)


def dispatched(compensation: Compensation) -> Permit:
    """The permit that the gate gives for it."""
    answer = ask(compensation)
    assert isinstance(answer, Opened), answer
    return answer.permit


def report(permit: Permit, outcome: str, **told: Any) -> Reported:
    return settle.report(actor=EXECUTOR, permit_id=permit.pk, token=permit.token, told=Told(outcome, **told))


def fall_due(compensation: Compensation) -> Compensation:
    """Its next look-up is due now."""
    rows = Compensation.objects.filter(pk=compensation.pk, next_check_at__isnull=False)
    rows.update(next_check_at=in_seconds(-1))
    return compensation


def checked(compensation: Compensation) -> str | None:
    return repair.check(fall_due(compensation).pk)


def state_of(compensation: Compensation) -> str:
    return str(fresh(compensation).state)


def open_reviews(compensation: Compensation) -> int:
    return Review.objects.filter(subject_id=compensation.pk, closed_at__isnull=True).count()


def in_doubt(effect: Effect) -> None:
    """A look-up speaks against what its holder reported."""
    assert reconcile.apply_answer(effect.pk, Answer("partial", items=["half of it"])) == "UNKNOWN"
