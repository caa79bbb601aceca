"""What goes to the workspaces' streams beside what verbs change: counted, bounded, in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from dashboard.verify import verify
from runs import audit, evidence, tasks
from runs.access import DRILLS
from runs.models import AuditNote, Evidence, EvidencePayload, Installation, Membership, Press, Workspace
from runs.store import after
from tests.worlds import World, a_person, a_workspace

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    audit.held.forget()
    yield
    audit.held.forget()


def a_pass() -> None:
    """What the task does, on the test's own connection."""
    audit.take_presses()
    tasks.each(audit.place, audit.unplaced())
    tasks.each(audit.write, audit.due())
    audit.forget()


def written(stream: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Kind, actor and body of the lines that a pass put down, without their moments."""
    a_pass()
    bodies = {one.seq: json.loads(one.body) for one in EvidencePayload.objects.filter(stream=stream)}
    rows = Evidence.objects.filter(stream=stream).order_by("seq")
    told = [(row.kind, row.actor, bodies.get(row.seq, {})) for row in rows]
    return [(kind, who, {k: v for k, v in body.items() if not k.endswith("_at")}) for kind, who, body in told]


def refuse(who: str, stream: str, at: str = "rules") -> None:
    audit.note("access.refused", who, stream=stream, answer=403, at=at)


def test_the_same_refusal_again_is_a_count_and_not_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    space = a_workspace().pk
    for _ in range(50):
        refuse("user:1", space)
    refuse("user:2", space)
    assert AuditNote.objects.count() == 2, "a flood of one process is counted in it, and put down later"
    monkeypatch.setattr(audit, "QUIET_S", 0)
    audit.flush()
    body = {"answer": 403, "at": "rules"}
    lines = [
        ("access.refused", "user:1", body | {"times": 50}),
        ("access.refused", "user:2", body | {"times": 1}),
    ]
    assert written(space) == lines
    refuse("user:1", space)
    assert written(space) == lines, "within the hour it is only counted"
    AuditNote.objects.update(written_at=after(-3_601))
    assert written(space) == [*lines, ("access.refused", "user:1", body | {"times": 51})]


def test_a_mark_takes_no_lock_that_a_stop_needs() -> None:
    space = a_workspace().pk
    with CaptureQueriesContext(connection) as asked:
        refuse("user:1", space)
    said = [one["sql"].lower() for one in asked.captured_queries]
    assert any("runs_auditnote" in sql for sql in said)
    assert not [sql for sql in said if "for no key update" in sql or "for update" in sql]
    assert not [sql for sql in said if '"runs_workspace"' in sql or '"runs_run"' in sql]


def test_what_people_did_has_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "QUIET_S", 0)
    space = a_workspace().pk
    for times in (1, 2):
        audit.note("export.made", "user:1", stream=space)
        audit.note("access.refused", "user:1", stream=space)
        kinds = [kind for kind, _, _ in written(space)]
        assert kinds == ["export.made", "access.refused", "export.made"][: times + 1]
        AuditNote.objects.update(written_at=after(-61))


def test_what_happens_again_no_more_is_forgotten_and_not_before_it_is_written() -> None:
    space = a_workspace().pk
    refuse("user:1", space)
    assert audit.forget() == 0
    assert len(written(space)) == 1
    AuditNote.objects.update(written_at=after(-3_601))
    assert audit.forget() == 1
    assert len(written(space)) == 1


def test_a_flood_of_different_ones_fills_neither_table_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "ROWS_MOST", 5)
    space, other = a_workspace().pk, a_workspace("Other").pk
    for number in range(40):
        refuse(f"user:{number}", space)
    refuse("user:1", other)
    assert AuditNote.objects.filter(stream=space).count() == 6
    told = written(space)
    assert [kind for kind, _, _ in told] == ["access.refused"] * 5 + ["audit.more"]
    assert audit.held.counts == {audit.Mark("audit.more", "nobody", space): 34} or told[-1][2]["times"] == 35
    assert len(written(other)) == 1, "another workspace has its own room"
    monkeypatch.setattr(audit, "HELD_MOST", 3)
    for number in range(9):
        audit.held.add(audit.Mark("access.refused", f"user:{number}"))
    assert len(audit.held.counts) <= 5


def test_lines_are_written_a_few_under_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AT_ONCE", 2)
    space = a_workspace().pk
    for number in range(5):
        refuse(f"user:{number}", space)
    assert [len(written(space)) for _ in range(4)] == [2, 4, 5, 5]
    evidence.seal_stream(space)
    assert verify(space).intact


def test_a_store_that_does_not_answer_refuses_nobody_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = a_workspace().pk

    def down(*_: Any) -> None:
        raise DatabaseError

    with monkeypatch.context() as broken:
        broken.setattr(audit, "keep", down)
        refuse("user:1", space)
    assert AuditNote.objects.count() == 0
    monkeypatch.setattr(audit, "QUIET_S", 0)
    refuse("user:2", space)
    assert {who for _, who, _ in written(space)} == {"user:1", "user:2"}


def test_what_a_person_does_goes_to_all_of_their_workspaces_or_to_the_installation() -> None:
    one, two, drills = a_workspace("One"), a_workspace("Two"), Workspace.objects.create(slug=DRILLS)
    erin = a_person("erin", one)
    Membership.objects.create(user=erin, workspace=two, role="viewer")
    Membership.objects.create(user=erin, workspace=drills, role="viewer")
    alone = a_person("alone")
    for person in (erin, alone):
        audit.note("person.signed_in", f"user:{person.pk}", person=person.pk)
    audit.note("person.sign_in_failed", audit.NOBODY, person=erin.pk)
    audit.note("person.sign_in_failed", audit.NOBODY)
    mine = [
        ("person.signed_in", f"user:{erin.pk}", {"times": 1}),
        ("person.sign_in_failed", "nobody", {"times": 1, "person": f"user:{erin.pk}"}),
    ]
    assert (written(one.pk), written(two.pk), written(drills.pk)) == (mine, mine, [])
    assert written(audit.INSTALLATION) == [
        ("person.signed_in", f"user:{alone.pk}", {"times": 1}),
        ("person.sign_in_failed", "nobody", {"times": 1}),
    ]
    assert evidence.seal_stream(audit.INSTALLATION) is not None
    assert verify(audit.INSTALLATION).intact


def test_stops_of_single_runs_are_noted_afterwards_and_never_in_their_transaction() -> None:
    world = World()
    run = world.run()
    with CaptureQueriesContext(connection) as asked:
        stop = world.stop(run).stop
    assert asked.captured_queries
    assert not [sql for sql in asked.captured_queries if "auditnote" in sql["sql"].lower()]
    space = world.workspace.pk
    before = len(Evidence.objects.filter(stream=space))
    told = written(space)[before:]
    assert [(kind, who, body["run"], body["times"]) for kind, who, body in told] == [
        ("stop.noted", world.alice.id, run.pk, 1)
    ]
    assert Evidence.objects.filter(stream=space, kind="stop.noted").get().stop_id == stop.pk
    assert len(written(space)) == before + 1, "looked at again, noted once"
    AuditNote.objects.update(written_at=after(-3_601))
    Press.objects.update(at=after(-3_700))
    assert audit.forget() > 0
    assert len(written(space)) == before + 1, "nor once more when its note was forgotten"
    world.stop(run, by=world.bob)
    again = [(kind, who) for kind, who, _ in written(space)[before + 1 :]]
    assert again == [("stop.noted", world.bob.id)], "another's press is told, the first is not told again"
    assert Installation.objects.get().pressed_upto == Press.objects.order_by("-pk")[0].pk
