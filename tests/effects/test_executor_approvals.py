"""What our own executor sends waits for people too: the ledger shows that nothing left before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from effects import approvals, executor, queue, tasks
from effects.models import Approval, Effect, Review, Settlement
from runs import access, rules
from runs.models import Run, StepStatus
from runs.rules import ApprovalRule, Rules
from tests.effects.sending import at_the_bank, queued, stands
from tests.provider import Provider
from tests.worlds import World, fresh, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def world(bank: Provider) -> World:
    world = at_the_bank(bank)
    wanted = Rules(approvals=(ApprovalRule(kind="bank.charge"),))
    rules.change_rules(actor=access.SET_UP, workspace_id=world.workspace.pk, version=0, rules=wanted)
    return world


@pytest.fixture
def run(world: World) -> Run:
    return world.run()


def waiting(world: World, run: Run) -> tuple[Effect, Review]:
    effect = queued(world, run)
    assert executor.execute(effect.pk) == "not dispatched"
    assert stands(effect) == (Settlement.DECLARED, StepStatus.WAITING_APPROVAL)
    return effect, Review.objects.get(effect=effect)


def test_a_rule_holds_what_we_send_until_a_person_approves_it(bank: Provider, world: World, run: Run) -> None:
    effect, review = waiting(world, run)
    assert executor.execute(effect.pk) == "nothing to do"
    assert queue.waiting() == []
    assert bank.ledger.lines("request") == []
    assert (review.asked_by, review.asked_because) == (world.agent.id, "rules"), "its agent asked, not we"
    approvals.approve(actor=world.bob, review_id=review.pk, digest=review.digest, signed_in_s=1)
    assert executor.execute(effect.pk) == "applied"
    assert [line["key"] for line in bank.ledger.lines("request")] == ["charge:7"]
    assert Approval.objects.get().state == "CONSUMED"
    assert stands(effect) == (Settlement.CONFIRMED, StepStatus.SUCCEEDED)


@pytest.mark.invariant("I14")
def test_what_was_read_before_the_gate_is_sent_only_as_it_was_approved(
    bank: Provider, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kind named another address when we read it; people approved this one meanwhile."""
    effect, review = waiting(world, run)
    approvals.approve(actor=world.bob, review_id=review.pk, digest=review.digest, signed_in_s=1)
    read = executor._queued

    def before(effect_id: str) -> Effect | None:
        found = read(effect_id)
        assert found is not None
        assert found.kind is not None
        found.kind.send = {"url": f"{bank.url}/elsewhere"}
        return found

    monkeypatch.setattr(executor, "_queued", before)
    assert executor.execute(effect.pk) == "not_sent"
    assert bank.ledger.lines("request") == []
    assert (fresh(effect).settlement, Approval.objects.get().state) == ("DECLARED", "CONSUMED")
    monkeypatch.setattr(executor, "_queued", read)
    assert executor.execute(effect.pk) == "not dispatched", "people are asked anew"


def test_what_people_rejected_is_taken_off_the_queue(bank: Provider, world: World, run: Run) -> None:
    effect, review = waiting(world, run)
    approvals.reject(actor=world.bob, review_id=review.pk, reason="wrong card")
    assert executor.execute(effect.pk) == "refused"
    assert fresh(effect).queued_at is None
    assert bank.ledger.lines("request") == []


def test_the_sweep_closes_what_nobody_decided_in_time(bank: Provider, world: World, run: Run) -> None:
    effect, review = waiting(world, run)
    Review.objects.filter(pk=review.pk).update(expires_at=in_seconds(-1))
    tasks.sweep()
    assert fresh(review).closed_as == "expired"
    assert stands(effect) == (Settlement.DECLARED, StepStatus.WITHHELD)
    assert bank.ledger.lines("request") == []
