"""Who can't sign, and tries all the same; and honest packs that are made while somebody writes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard import reports, retention
from dashboard.packs import verify as packs
from dashboard.packs import writing
from effects import attaching, reconcile
from effects.models import Attachment, Effect, Report
from effects.reconcile import Answer
from runs.models import Run
from tests.dashboard.packing import Files, a_pack, with_rows, zipped
from tests.dashboard.report_scenes import awaiting_verification
from tests.worlds import World

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I26"), pytest.mark.usefixtures("place")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def run(world: World) -> Run:
    run = awaiting_verification(world)
    reports.issue(run.pk)
    return run


def checked(path: Path, key: str = "") -> set[str]:
    return {one.what for one in packs.check(str(path), [key] if key else [], []).breaks}


@pytest.mark.parametrize("told", [{}, {"keys": []}, {"keys": [{"public": ""}]}, {"keys": "x"}])
def test_a_file_of_no_keys_is_refused_and_is_not_as_if_none_was_given(place: Path, told: Any) -> None:
    file = place / "keys.json"
    file.write_text(json.dumps(told))
    with pytest.raises(packs.Unreadable, match="no public key"):
        packs.key_ids(str(file))


def test_a_key_that_shares_the_id_of_the_one_that_was_given_is_another_key(run: Run, place: Path) -> None:
    """Ids are 64 bits: such a key can be searched for by whoever has the means. Here ours is the find."""
    pack = zipped(a_pack(run), place / "pack.zip")
    mine = packs.Statement("mine", json.loads(a_pack(run)["statement.json"]))
    digest = packs.sha256(packs.decoded(mine.public))
    for given, seen in ((digest, set()), (mine.key, set()), (mine.key + "0" * 48, {"key"})):
        verdict = packs.check_pack(str(pack), {given}, [])
        assert {one.what for one in verdict.breaks} == seen, given


STRANGE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a body that is an object": lambda row: row | {"body": {"a": 1}},
    "a body that is a number": lambda row: row | {"body": 5},
    "a body that is a lone surrogate": lambda row: row | {"body": "\ud800"},
    "an endless number": lambda row: row | {"seq": float("inf")},
    "no number": lambda row: row | {"carried_version": float("nan")},
    "a number with a point": lambda row: row | {"seq": float(row["seq"])},
    "yes for a number": lambda row: row | {"carried_version": True},
    "an attachment that is none": lambda row: row | {"kind": "unknown.attached", "body": "[]"},
}


def test_whatever_stands_in_a_forged_pack_it_is_broken_and_nothing_fails(run: Run, place: Path) -> None:
    files = a_pack(run)
    assert checked(zipped(files, place / "pack.zip")) == set(), "the control"
    for name, change in STRANGE.items():
        forged = with_rows(files, "lines.jsonl", lambda all_, one=change: [*all_[:-1], one(all_[-1])])  # type: ignore[misc]
        assert checked(zipped(forged, place / "pack.zip")) & {"form", "body"}, name
    for told in ({"reports": [7]}, {"reports": [{"json": "pack.json", "statement": "pack.json"}]}):
        forged = {**files, "pack.json": json.dumps(json.loads(files["pack.json"]) | told).encode()}
        assert checked(zipped(forged, place / "pack.zip")) >= {"file", "form"}


def test_what_a_zip_does_not_list_makes_it_no_pack(run: Run, place: Path) -> None:
    files: Files = a_pack(run)
    pack = zipped(files, place / "pack.zip")
    assert checked(pack) == set(), "the control"
    honest = pack.read_bytes()
    pack.write_bytes(zipped({"lines.jsonl": b"{}"}, place / "other.zip").read_bytes() + honest)
    assert checked(pack) == {"form"}
    pack.write_bytes(honest)
    with zipfile.ZipFile(pack, "a") as more:
        more.comment = b"nothing of ours"
    assert checked(pack) == {"form"}
    with zipfile.ZipFile(pack, "a") as more:
        more.comment = b"PK\x05\x06" + bytes(18)
    assert checked(pack), "an end of another archive, behind the end"


def test_what_comes_while_a_pack_is_made_is_in_it_whole_or_not_at_all(
    world: World, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = Effect.objects.filter(run=run, settlement="UNKNOWN").first()
    assert effect is not None
    moment, came = writing._moment, []

    def and_then(run_id: str) -> writing.Moment:
        """Right after the pack's moment somebody attaches a file, and a version is issued."""
        now = moment(run_id)
        given: dict[str, Any] = {"form": "file", "file_name": "a.pdf", "content": b"%PDF-1"}
        came.append(attaching.attach(actor=world.alice, subject_id=effect.pk, **given))
        reconcile.apply_answer(effect.pk, Answer("present", provider_ref="ch_2"))
        assert reports.issue(run.pk) is not None
        return now

    monkeypatch.setattr(writing, "_moment", and_then)
    files = a_pack(run)
    assert len(came) == 1
    assert Report.objects.filter(run=run).count() == 2
    assert checked(zipped(files, place / "pack.zip")) == set()


def test_an_attachment_that_is_let_go_while_a_pack_is_made_is_no_break(
    world: World, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = Effect.objects.filter(run=run, settlement="UNKNOWN").first()
    assert effect is not None
    given: dict[str, Any] = {"form": "file", "file_name": "a.pdf", "content": b"%PDF-1"}
    attaching.attach(actor=world.alice, subject_id=effect.pk, **given)
    kept = next(one for one in retention.KEPT if one.name == "attachments")
    add = writing.Zip.add

    def then_gone(self: writing.Zip, name: str, parts: Any) -> None:
        add(self, name, parts)
        if name.startswith("attachments"):
            rows = Attachment.objects.filter(run=run)
            kept.let_go(rows, list(rows.values_list("pk", flat=True)), "a rule")

    monkeypatch.setattr(writing.Zip, "add", then_gone)
    files = a_pack(run)
    assert Attachment.objects.get(run=run).removed_at is not None
    assert checked(zipped(files, place / "pack.zip")) == set()
