"""A pack is checked by a bare Python and nothing of ours; each kind of tampering is named, at its place."""

from __future__ import annotations

import ast
import base64
import json
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import connection

from dashboard import reports
from dashboard.models import Statement
from dashboard.packs import verify as packs
from dashboard.packs.writing import VERIFIER, write
from dashboard.statements import told
from dashboard.statements.making import make_day
from dashboard.statements.rotation import rotate
from dashboard.statements.signing import Signer
from dashboard.verify import verify, verify_all
from effects import attaching
from effects.models import Attachment, Effect, Report
from runs import keyring
from runs.evidence import Line, chain, digest, record, seal_stream
from runs.models import Evidence, EvidencePayload, Run
from runs.store import Now
from tests.dashboard.packing import Files, a_pack, bare, rows, with_rows, zipped
from tests.dashboard.report_scenes import awaiting_verification
from tests.flush import without_triggers
from tests.worlds import World, in_seconds

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I26"), pytest.mark.usefixtures("place")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def run(world: World) -> Run:
    """A report of it was issued; then four lines, sealed, and two that the pack itself has sealed."""
    run = awaiting_verification(world)
    reports.issue(run.pk)
    add(run, 4)
    seal_stream(run.pk)
    add(run, 2)
    return run


def add(run: Run, number: int) -> None:
    record(run, *[Line("note.kept", "system", {"n": n}, worker=f"w-{n}") for n in range(number)])


def key_of(files: Files) -> str:
    return str(json.loads(files["keys.json"])["keys"][-1]["public"])


def id_of(public: str) -> str:
    return packs.key_ids(public).pop()[:16]


def found(verdict: packs.Verdict) -> list[tuple[str, str]]:
    return [(one.what, one.where) for one in verdict.breaks]


def checked(files: Files, place: Path, *statements: packs.Statement, key: str = "") -> list[tuple[str, str]]:
    pack = zipped(files, place / "pack.zip")
    return found(packs.check_pack(str(pack), packs.key_ids(key) if key else set(), list(statements)))


def kept(files: Files, name: str = "statement.json") -> packs.Statement:
    """A statement that somebody took out of a pack and kept."""
    return packs.Statement("kept.json", json.loads(files[name]))


# --- Untouched ------------------------------------------------------------------------------------------


def test_a_pack_nobody_touched_is_intact_to_a_bare_python_zipped_and_unpacked(run: Run, place: Path) -> None:
    files = a_pack(run)
    pack = zipped(files, place / "pack.zip")
    code, said = bare(pack, "--key", key_of(files), folder=place / "empty")
    assert code == 0, said
    last = Evidence.objects.filter(stream=run.pk).count()
    assert f"Run {run.pk}: intact." in said
    assert f"{last} lines, sealed to line {last}, 1 report version, 0 bodies removed by rule" in said
    assert key_of(files) in said
    assert "What no chain of hashes can show" in said
    with zipfile.ZipFile(pack) as names:
        names.extractall(place / "unpacked")
    (place / "unpacked" / "note of the auditor.txt").write_text("mine")
    assert packs.main([str(place / "unpacked"), "--key", key_of(files)]) == 0
    assert verify(run.pk).intact


def test_a_pack_of_a_run_without_a_report_and_without_anything_is_intact(world: World, place: Path) -> None:
    files = a_pack(world.run())
    assert checked(files, place, key=key_of(files)) == []


def test_removed_and_redacted_bodies_fit_and_what_was_removed_is_not_in_the_pack(
    run: Run, place: Path
) -> None:
    secret = "sk-live-" + "4f9a" * 8
    record(run, Line("note.kept", "system", {"password": secret}))
    line = Evidence.objects.filter(stream=run.pk).order_by("-seq")[1]
    EvidencePayload.objects.filter(stream=run.pk, seq=line.seq).update(
        body="", removed_at=Now(), removed_under="retention of 30 days"
    )
    files = a_pack(run)
    assert checked(files, place, key=key_of(files)) == []
    row = next(row for row in rows(files, "lines.jsonl") if row["seq"] == line.seq)
    assert (row["body"], row["removed_under"]) == (None, "retention of 30 days")
    assert b"[redacted " in files["lines.jsonl"]
    assert not any(secret.encode() in data for data in files.values())
    assert row["payload_digest"] == line.payload_digest
    assert verify(run.pk).intact


# --- The chain is the same ------------------------------------------------------------------------------


def test_both_chains_are_one(run: Run, place: Path) -> None:
    ours = theirs = ""
    for line, row in zip(
        Evidence.objects.filter(stream=run.pk).order_by("seq"), rows(a_pack(run), "lines.jsonl"), strict=True
    ):
        ours, theirs = chain(ours, line), packs.chain(theirs, row)
        assert ours == theirs
    assert ours


# --- Somebody changes the database, and the pack is made of that ----------------------------------------


def sql(text: str, *values: Any) -> None:
    with without_triggers(connection) as cursor:
        cursor.execute(text, values)


def last_of(run: Run) -> int:
    return Evidence.objects.filter(stream=run.pk).count()


def edit(run: Run) -> None:
    sql("UPDATE runs_evidence SET actor = 'x' WHERE stream = %s AND seq = %s", run.pk, last_of(run) - 3)


def delete(run: Run) -> None:
    at = last_of(run) - 3
    sql("DELETE FROM runs_evidencepayload WHERE stream = %s AND seq = %s", run.pk, at)
    sql("DELETE FROM runs_evidence WHERE stream = %s AND seq = %s", run.pk, at)


def reorder(run: Run) -> None:
    one, two = last_of(run) - 4, last_of(run) - 2
    for table in ("runs_evidence", "runs_evidencepayload"):
        for old, new in ((one, -1), (two, one), (-1, two)):
            sql(f"UPDATE {table} SET seq = %s WHERE stream = %s AND seq = %s", new, run.pk, old)


def cut(run: Run) -> None:
    for table in ("runs_evidence", "runs_evidencepayload"):
        sql(f"DELETE FROM {table} WHERE stream = %s AND seq > %s", run.pk, upto_of(run) - 2)


def cut_with_its_seals(run: Run) -> None:
    cut(run)
    sql("DELETE FROM runs_seal WHERE stream = %s", run.pk)


def rewrite(run: Run) -> None:
    """Everything written anew by somebody who can hash: only what was signed before knows better."""
    sql("UPDATE runs_evidence SET actor = 'someone else' WHERE stream = %s AND seq = 2", run.pk)
    sql("DELETE FROM runs_seal WHERE stream = %s", run.pk)


def swap_body(run: Run) -> None:
    sql(
        "UPDATE runs_evidencepayload SET body = '{}' WHERE stream = %s AND seq = %s", run.pk, last_of(run) - 3
    )


def swap_report(run: Run) -> None:
    body = Report.objects.get(run=run).body.replace("unknown", "confirmed")
    sql("UPDATE effects_report SET body = %s, digest = %s WHERE run_id = %s", body, digest(body), run.pk)


def upto_of(run: Run) -> int:
    """The line that the report, and its statement, know as the last."""
    return int(Report.objects.get(run=run).upto_seq)


# Offsets are from the last line, "R" is the report's last one. What the live check says, and the pack's.
TAMPERED: list[tuple[Callable[[Run], None], set[tuple[str, str]], set[tuple[str, str]]]] = [
    (edit, {("edited", "-6 to -2")}, {("edited", "-6 to -2")}),
    (delete, {("missing", "-3")}, {("missing", "-3")}),
    (reorder, {("reordered", "-4 to -2")}, {("reordered", "-4 to -2")}),
    (cut, {("missing", "R-1 to R")}, {("missing", "R-1 to R")}),
    (cut_with_its_seals, {("missing", "R-1 to R")}, {("missing", "R-1 to R")}),
    (rewrite, {("fork", "R")}, {("fork", "R or before")}),
    (swap_body, {("body", "-3")}, {("body", "-3")}),
    (swap_report, {("report", "0")}, {("report", "reports/v1.json")}),
]


def named(place: str, last: int, report: int) -> str:
    """ "-6 to -2" as the lines that it stands for."""
    if "/" in place:
        return place
    parts = place.removesuffix(" or before").split(" to ")
    numbers = [report + int(part[1:] or 0) if part[0] == "R" else last + int(part) for part in parts]
    suffix = " or before" if place.endswith(" or before") else ""
    return packs.lines_named(numbers[0], numbers[-1]) + suffix


@pytest.mark.parametrize(
    ("harm", "live", "packed"), TAMPERED, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_was_done_to_the_database_is_named_by_the_live_check_and_by_its_pack(
    run: Run, place: Path, harm: Callable[[Run], None], live: set[Any], packed: set[Any]
) -> None:
    last, report = last_of(run), upto_of(run)
    seal_stream(run.pk)
    harm(run)
    if harm is rewrite:
        seal_stream(run.pk)
    lines = {(one.what, one.place) for one in verify(run.pk).breaks}
    if harm is swap_report:
        assert "report" in {what for what, _ in lines}
    else:
        assert {(what, named(where, last, report)) for what, where in live} <= lines
    files = a_pack(run)
    seen = set(checked(files, place, key=key_of(files)))
    assert {(what, named(where, last, report)) for what, where in packed} <= seen
    assert not {one for one in seen if one[0] == "signature"}, "the installation itself signed what is there"


def test_a_restored_backup_is_named_by_a_statement_that_was_kept(run: Run, place: Path) -> None:
    """The database of before, whole and intact in itself: nothing in it can know what is missing."""
    before = last_of(run)
    seal_stream(run.pk)
    add(run, 3)
    later = kept(a_pack(run))
    for table in ("runs_evidence", "runs_evidencepayload"):
        sql(f"DELETE FROM {table} WHERE stream = %s AND seq > %s", run.pk, before)
    sql("DELETE FROM runs_seal WHERE stream = %s AND upto_seq > %s", run.pk, before)
    files = a_pack(run)
    assert checked(files, place) == [], "the control: without the statement nothing is wrong"
    assert verify(run.pk).intact
    assert checked(files, place, later) == [("older", f"lines {before + 1} to {before + 3}")]
    (verdict,) = verify_all([run.pk], [later])
    assert [(one.what, one.first, one.last) for one in verdict.breaks] == [("older", before + 1, before + 3)]
    add(run, 5)  # and goes on from there: two stories with the same numbers
    assert ("fork", f"line {before + 3} or before") in checked(a_pack(run), place, later)
    seal_stream(run.pk)
    (verdict,) = verify_all([run.pk], [later])
    assert [(one.what, one.first) for one in verdict.breaks] == [("fork", before + 3)]


def test_a_pack_that_is_older_than_the_statement_is_no_break(run: Run, place: Path) -> None:
    files = a_pack(run)
    add(run, 1)
    assert checked(files, place, kept(a_pack(run))) == []


def test_statements_of_days_are_kept_too_and_know_the_run(world: World, run: Run, place: Path) -> None:
    seal_stream(run.pk)
    (row,) = make_day(world.workspace.pk)
    day = packs.Statement("day.json", told(row).envelope)
    files = a_pack(run)
    assert checked(files, place, day, key=key_of(files)) == []
    rewrite(run)
    seal_stream(run.pk)
    assert ("fork", f"line {day.heads[-1][1]} or before") in checked(a_pack(run), place, day)
    assert "fork" in {one.what for one in verify(run.pk).breaks}, "the live check reads the table of them"


# --- Somebody changes the pack, and can't sign ----------------------------------------------------------


def line(number: int, **change: Any) -> Callable[[Files], Files]:
    def changed(all_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        all_rows[number] |= change
        return all_rows

    return lambda files: with_rows(files, "lines.jsonl", changed)


def without(*names: str) -> Callable[[Files], Files]:
    return lambda files: {name: data for name, data in files.items() if name not in names}


def swapped(name: str, old: str, new: str) -> Callable[[Files], Files]:
    return lambda files: {**files, name: files[name].replace(old.encode(), new.encode())}


def chosen(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Files], Files]:
    return lambda files: with_rows(files, "lines.jsonl", change)


LINES = ("file", "lines.jsonl")
HARMS: dict[str, tuple[Callable[[Files], Files], set[tuple[str, str]]]] = {
    "an edit": (line(-3, actor="x"), {LINES, ("edited", "-6 to -2")}),
    "an edit of a time": (line(-3, at="2026-01-01T00:00:00+00:00"), {LINES, ("edited", "-6 to -2")}),
    "a deletion": (chosen(lambda all_: [*all_[:-4], *all_[-3:]]), {LINES, ("missing", "-3")}),
    "lines that changed places": (
        chosen(lambda all_: [*all_[:-4], all_[-3], all_[-4], *all_[-2:]]),
        {LINES, ("reordered", "-3")},
    ),
    "a cut end": (chosen(lambda all_: all_[:-2]), {LINES, ("missing", "-1 to 0")}),
    "a body": (line(-3, body='{"n":9}'), {LINES, ("body", "-2")}),
    "a body that is gone": (line(-3, body=None), {LINES, ("body", "-2")}),
    "a body said to be removed": (
        line(-3, body=None, removed_at="2026-01-01T00:00:00+00:00", removed_under="a rule"),
        {LINES},
    ),
    "a line of another run": (line(-3, stream="run_other"), {LINES, ("edited", "-2")}),
    "the seals": (swapped("seals.jsonl", '"head":"', '"head":"0'), {("file", "seals.jsonl")}),
    "no seals": (lambda files: {**files, "seals.jsonl": b""}, {("file", "seals.jsonl")}),
    "a report": (
        swapped("reports/v1.json", "unknown", "confirmed"),
        {("file", "reports/v1.json"), ("report", "reports/v1.json")},
    ),
    "the page of a report": (swapped("reports/v1.html", "<h1", "<h2"), {("file", "reports/v1.html")}),
    "no report": (without("reports/v1.json"), {("file", "reports/v1.json"), ("report", "reports/v1.json")}),
    "its statement": (
        swapped("statements/report-v1.json", "allstop", "Allstop"),
        {("file", "statements/report-v1.json")},
    ),
    "the pack's statement": (
        swapped("statement.json", '\\"run\\"', '\\"ran\\"'),
        {("signature", "statement.json")},
    ),
    "no signature": (
        lambda files: {**files, "statement.json": unsigned(files["statement.json"])},
        {("unsigned", "statement.json")},
    ),
    "no statement": (without("statement.json"), {("file", "statement.json")}),
    "a file more": (lambda files: {**files, "reports/v2.json": b"{}"}, {("file", "reports/v2.json")}),
    "what it says of itself": (swapped("README.txt", "evidence", "x"), {("file", "README.txt")}),
    "a line that is none": (
        lambda files: {**files, "lines.jsonl": b"[" * 100_000},
        {LINES, ("form", "pack.zip")},
    ),
}


def unsigned(envelope: bytes) -> bytes:
    return json.dumps({**json.loads(envelope), "signature": "", "unsigned": "not signed: so it is"}).encode()


made: list[Files] = []


@pytest.fixture
def files(request: pytest.FixtureRequest) -> Files:
    """One pack for all: nothing but its bytes is looked at, and each test changes a copy."""
    if not made:
        made.append(a_pack(request.getfixturevalue("run")))
    return dict(made[0])


@pytest.mark.parametrize("harm", HARMS)
def test_what_was_done_to_a_pack_is_named(files: Files, place: Path, harm: str) -> None:
    change, expected = HARMS[harm]
    last = len(rows(files, "lines.jsonl"))
    changed = change(files)
    assert changed != files
    seen = checked(changed, place, key=key_of(files))
    places = {(what, Path(where).name if what == "form" else where) for what, where in seen}
    wanted = {(what, where if "." in where else named(where, last, 0)) for what, where in expected}
    assert wanted <= places


def test_whoever_signs_with_a_key_of_their_own_is_told_from_us_by_our_key_alone(
    files: Files, place: Path
) -> None:
    foreign = Signer(b"m" * 32)
    forged = signed_anew(line(-3, kind="note.forged")(files), foreign)
    assert ("key", "statement.json") in checked(forged, place, key=key_of(files))
    code, said = bare(place / "pack.zip", "--key", key_of(files), folder=place / "empty")
    assert code == 1
    assert "which is not the one you gave" in said


def signed_anew(files: Files, by: Signer) -> Files:
    """The pack's statement again, with the digests of the files as they are now."""
    keys = {"installation": "ins_" + by.id, "keys": [{"id": by.id, "public": by.public, "handover": None}]}
    files = {**files, "keys.json": json.dumps(keys).encode()}
    told_ = json.loads(json.loads(files["statement.json"])["statement"])
    told_["pack"]["files"] = {name: digest(data) for name, data in files.items() if name != "statement.json"}
    text = packs.canonical({**told_, "key": by.id, "installation": "ins_" + by.id})
    envelope = {"statement": text, "signature": by.sign(text), "public": by.public}
    return {**files, "statement.json": json.dumps(envelope).encode()}


def test_two_statements_with_two_heads_for_one_line_are_a_fork(files: Files, place: Path) -> None:
    mine = kept(files)
    told_ = json.loads(mine.text)
    told_["streams"][0]["head"] = "0" * 64
    signer = Signer(b"s" * 32)
    text = packs.canonical({**told_, "key": signer.id})
    other = {"statement": text, "signature": signer.sign(text), "public": signer.public}
    verdict = packs.check_statements([mine, packs.Statement("other.json", other)], set())
    (name, upto, _) = mine.heads[0]
    assert found(verdict) == [("fork", f"line {upto} of {name}")]
    assert found(packs.check_statements([mine, mine], set())) == []


# --- Keys -----------------------------------------------------------------------------------------------


def test_a_hand_over_leads_from_the_old_key_to_the_new_one_and_back(run: Run, place: Path) -> None:
    old = key_of(a_pack(run))
    rotate()
    files = a_pack(run)
    new = key_of(files)
    assert old != new
    assert checked(files, place, key=old) == []
    assert checked(files, place, key=new) == [], "the report's statement is by the old key"
    assert {kept(files).key, kept(files, "statements/report-v1.json").key} == {
        id_of(new),
        id_of(old),
    }


def test_a_hand_over_that_the_old_key_did_not_sign_leads_nowhere(run: Run, place: Path) -> None:
    old = key_of(a_pack(run))
    rotate()
    files = a_pack(run)
    keys = json.loads(files["keys.json"])
    mallory = Ed25519PrivateKey.generate().sign(keys["keys"][1]["handover"]["statement"].encode())
    keys["keys"][1]["handover"]["signature"] = base64.b64encode(mallory).decode()
    forged = {**files, "keys.json": json.dumps(keys).encode()}
    seen = checked(forged, place, key=old)
    assert ("key", "statement.json") in seen
    assert ("key", f"keys.json, key {id_of(key_of(files))}") in seen


def test_nobody_leads_to_a_key_of_their_own_by_naming_ours_as_the_one_before(
    files: Files, place: Path
) -> None:
    """Two keys of theirs hand over to each other, truly signed; the row says that the first was ours."""
    ours = key_of(files)
    one, two = Signer(b"1" * 32), Signer(b"2" * 32)
    forged = signed_anew(files, two)
    for before in (id_of(ours), one.id):
        told_ = {"kind": "handover", "key": before, "next": two.id, "next_public": two.public}
        text = packs.canonical(told_)
        handed = {"statement": text, "signature": one.sign(text), "accepted": two.sign(text)}
        row = {"id": two.id, "public": two.public, "follows": id_of(ours), "handover": handed}
        first = [{"id": key.id, "public": key.public, "handover": None} for key in (one,)]
        mine = [{"id": id_of(ours), "public": ours, "handover": None}]
        keys = {"installation": "ins_" + two.id, "keys": [*mine, *first, row]}
        seen = checked({**forged, "keys.json": json.dumps(keys).encode()}, place, key=ours)
        assert ("key", "statement.json") in seen


def test_the_verifier_is_one_file_for_python_3_9_with_the_standard_library_alone() -> None:
    text = VERIFIER.read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named_ = {name.name for node in imports if isinstance(node, ast.Import) for name in node.names}
    named_ |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named_} <= sys.stdlib_module_names
    assert not {"socket", "urllib", "http", "subprocess"} & named_


def test_a_pack_without_a_key_says_that_nobody_signed_it(run: Run, place: Path) -> None:
    (place / "keys" / keyring.SEAL).unlink()
    pack = zipped(a_pack(run), place / "pack.zip")
    code, said = bare(pack, folder=place / "empty")
    assert code == 1
    assert "statement.json: unsigned. not signed: seal.key can't be read" in said
    code, said = bare(pack, "--unsigned", folder=place / "empty")
    assert code == 0


# --- What people attached -------------------------------------------------------------------------------


def test_attachments_travel_and_are_held_by_their_lines(world: World, run: Run, place: Path) -> None:
    effect = Effect.objects.filter(run=run, settlement="UNKNOWN").first()
    assert effect is not None
    for given in (
        {
            "form": "file",
            "file_name": "../../statement of the bank.pdf",
            "content": b"%PDF-1",
            "content_type": "application/pdf",
        },
        {"form": "reference", "text": "ticket 42"},
        {"form": "quote", "text": "they wrote: password=hunter2-and-more"},  # kept redacted
    ):
        attaching.attach(actor=world.alice, subject_id=effect.pk, **given)
    files = a_pack(run)
    (name,) = [name for name in files if name.startswith("attachments/")]
    assert name.endswith(".pdf")
    assert files[name] == b"%PDF-1"
    assert checked(files, place, key=key_of(files)) == []
    assert ("attachment", name) in checked({**files, name: b"%PDF-2"}, place)
    text = with_rows(
        files, "attachments.jsonl", lambda all_: [{**row, "text": row["text"] + "0"} for row in all_]
    )
    assert [what for what, _ in checked(text, place)].count("attachment") == 2
    assert not any(b"hunter2" in data for data in files.values())
    gone = with_rows(files, "attachments.jsonl", lambda all_: all_[:2])
    assert "attachment" in {what for what, _ in checked(gone, place)}
    emptied = {"text": "", "content": b"", "removed_at": Now(), "removed_under": "retention of 30 days"}
    Attachment.objects.filter(run=run).update(**emptied)
    files = a_pack(run)
    assert checked(files, place, key=key_of(files)) == []
    assert {row["removed_under"] for row in rows(files, "attachments.jsonl")} == {"retention of 30 days"}
    assert not any(b"ticket 42" in data for data in files.values() if data is not files["lines.jsonl"])


# --- Size -----------------------------------------------------------------------------------------------


class Counted:
    """A file that keeps nothing, and remembers how large a piece was."""

    def __init__(self) -> None:
        self.size = self.largest = 0

    def write(self, data: bytes) -> int:
        self.size, self.largest = self.size + len(data), max(self.largest, len(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def many(run: Run, number: int) -> None:
    first = last_of(run) + 1
    Evidence.objects.bulk_create(
        Evidence(stream=run.pk, seq=first + n, kind="note.kept", actor="system", at=in_seconds(0))
        for n in range(number)
    )


def test_a_pack_takes_a_few_queries_for_each_thousand_lines_and_small_pieces(
    world: World, place: Path, django_assert_max_num_queries: Any
) -> None:
    run = world.run()
    many(run, 3_000)
    seal_stream(run.pk)
    out = Counted()
    with django_assert_max_num_queries(28):
        write(run, cast(IO[bytes], out))
    assert out.size > 20_000
    assert out.largest <= 300_000


def test_statements_of_reports_that_are_no_longer_there_are_missed(run: Run) -> None:
    sql("DELETE FROM dashboard_statement WHERE workspace_id = %s", run.workspace_id)
    assert [one.says for one in verify(run.pk).breaks] == [
        "The statement of version 1 of the report is gone."
    ]


def test_a_statement_that_was_changed_in_the_database_is_named(run: Run) -> None:
    row = Statement.objects.get(report__run=run)
    sql(
        "UPDATE dashboard_statement SET body = %s WHERE id = %s",
        row.body.replace("report", "rapport"),
        row.pk,
    )
    assert {one.what for one in verify(run.pk).breaks} == {"statement"}


@pytest.mark.long
def test_ten_thousand_lines_are_written_and_checked_within_bounded_memory(world: World, place: Path) -> None:
    run = world.run()
    many(run, 10_000)
    seal_stream(run.pk)
    tracemalloc.start()
    try:
        with (place / "pack.zip").open("wb") as out:
            write(run, out)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        began = time.perf_counter()
        verdict = packs.check_pack(str(place / "pack.zip"), set(), [])
        took, read = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = f"peaks of {written >> 10} and {read >> 10} KiB, checked in {took:.1f} s while traced"
    assert verdict.intact
    assert verdict.notes[0].startswith("10001 lines")
    assert max(written, read) < 24 << 20, said
    assert min(written, read) > 256 << 10, said
