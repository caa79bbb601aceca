"""Statements: heads of evidence, signed with a key that is not in the database, or said to be unsigned."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.db import DatabaseError, transaction
from pytest_django.fixtures import Settings

from dashboard import reports
from dashboard.models import SealKey, Statement
from dashboard.statements import due_days, making, told
from dashboard.statements.rotation import public_keys, rotate
from dashboard.statements.signing import key_id
from effects.models import Report
from runs import keyring
from runs.evidence import canonical, digest, seal_stream
from runs.models import Run, Seal
from runs.store import database_time
from tests.dashboard.report_scenes import awaiting_verification, completed
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(tmp_path: Path, settings: Settings) -> Path:
    """A folder of keys of its own."""
    settings.ALLSTOP_KEYS = tmp_path
    keyring.prepare(tmp_path)
    return tmp_path


@pytest.fixture
def world() -> World:
    return World()


def is_signed(text: str, signature: str, public: str) -> bool:
    """Asked of another implementation than the one in a pack."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public))
        key.verify(base64.b64decode(signature), text.encode())
    except InvalidSignature:
        return False
    return True


def issued(world: World) -> tuple[Run, Report, Statement]:
    run = awaiting_verification(world)
    reports.issue(run.pk)
    report = Report.objects.get(run=run)
    return run, report, Statement.objects.get(report=report)


# --- Of a report ----------------------------------------------------------------------------------------


@pytest.mark.invariant("I26")
def test_each_issued_version_has_a_signed_statement_of_its_digest_and_its_head(
    world: World, place: Path
) -> None:
    run, report, row = issued(world)
    said = json.loads(row.body)
    key = SealKey.objects.get()
    sealed = Seal.objects.get(stream=run.pk, upto_seq=report.upto_seq)
    assert said == {
        "format": "allstop.statement/1",
        "kind": "report",
        "installation": f"ins_{key.pk}",
        "key": key.pk,
        "at": report.issued_at.isoformat(),
        "workspace": run.workspace_id,
        "streams": [{"stream": run.pk, "upto_seq": report.upto_seq, "head": sealed.head}],
        "report": {"id": report.pk, "run": run.pk, "version": 1, "digest": report.digest},
    }
    assert row.body == canonical(said)
    assert is_signed(row.body, row.signature, key.public)
    assert not is_signed(row.body.replace('"version":1', '"version":2'), row.signature, key.public)
    assert key.pk == key_id(base64.b64decode(key.public))
    assert told(row).envelope == {"statement": row.body, "signature": row.signature, "public": key.public}


def test_the_private_key_stands_in_no_row(world: World, place: Path) -> None:
    issued(world)
    seed = keyring.read(keyring.SEAL)
    rows = repr([*SealKey.objects.values(), *Statement.objects.values()])
    assert SealKey.objects.get().public in rows
    assert seed.hex() not in rows
    assert base64.b64encode(seed).decode() not in rows


def test_without_a_key_a_report_is_issued_and_its_statement_says_that_it_is_not_signed(
    world: World, place: Path
) -> None:
    (place / keyring.SEAL).unlink()
    _, report, row = issued(world)
    assert report.version == 1
    assert row.unsigned == "not signed: seal.key can't be read (No such file or directory)"
    assert (row.key, row.signature, SealKey.objects.count()) == ("", "", 0)
    assert told(row).envelope["unsigned"] == row.unsigned


def test_a_report_that_is_not_kept_leaves_no_statement(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = awaiting_verification(world)
    monkeypatch.setattr(reports.versions, "record", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reports.issue(run.pk)
    assert (Report.objects.count(), Statement.objects.count()) == (0, 0)


@pytest.mark.invariant("I26")
@pytest.mark.parametrize("table", [Statement, SealKey])
def test_nothing_that_was_signed_and_no_key_is_changed_or_deleted(
    world: World, place: Path, table: type[Statement] | type[SealKey]
) -> None:
    issued(world)
    with pytest.raises(DatabaseError, match="is append-only"), transaction.atomic():
        table.objects.update(signature="x")
    with pytest.raises(DatabaseError, match="is append-only"), transaction.atomic():
        table.objects.all().delete()
    assert table.objects.count() == 1


# --- Of a day -------------------------------------------------------------------------------------------


def heads_in(row: Statement) -> dict[str, int]:
    return {named["stream"]: named["upto_seq"] for named in json.loads(row.body)["streams"]}


@pytest.mark.invariant("I26")
def test_a_workspace_has_one_statement_a_day_of_every_stream_in_it(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = World().run("foreign")
    runs = [world.run(f"run-{number}") for number in range(3)]
    assert world.workspace.pk in due_days()
    assert making.make_day(world.workspace.pk) == []  # nothing is sealed yet
    for stream in (world.workspace.pk, foreign.pk, *(run.pk for run in runs)):
        seal_stream(stream)
    (row,) = making.make_day(world.workspace.pk)
    assert set(heads_in(row)) == {world.workspace.pk, *(run.pk for run in runs)}
    assert is_signed(row.body, row.signature, SealKey.objects.get().public)
    assert (row.day, row.part, json.loads(row.body)["before"]) == (row.at.date(), 1, "")
    assert world.workspace.pk not in due_days()
    assert making.make_day(world.workspace.pk) == []
    assert Statement.objects.count() == 1
    for workspace_id in due_days():
        making.make_day(workspace_id)
    assert {row.workspace_id for row in Statement.objects.all()} == {row.workspace_id, foreign.workspace_id}
    assert Statement.objects.count() == 2


def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = database_time() + timedelta(days=1)
    monkeypatch.setattr(making, "database_time", lambda: now)


@pytest.mark.invariant("I26")
def test_the_next_day_names_what_is_new_in_parts_and_vouches_for_all_before(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [world.run(f"run-{number}") for number in range(3)]
    for run in runs:
        seal_stream(run.pk)
    (first,) = making.make_day(world.workspace.pk)
    tomorrow(monkeypatch)
    monkeypatch.setattr(making, "MARGIN", timedelta(0))
    monkeypatch.setattr(making, "STREAMS", 1)
    for run in runs[:2]:
        world.stop(run)
        seal_stream(run.pk)
    second = making.make_day(world.workspace.pk)
    assert [set(heads_in(row)) for row in second] == [{runs[0].pk}, {runs[1].pk}]
    assert [json.loads(row.body)["parts"] for row in second] == [2, 2]
    before = [json.loads(row.body)["before"] for row in second]
    assert before == [digest(first.body), digest(second[0].body)]


def test_a_day_on_which_nothing_happened_says_so(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_stream(world.run().pk)
    making.make_day(world.workspace.pk)
    tomorrow(monkeypatch)
    monkeypatch.setattr(making, "MARGIN", timedelta(0))
    (row,) = making.make_day(world.workspace.pk)
    assert heads_in(row) == {}


def test_two_processes_make_one_statement_of_a_day(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_stream(world.run().pk)
    keep, copies = making._keep, list[list[Statement]]()

    def too_late(rows: list[Statement]) -> list[Statement]:
        monkeypatch.setattr(making, "_keep", keep)
        copies.append(making.make_day(world.workspace.pk))
        return keep(rows)

    monkeypatch.setattr(making, "_keep", too_late)
    assert making.make_day(world.workspace.pk) == []
    assert [len(rows) for rows in copies] == [1]
    assert Statement.objects.count() == 1


def test_without_a_key_no_day_is_due_and_it_is_made_once_there_is_one(world: World, place: Path) -> None:
    seal_stream(world.run().pk)
    kept = (place / keyring.SEAL).read_text()
    (place / keyring.SEAL).unlink()
    assert (due_days(), making.make_day(world.workspace.pk)) == ([], [])
    (place / keyring.SEAL).write_text(kept)
    assert due_days()
    assert len(making.make_day(world.workspace.pk)) == 1


# --- Rotation -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I26")
def test_a_rotation_is_signed_by_the_old_key_and_by_the_new_one_and_old_keys_are_kept(
    world: World, place: Path
) -> None:
    _, _, before = issued(world)
    row = rotate()
    old, new = SealKey.objects.get(pk=before.key), SealKey.objects.get(pk=row.pk)
    said = json.loads(new.handover)
    assert (said["kind"], said["key"], said["next"]) == ("handover", old.pk, new.pk)
    assert (said["public"], said["next_public"]) == (old.public, new.public)
    assert is_signed(new.handover, new.signature, old.public)
    assert is_signed(new.handover, new.accepted, new.public)
    assert new.follows == old.pk
    assert sorted(path.name for path in place.iterdir()) == ["redaction.key", "seal.key"]
    run = completed(World())
    reports.issue(run.pk)
    after = Statement.objects.get(report__run=run)
    assert (after.key, json.loads(after.body)["installation"]) == (new.pk, f"ins_{old.pk}")
    assert is_signed(after.body, after.signature, new.public)
    assert is_signed(before.body, before.signature, old.public)
    assert [key["id"] for key in public_keys()["keys"]] == [old.pk, new.pk]


def test_a_rotation_that_was_cut_off_is_gone_on_with(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = keyring.read(keyring.SEAL)
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rotate()
    assert keyring.read(keyring.SEAL) == old
    assert SealKey.objects.count() == 2
    monkeypatch.undo()
    monkeypatch.setattr(keyring, "folder", lambda: place)
    row = rotate()
    assert SealKey.objects.count() == 2
    assert keyring.read(keyring.SEAL) != old
    assert public_keys()["keys"][-1]["id"] == row.pk


def test_a_key_that_came_without_a_hand_over_is_known_as_such(world: World, place: Path) -> None:
    issued(world)
    keyring.replace(place / keyring.SEAL, b"n" * 32)
    reports.issue(completed(World()).pk)
    assert [key["handover"] for key in public_keys()["keys"]] == [None, None]
    assert {key["follows"] for key in public_keys()["keys"]} == {""}
