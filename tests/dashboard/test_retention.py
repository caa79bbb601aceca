"""What rules let go is gone; what is open, issued or sealed stays, and the chain stays as it was."""

from __future__ import annotations

import io
from datetime import datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard import retention
from dashboard.verify import verify_all
from effects.models import Attachment, Report
from runs import rules
from runs.access import SET_UP
from runs.evidence import Line, record, seal_stream
from runs.models import Evidence, EvidencePayload, Refusal, Run, Turn
from runs.rules import Retention, Rules
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)
LATER = timedelta(days=31)
ALL_30 = Retention(evidence=30, attachments=30, turns=30, refusals=30, webhooks=30, notices=30)


@pytest.fixture
def world() -> World:
    return World()


def allow(world: World, kept: Retention) -> None:
    now = rules.standing(world.workspace.pk)
    wanted = Rules.model_validate({**now.rules.kept, "retention": kept.model_dump()})
    rules.change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=now.version, rules=wanted)


def ended(world: World, key: str, outcome: str = "applied") -> Run:
    """A run that a stop ended, with an effect whose outcome is this."""
    run = world.run(key)
    opened = world.opened(run, f"{key}:1")
    world.stop(run, note="why it was stopped")
    world.report(opened, outcome, detail="what the bank said")
    world.refused(run, f"{key}:2")
    seal_stream(run.pk)
    return Run.objects.get(pk=run.pk)


def soon() -> datetime:
    return timezone.now() + LATER


def everything(world: World) -> dict[str, int]:
    return {one.name: one.rows for one in retention.due(world.workspace.pk, soon())}


def test_by_default_all_is_kept(world: World) -> None:
    ended(world, "paid")
    assert set(everything(world).values()) == {0}
    assert list(retention.apply(world.workspace.pk, soon())) == []


def test_bodies_of_a_settled_run_go_and_the_chain_stays(world: World) -> None:
    run, unknown = ended(world, "paid"), ended(world, "lost", "unknown")
    running = world.run("running")
    record_something(running)
    allow(world, ALL_30)
    assert run.status == "CANCELLED"
    mine, others = bodies(run), bodies(unknown) + bodies(running)
    reports = list(Report.objects.values_list("body", "digest"))
    lines = list(Evidence.objects.filter(stream=run.pk).values())
    assert mine
    assert others
    assert everything(world)["evidence"] >= len(mine)
    told = list(retention.apply(world.workspace.pk, soon(), most=2))
    assert len([name for name, _ in told if name == "evidence"]) > 1
    assert bodies(run) == []
    assert bodies(unknown) + bodies(running) == others
    assert list(Evidence.objects.filter(stream=run.pk).values()) == lines
    assert list(Report.objects.values_list("body", "digest")) == reports
    gone = EvidencePayload.objects.filter(stream=run.pk).first()
    assert gone is not None
    assert gone.removed_at is not None
    assert gone.removed_under == "rules 1: bodies of evidence lines kept 30 days"
    seal_stream(world.workspace.pk)
    verdicts = list(verify_all())
    assert all(verdict.intact for verdict in verdicts), [verdict.breaks for verdict in verdicts]
    assert sum(verdict.removed for verdict in verdicts) >= len(mine)
    assert everything(world)["evidence"] == 0


def record_something(run: Run) -> None:
    with transaction.atomic():
        record(run, Line("run.noted", SET_UP.id, {"note": "it runs"}))


def bodies(run: Run) -> list[str]:
    return list(EvidencePayload.objects.filter(stream=run.pk).exclude(body="").values_list("body", flat=True))


def test_what_was_refused_goes_with_its_run_only(world: World) -> None:
    ended(world, "paid")
    ended(world, "lost", "unknown")
    allow(world, Retention(refusals=30))
    assert list(retention.apply(world.workspace.pk, soon())) == [("refusals", 1)]
    assert [refusal.run and refusal.run.key for refusal in Refusal.objects.all()] == ["lost"]


def test_before_its_time_nothing_goes_and_nothing_of_another_workspace(world: World) -> None:
    run = ended(world, "paid")
    allow(world, ALL_30)
    assert list(retention.apply(world.workspace.pk, timezone.now() + timedelta(days=29))) == []
    assert list(retention.apply(world.elsewhere.pk, soon())) == []
    assert bodies(run)


def test_a_pass_asks_a_few_times_a_batch_however_much_there_is(world: World) -> None:
    for number in range(6):
        ended(world, f"paid-{number}")
    allow(world, ALL_30)
    with CaptureQueriesContext(connection) as seen:
        list(retention.apply(world.workspace.pk, soon()))
    assert len(seen) <= 80


def test_an_attachment_is_emptied_by_a_rule_and_never_changed_otherwise(world: World) -> None:
    run = ended(world, "paid")
    assert world.alice.user is not None
    named = {"workspace": world.workspace, "run": run, "matter": "effect", "subject_id": "eff_x"}
    made = Attachment.objects.create(
        **named, form="quote", text="it is there", digest="d", person=world.alice.user
    )
    for change in ({"text": "another"}, {"digest": "x"}, {"text": "", "content": b""}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Attachment.objects.filter(pk=made.pk).update(**change)
    allow(world, Retention(attachments=30))
    assert list(retention.apply(world.workspace.pk, soon())) == [("attachments", 1)]
    made.refresh_from_db()
    assert (made.text, made.digest, made.removed_under is None) == ("", "d", False)


def test_the_command_counts_first_and_then_lets_go(world: World) -> None:
    ended(world, "paid")
    said = io.StringIO()
    call_command("retention", dry_run=True, stdout=said)
    assert f"{world.workspace.slug}: refusals: kept for good" in said.getvalue()
    assert Refusal.objects.exists()
    allow(world, Retention(refusals=30))
    call_command("retention", apply=True, workspace=world.workspace.slug, stdout=said)
    assert f"{world.workspace.slug}: nothing had to go" in said.getvalue()
    assert Refusal.objects.exists()
    assert not Turn.objects.exists()
