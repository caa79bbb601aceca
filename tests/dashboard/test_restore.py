"""A restore: every gate is shut, nothing from before goes on, what was in flight is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import connection

from dashboard import backup, reports
from dashboard import restore as restoring
from dashboard.restore import Newer, NotEmpty, Restored, leaves, restore
from effects import resume as resuming
from effects import settle, stop_out
from effects.drain import drain_run
from effects.models import Effect
from effects.settle import Told
from runs import access, fanout, gate, gates, scopes
from runs.guard import Refusal
from runs.models import (
    Evidence,
    Press,
    Release,
    Restore,
    Role,
    Run,
    Session,
    StopRequest,
    Token,
    User,
    Workspace,
)
from runs.presses import Wish
from runs.scopes import Target
from tests.dashboard.scenes import browser
from tests.processes import Processes
from tests.wire import agent_of, kind_body
from tests.worlds import World, a_person, fresh, kinds_of, lapse

pytestmark = pytest.mark.django_db(transaction=True)
DUMPS = sorted((Path(__file__).parents[1] / "dumps").glob("*.jsonl.gz"))
LEAP = 1_000_000


@pytest.fixture(autouse=True)
def types_anew() -> Iterator[None]:
    """Django remembers numbers of models; those of a backup may be others."""
    yield
    ContentType.objects.clear_cache()


def schema() -> list[Any]:
    """The triggers, by name; and the tables with their columns."""
    by_vendor = {
        "sqlite": "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'",
        "postgresql": "SELECT tgrelid::regclass::text, tgname, tgenabled::text FROM pg_trigger"
        " WHERE NOT tgisinternal UNION ALL SELECT table_name, column_name, data_type"
        " FROM information_schema.columns WHERE table_schema = current_schema()",
    }
    with connection.cursor() as cursor:
        cursor.execute(by_vendor[connection.vendor])
        return sorted(cursor.fetchall())


def admin(workspace: Workspace) -> access.Actor:
    return access.person(a_person("erin", workspace, Role.ADMIN))


def open_gate(workspace: Workspace) -> None:
    gates.release(actor=admin(workspace), workspace_id=workspace.pk, reason="nothing is missing")


# --- A backup of an older release -------------------------------------------------------------------------


@pytest.mark.invariant("I30")
def test_the_oldest_dump_is_brought_to_today_and_its_drain_finished() -> None:
    today = schema()
    restored = restore(DUMPS[0])
    assert schema() == today
    assert (restored.tally.runs, restored.tally.paused, restored.tally.permits, restored.tally.effects) == (
        *(2, 1),
        *(2, 2),
    )
    run = Run.objects.get(key="stopping")
    stop = StopRequest.objects.get(run=run)
    assert (run.status, run.cancel_version, stop.closed_at) == ("CANCELLING", 2 + LEAP, None)
    assert [drain_run(run.pk) for _ in range(2)] == ["UNKNOWN"] * 2
    unknown = Effect.objects.get(run=run, settlement="UNKNOWN")
    assert unknown.permit is not None
    actor = access.agent(Token.objects.get(workspace=run.workspace))
    permit = unknown.permit
    told = settle.report(actor=actor, permit_id=permit.pk, token=permit.token, told=Told("applied"))
    assert told.late
    run, stop = fresh(run), fresh(stop)
    assert (run.status, stop.closed_because, stop.quiet_at is not None) == (
        *("CANCELLED", "its run is final"),
        True,
    )
    assert "run.restored" in kinds_of(run)


def test_a_backup_of_a_newer_release_is_refused() -> None:
    header = backup.check(DUMPS[0]).header
    assert {app for app, _ in leaves(header)} >= {"runs", "effects", "auth"}
    header.migrations.append(("runs", "9999_of_tomorrow"))
    with pytest.raises(Newer):
        leaves(header)


# --- A backup of today ------------------------------------------------------------------------------------


class Scene:
    """A run at work, with a permit in the hands of a real token; then a backup; then a stop, and its end."""

    def __init__(self, file: Path) -> None:
        self.world = World()
        self.agent = agent_of(self.world.workspace)
        self.agent.put("/kinds/bank.charge", kind_body(lookup=LOOKUP))
        self.run = self.agent.run()
        self.done = self.agent.permitted(self.run, "charge:1")["permit"]
        self.agent.report(self.done)
        self.held = self.agent.permitted(self.run, "charge:2")["permit"]
        self.claimed = self.agent.claimed(self.run, "next")
        self.paused = self.world.run("paused")
        self.world.stop(self.paused, mode="pause")
        drain_run(self.paused.pk)
        self.taken = backup.take(file, "1.0")
        self.lost = self.agent.stop(self.run).data

    def restored(self) -> Restored:
        return restore(self.taken.file, replace=True)


LOOKUP = {
    "url": "https://bank.example/charges?key={key}",
    "method": "GET",
    "present_if": {"status": 200},
    "key_path": "key",
    "absent_status": [404],
}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "one")


def command(file: Path, monkeypatch: pytest.MonkeyPatch, typed: str, **options: Any) -> str:
    """What the command says when this is typed."""
    said = StringIO()
    monkeypatch.setattr("sys.stdin", StringIO(typed))
    call_command("restore", str(file), stdout=said, **options)
    return said.getvalue()


def test_an_installation_is_replaced_only_when_that_is_asked_for_and_typed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotEmpty):
        restore(scene.taken.file)
    with pytest.raises(CommandError, match="holds an installation already"):
        command(scene.taken.file, monkeypatch, "replace\n")
    for typed in ("", "yes\n"):
        with pytest.raises(CommandError, match="Nothing was changed"):
            command(scene.taken.file, monkeypatch, typed, replace=True)
    assert StopRequest.objects.filter(pk=scene.lost["id"]).exists()
    assert Restore.objects.count() == 0
    said = command(scene.taken.file, monkeypatch, "replace\n", replace=True)
    assert not StopRequest.objects.filter(pk=scene.lost["id"]).exists()
    assert "A STOP THAT WAS ACKNOWLEDGED IN THAT TIME IS LOST" in said
    assert "BACK AGAIN: tokens that were revoked, people who were removed" in said
    assert "2 gates are shut, until an admin opens each." in said
    assert "1 permit is lost, 1 effect is unknown" in said


def test_a_restore_that_fails_on_its_way_leaves_everything_as_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kill of a real process stands in tests/kills/test_restore_killed.py."""
    before, today = rows_of(backup.take(tmp_path / "before", "1.0").file), schema()

    def fail(*_: object) -> None:
        assert Restore.objects.count() == 1, "nearly done"
        raise OSError("the disk is full")

    monkeypatch.setattr(restoring, "put_to_rest", fail)
    with pytest.raises(OSError, match="full"):
        scene.restored()
    after = rows_of(backup.take(tmp_path / "after", "1.0").file)
    assert (after == before, schema() == today) == (True, True)
    assert StopRequest.objects.filter(pk=scene.lost["id"]).exists()


@pytest.mark.invariant("I5")
def test_nothing_from_before_goes_on_and_a_late_report_still_counts(scene: Scene, tmp_path: Path) -> None:
    restored = scene.restored()
    run, paused = Run.objects.get(pk=scene.run["id"]), fresh(scene.paused)
    workspace = Workspace.objects.get(pk=run.workspace_id)
    assert not StopRequest.objects.filter(pk=scene.lost["id"]).exists(), "acknowledged after the backup: lost"
    # the stop had raised the version: it is given no second time
    assert (run.status, run.cancel_version) == ("PAUSED", scene.lost["version_after"] + LEAP)
    assert (paused.status, paused.cancel_version) == ("PAUSED", 2 + LEAP)
    stop = StopRequest.objects.get(workspace=workspace, scope="workspace")
    assert (workspace.gate, workspace.epoch, stop.mode, stop.via) == ("SHUT", 2, "pause", "restore")
    assert stop.released_at is None
    assert restored.tally.gates == list(StopRequest.objects.filter(scope="workspace").order_by("workspace"))

    # the worker from before, with its real token, permit and claim
    refused = scene.agent.effect(scene.run, "charge:3")
    assert (refused.status, refused.problem, refused.data["stop_id"]) == (409, "stopped", stop.pk)
    assert scene.agent.post("/runs", {"key": "new"}).problem == "stopped"
    assert scene.agent.look(scene.held).data["look"] == "ended"
    effect = Effect.objects.get(key="charge:2")
    assert (effect.settlement, effect.next_check_at is not None) == ("UNKNOWN", True)
    late = scene.agent.report(scene.held)
    assert (late.status, fresh(effect).settlement, fresh(effect).ground) == (200, "CONFIRMED", "reported")
    assert {"run.restored", "permit.lost", "permit.reported_late", "effect.confirmed"} <= set(kinds_of(run))

    # an admin opens, an operator resumes; at its old version the worker stays refused
    early = resuming.resume(actor=scene.world.alice, run_id=run.pk, reason="too early")
    assert isinstance(early, resuming.NotResumed)
    open_gate(workspace)
    resumed = resuming.resume(actor=scene.world.alice, run_id=run.pk, reason="all is known")
    assert isinstance(resumed, resuming.Resumed)
    stale = scene.agent.effect(scene.run, "charge:3")
    assert (stale.status, stale.problem) == (409, "stale-version")
    now = {"cancel_version": resumed.run.cancel_version}
    assert scene.agent.effect({**scene.run, **now}, "charge:3").status == 201
    assert scene.agent.effect({**scene.run, **now}, "charge:1").data["known"] == "settled"


def test_every_row_comes_back_and_numbers_go_on(scene: Scene, tmp_path: Path) -> None:
    before = backup.check(scene.taken.file)
    scene.restored()
    again = backup.take(tmp_path / "two", "1.0")
    grown = {table: again.rows[table] - number for table, number in before.rows.items()}
    assert {table: more for table, more in grown.items() if more} == {
        "dashboard.notice": 2,  # of the gates that it shut
        "runs.evidence": 12,
        "runs.evidencepayload": 9,
        "runs.halt": 2,  # of each gate
        "runs.restore": 1,
        "runs.stoprequest": 2,
        "runs.stopcounter": 1,
    }
    same = set(rows_of(scene.taken.file)) & set(rows_of(again.file))
    untouched = ("runs.user", "runs.token", "runs.press", "runs.evidence", "runs.membership")
    assert {row for row in rows_of(scene.taken.file) if row[0] in untouched} <= same
    assert Press.objects.get().stop.run_id == scene.paused.pk
    newcomer = a_person("frank")
    assert newcomer.pk == max(User.objects.values_list("pk", flat=True))
    assert World().run().status == "ACTIVE"


def rows_of(file: Path) -> list[tuple[str, str]]:
    return [(batch.table, str(row)) for batch in backup.batches(file) for row in batch.rows]


def test_the_same_backup_twice_gives_no_version_and_no_epoch_twice(scene: Scene) -> None:
    scene.restored()
    workspace = Workspace.objects.get(pk=scene.world.workspace.pk)
    open_gate(workspace)
    run = Run.objects.get(pk=scene.run["id"])
    permit = {"claim_token": scene.held["claim_token"], "id": scene.held["id"]}
    scene.agent.report(permit)
    first = resuming.resume(actor=scene.world.alice, run_id=run.pk, reason="all is known")
    assert isinstance(first, resuming.Resumed)
    seen = {"cancel_version": first.run.cancel_version}
    scene.restored()
    workspace.refresh_from_db()
    assert (workspace.gate, workspace.epoch) == ("SHUT", 3)
    assert fresh(run).cancel_version == first.run.cancel_version + LEAP
    assert scene.agent.effect({**scene.run, **seen}, "charge:3").problem == "stopped"


@pytest.mark.parametrize(("mode", "then"), [("pause", "PAUSED"), ("cancel", "CANCELLING")])
def test_a_stop_that_stood_before_is_superseded_and_what_it_had_not_reached_is_stopped_in_its_mode(
    mode: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    run = world.run()
    child = world.run("child", parent=run.pk)
    wish = Wish(note="quarter end", mode=mode, requested_mode=mode)
    with monkeypatch.context() as died:
        died.setattr(fanout, "fence", lambda *args, **named: False)
        earlier = gates.shut(actor=world.alice, workspace_id=world.workspace.pk, wish=wish).stop
    session = Session.objects.create(workspace=world.workspace, key="nightly")
    beside = scopes.request_scope_stop(
        actor=world.alice, wish=wish, target=Target("session", session.pk)
    ).stop
    wanted = Release.objects.create(stop=beside, asked_by=world.bob.id, reason="before the backup")
    taken = backup.take(tmp_path / "one", "1.0")
    restore(taken.file, replace=True)
    stop = gates.standing(world.workspace.pk).stop
    assert stop is not None
    assert fresh(beside).superseded_by is None, "it stands"
    assert Release.objects.get(pk=wanted.pk).void_at is not None, "what was decided since is not known here"
    earlier = fresh(earlier)
    assert (earlier.superseded_by_id, earlier.closed_because) == (stop.pk, "superseded")
    assert (fresh(run).status, fresh(child).status) == ("PAUSED", "PAUSED")
    assert "stop.has_children" not in kinds_of(run), "a restore reaches each run by itself"
    assert (stop.mode, stop.fenced_at is None) == (mode, mode == "cancel")
    said = stop_out.one(stop.pk)["sentence"]
    assert said.endswith("held by the restore." if mode == "pause" else "0 of 2 runs are stopped so far.")
    fanout.fence(stop.pk)
    assert (fresh(run).status, fresh(child).status) == (then, then)
    assert isinstance(gate.claim(world.ask(fresh(run), step_key="a")), Refusal)
    lines = Evidence.objects.filter(stream=world.workspace.pk, stop_id__in=[stop.pk, earlier.pk])
    kinds = list(lines.order_by("seq").values_list("kind", flat=True))
    assert kinds[:5] == [
        *("gate.shut", "compensations.halted"),
        *("backup.restored", "gate.shut", "stop.superseded"),
    ]
    open_gate(world.workspace)
    assert not gates.standing(world.workspace.pk).shut


def test_a_report_from_before_has_a_note_above_it_and_the_next_version_says_it_itself(tmp_path: Path) -> None:
    world = World()
    run = world.run()
    opened = world.opened(run)
    world.stop(run)
    lapse(opened.permit, opened.step)
    assert drain_run(run.pk) == "UNKNOWN"
    first = reports.issue(run.pk)
    assert first is not None
    taken = backup.take(tmp_path / "one", "1.0")
    restore(taken.file, replace=True)
    alice, note = browser(world.alice), "Restored from a backup taken"
    above = f'<p class="note note-unknown">{note}'
    assert above in alice.get(f"/runs/{run.pk}/report?version=1").content.decode()
    assert reports.read(run.pk, 1)["issue"]["missing"].startswith(note)
    second = reports.issue(run.pk)
    assert second is not None
    assert (second.version, note in second.body, note in first.body) == (2, True, False)
    assert above not in alice.get(f"/runs/{run.pk}/report?version=2").content.decode()


@pytest.mark.long
@pytest.mark.only("postgresql")
def test_a_backup_of_postgresql_is_restored_on_sqlite(scene: Scene, tmp_path: Path) -> None:
    processes = Processes(tmp_path, f"sqlite:///{tmp_path}/allstop.sqlite3")
    try:
        assert "2 gates are shut" in processes.manage("restore", str(scene.taken.file))
        processes.manage("backup", str(tmp_path / "two"))
    finally:
        processes.end()
    before, after = set(rows_of(scene.taken.file)), set(rows_of(tmp_path / "two"))
    kept = {
        row
        for row in before
        if row[0] in ("runs.evidence", "runs.evidencepayload", "runs.user", "runs.token")
    }
    assert len(kept) > 30
    assert kept <= after
