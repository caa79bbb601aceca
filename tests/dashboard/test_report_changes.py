"""What changed since version n: sentences made from two versions, each with the lines that it stands on."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from dashboard import reports
from effects.drain import drain_run
from effects.models import Effect
from runs.evidence import Line, record
from runs.models import Evidence, Run
from tests.dashboard.report_scenes import awaiting_verification, failed, not_ended
from tests.worlds import World, a_compensation, fresh

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def w() -> World:
    return World()


def changes(run: Run) -> dict[str, Any]:
    assert reports.issue(run.pk) is not None
    told = reports.read(run.pk)
    claims = told["changes"]["claims"] if told["changes"] else []
    assert all(Evidence.objects.filter(stream=run.pk, seq=n).exists() for one in claims for n in one["lines"])
    return {" ".join(filter(None, (one["lead"], one["text"]))): one["lines"] for one in claims}


def test_the_first_version_has_nothing_before_it(w: World) -> None:
    run = not_ended(w)
    reports.issue(run.pk)
    assert reports.read(run.pk)["changes"] is None


def test_a_late_answer_is_told_with_what_it_was_and_its_lines(w: World) -> None:
    run = w.run()
    opened = w.opened(run, "charge:1")
    w.report(opened, "unknown", detail="timeout")
    w.stop(run)
    drain_run(run.pk)
    assert fresh(run).status == "UNKNOWN"
    reports.issue(run.pk)
    w.report(opened, "applied", provider_ref="ch_9")
    said = changes(run)
    effect = Effect.objects.get(run=run)
    line = Evidence.objects.get(stream=run.pk, kind="effect.confirmed").seq
    (about,) = [text for text in said if "It was awaiting verification; it is confirmed." in text]
    assert effect.title in about
    assert "Reported by its worker: ch_9" in about
    assert said[about] == [line]
    assert "Outcome. It was “awaiting verification”; it is “partially completed”." in said
    assert reports.read(run.pk)["changes"]["since"] == 1
    ended = Evidence.objects.get(stream=run.pk, kind="run.cancelled").seq
    assert said["Outcome. It was “awaiting verification”; it is “partially completed”."] == [ended]


def test_a_stronger_stop_is_told(w: World) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    w.stop(run, by=w.bob, mode="abandon")
    said = changes(run)
    assert any(text.startswith("A stop came. Stop #") and text.endswith("mode abandon.") for text in said)
    assert "Outcome. It was “awaiting verification”; it is “abandoned”." in said
    assert any("“Will the system do anything more?”" in text for text in said)


def test_a_compensation_that_was_proposed_since_is_told(w: World) -> None:
    run = w.run()
    w.report(w.opened(run))
    w.stop(run)
    drain_run(run.pk)
    reports.issue(run.pk)
    a_compensation(Effect.objects.get(run=run), "PROPOSED", title="Refund", key="refund:1")
    with transaction.atomic():
        line = record(run, Line("compensation.proposed", w.bob.id, effect_key="charge:7"))
    said = changes(run)
    assert any("“Refund”" in text and "is new: waiting." in text for text in said)
    assert line


def test_what_stayed_as_it_was_is_not_told(w: World) -> None:
    run = failed(w)
    reports.issue(run.pk)
    w.stop(run, by=w.bob)
    said = changes(run)
    assert any(text.startswith("A stop came.") for text in said)
    assert not any("It was" in text for text in said)
