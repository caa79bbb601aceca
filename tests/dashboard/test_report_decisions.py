"""The report tells what people decided before an effect was sent, and whether the stop came first."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.reports.building import build
from effects import approvals, intents
from effects.drain import drain_run
from effects.models import Review
from effects.resume import resume
from runs.guard import Opened, Waiting
from runs.models import Run
from tests.worlds import World, fresh, intention

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


def ask_gate(world: World, run: Run, key: str, needed: int = 1) -> Any:
    new = intention(key, approvals=needed, title="Charge card", target=key)
    return intents.dispatch(world.ask(run, step_key=key), new)


def waiting(world: World, run: Run, key: str, needed: int = 1) -> Review:
    answer = ask_gate(world, run, key, needed)
    assert isinstance(answer, Waiting)
    return Review.objects.get(pk=answer.review.pk)


def approve(review: Review, by: Any) -> None:
    approvals.approve(actor=by, review_id=review.pk, digest=fresh(review).digest, signed_in_s=1)


def says(run: Run) -> dict[str, list[str]]:
    report = build(run.pk)
    told = {line.seq for line in report.evidence}
    for section in report.sections:
        for claim in section.claims:
            assert set(claim.lines) <= told, "each sentence leads to lines that the report holds"
    return {section.key: [claim.says for claim in section.claims] for section in report.sections}


def test_a_report_during_the_run_says_what_waits_for_whom(world: World) -> None:
    run = world.run()
    approve(waiting(world, run, "first", 2), world.bob)
    approve(waiting(world, run, "second"), world.bob)
    told = says(run)
    more = " ".join(told["more"])
    assert "“Charge card” (first) waits for people (1 of 2 have approved) until" in more
    assert "“Charge card” (second) is approved and may be sent until" in more
    assert "Decide about “Charge card” (first): approve or reject it under Reviews." in told["next"]
    assert not any("(second)" in claim for claim in told["next"])


def test_the_report_says_for_each_whether_it_was_decided_before_the_stop(world: World) -> None:
    run = world.run()
    sent, granted, asked, half, refused = (
        waiting(world, run, key, 2 if key == "half" else 1)
        for key in ("sent", "granted", "asked", "half", "no")
    )
    for review in (sent, granted, half):
        approve(review, world.bob)
    world.report(ask_gate(world, run, "sent"))
    approvals.reject(actor=world.bob, review_id=refused.pk, reason="wrong card")
    world.stop(run)
    approve(asked, world.carol)
    drain_run(run.pk)
    told = says(run)
    stopped = " ".join(told["stopped"])
    assert "“Charge card” (granted) was approved before the stop and had not been sent" in stopped
    assert "“Charge card” (asked) was not decided before the stop (nobody had approved)" in stopped
    assert "“Charge card” (half) was not decided before the stop (1 of 2 had approved)" in stopped
    assert "“Charge card” (no) was rejected by a reviewer and not sent." in stopped
    assert "1 approval came after the stop: kept as evidence, it starts nothing." in stopped
    done = " ".join(told["completed"])
    assert "“Charge card” (sent) was approved by 1 person before it was sent, at" in done
    assert "before the stop." in done
    assert not any("waits for people" in claim for claim in told["more"])
    assert not any("Decide about" in claim for claim in told["next"])


def test_a_pause_and_its_report_keep_the_question(world: World) -> None:
    run = world.run()
    review = waiting(world, run, "first")
    world.stop(run, mode="pause")
    drain_run(run.pk)
    assert "; the pause holds it. It is not sent before." in " ".join(says(run)["more"])
    approve(review, world.bob)
    assert "“Charge card” (first) is approved and may be sent until" in " ".join(says(run)["more"])
    resume(actor=world.alice, run_id=run.pk, reason="go on")
    opened = ask_gate(world, fresh(run), "first")
    assert isinstance(opened, Opened)
    world.report(opened)
    assert "was approved by 1 person before it was sent" in " ".join(says(run)["completed"])


def test_reviews_cost_a_report_one_question_more(world: World) -> None:
    run = world.run()
    counts = []
    for n in (0, 1, 20):
        for key in range(n):
            waiting(world, run, f"{n}:{key}")
        with CaptureQueriesContext(connection) as seen:
            build(run.pk)
        counts.append(len(seen))
    assert counts == [counts[0], counts[0] + 1, counts[0] + 1]
