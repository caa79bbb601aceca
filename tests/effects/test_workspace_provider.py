"""Files that our executor writes: the disk is the ledger, also after a kill between two of them."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import drain, executor, folder, intents, lookup
from effects.folder import Unusable
from effects.kinds import BadKind, NewKind, register_kind
from effects.models import Effect, Kind, Provider, Settlement
from effects.providers import workspace
from effects.providers.workspace import NotDeclared
from effects.settle import Told
from runs import gate, stops
from runs.guard import Opened, Refusal
from runs.models import Run
from tests.effects.sending import before
from tests.worlds import World, a_kind, fresh, in_seconds, intention, lapse

pytestmark = pytest.mark.django_db(transaction=True)
FILES = {"reports/q3.md": "third quarter", "reports/q4.md": "fourth quarter", "index.md": "both"}
PLAN = intents.plan_bytes(kind="restore_files", title="Put back what was there")


def body_of(files: dict[str, str]) -> bytes:
    return json.dumps({"files": [{"path": path, "text": text} for path, text in files.items()]}).encode()


class Desk:
    """One workspace's folder, a run, and effects that write there."""

    def __init__(self, root: Path) -> None:
        self.world = World()
        self.root = root / self.world.workspace.pk
        self.kind = a_kind(
            self.world.workspace,
            name="files",
            op_class="workspace_change",
            provider=Provider.WORKSPACE,
            lookup={"inspect": "files"},
            key_fencing=True,
            settle_window_s=0,
            updated_at=in_seconds(-60),
        )
        self.run: Run = self.world.run()

    def declared(self, files: dict[str, str] | None = None, **fields: Any) -> Effect:
        body = fields.pop("body", body_of(files or FILES))
        key = fields.pop("key", "files:1")
        new = intention(key, kind="files", body=body, **fields)
        effect = intents.declare(self.world.ask(self.run, step_key=key), new)
        assert isinstance(effect, Effect)
        return effect

    def dispatched(self, effect: Effect) -> Effect:
        """As the executor does, up to the permit."""
        ask = replace(self.world.ask(self.run), step_id=effect.step_id, effect_key=effect.key)
        step = gate.claim(ask)
        assert not isinstance(step, Refusal)
        opened = intents.dispatch_again(replace(ask, claim_token=step.claim_token), effect.pk)
        assert isinstance(opened, Opened)
        found: Effect = Effect.objects.select_related("run", "kind").get(pk=effect.pk)
        return found

    def lost(self, effect: Effect) -> None:
        """The lease of a worker that was killed runs out."""
        assert effect.permit is not None
        lapse(effect.permit, effect.step)
        drain.drain_run(self.run.pk)
        assert fresh(effect).settlement == Settlement.UNKNOWN
        Effect.objects.filter(pk=effect.pk).update(next_check_at=in_seconds(-1))

    def there(self) -> dict[str, str]:
        """The files that a person would find, without our own folder."""
        if not self.root.exists():
            return {}
        found = [path for path in self.root.rglob("*") if path.is_file()]
        names = {str(path.relative_to(self.root)): path.read_text() for path in found}
        return {name: text for name, text in names.items() if not name.startswith(".allstop/")}


@pytest.fixture
def desk(tmp_path: Path, settings: Settings) -> Desk:
    settings.ALLSTOP_FILES = str(tmp_path / "files")
    return Desk(tmp_path / "files")


def in_a_process(work: Callable[[], Any]) -> int:
    """Do it in a process of its own; its exit code (minus the signal that killed it)."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    assert process.exitcode is not None
    return process.exitcode


def dies_at(effect: Effect, place: int) -> Callable[[], None]:
    """A sender that is killed in the place of its n-th rename."""

    def work() -> None:
        real, left = os.rename, [place]

        def rename(*args: Any, **kwargs: Any) -> None:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            real(*args, **kwargs)

        os.rename = rename
        assert effect.kind is not None
        workspace.send(effect, effect.kind, lambda: None)

    return work


# --- Writing --------------------------------------------------------------------------------------------


def test_files_are_written_and_the_manifest_says_path_size_and_digest(desk: Desk) -> None:
    effect = desk.declared()
    assert executor.execute(effect.pk) == "applied"
    assert desk.there() == FILES
    told: Any = fresh(effect).result
    assert told["of"] == 3
    assert told["files"][0] == {
        "path": "reports/q3.md",
        "size": 13,
        "sha256": hashlib.sha256(b"third quarter").hexdigest(),
    }
    assert [one.state for one in workspace.states_of(fresh(effect))] == ["written"] * 3


@pytest.mark.only("sqlite")
def test_a_message_that_comes_five_times_writes_once(desk: Desk) -> None:
    effect = desk.declared()
    assert [executor.execute(effect.pk) for _ in range(5)] == ["applied", *["nothing to do"] * 4]
    assert len((desk.root / ".allstop" / f"{effect.pk}.journal").read_text().splitlines()) == 1 + 3


def test_a_stop_before_the_second_look_leaves_nothing_in_place_and_nothing_behind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, staged = desk.declared(), []

    def stop() -> None:
        staged.append(len(desk.there()))
        stops.request_stop(actor=desk.world.alice, wish=stops.Wish(), run_id=desk.run.pk)

    before(monkeypatch, gate, "look", stop)
    assert executor.execute(effect.pk) == "not_sent"
    assert (staged, desk.there()) == ([3], {})


BAD = {
    "up": {"../x": "a"},
    "absolute": {"/etc/x": "a"},
    "through": {"a/../../x": "a"},
    "ours": {".allstop/x": "a"},
    "staged": {"a/.allstop-eff_1-0": "a"},
    "nothing": {"": "a"},
    "folder": {"a/": "a"},
    "hidden sign": {"a\u202e.md": "a"},
    "backslash": {"a\\b": "a"},
    "not composed": {"e\u0301.md": "a"},
    "long": {"x" * 201: "a"},
}


@pytest.mark.only("sqlite")
@pytest.mark.parametrize("files", BAD.values(), ids=BAD.keys())
def test_a_path_that_could_lead_elsewhere_writes_nothing(desk: Desk, files: dict[str, str]) -> None:
    effect = desk.declared({"first.md": "fine", **files})
    assert executor.execute(effect.pk) == "not_applied"
    assert desk.there() == {}


@pytest.mark.only("sqlite")
def test_a_link_in_the_way_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    desk.root.mkdir(parents=True)
    (desk.root / "reports").symlink_to(outside)
    assert executor.execute(desk.declared().pk) == "not_applied"
    assert (list(outside.iterdir()), (desk.root / "index.md").exists()) == ([], False)


@pytest.mark.only("sqlite")
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"files": 1}', b'{"files": [{"path": "a"}]}', b'{"files": []}', b"\xff"],
)
def test_a_body_that_names_no_files_can_not_be_read(body: bytes) -> None:
    with pytest.raises(Unusable):
        folder.manifest(body)


# --- Killed, frozen -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "settlement", "items"),
    [
        (0, Settlement.NOT_APPLIED, None),
        (1, Settlement.PARTIAL, {"written": ["reports/q3.md"], "left behind": ["reports/q4.md", "index.md"]}),
        (2, Settlement.PARTIAL, {"written": ["reports/q3.md", "reports/q4.md"], "left behind": ["index.md"]}),
    ],
)
def test_a_process_killed_between_two_files_leaves_a_list_and_no_guess(
    desk: Desk, place: int, settlement: str, items: Any
) -> None:
    effect = desk.dispatched(desk.declared())
    assert in_a_process(dies_at(effect, place)) == -signal.SIGKILL
    assert len([name for name in desk.there() if name in FILES]) == place
    desk.lost(effect)
    assert lookup.check_effect(effect.pk) == settlement
    effect = fresh(effect)
    assert (effect.ground, effect.items) == ("looked up", items)


@pytest.mark.only("sqlite")
def test_one_that_was_killed_after_the_last_rename_has_written_all(desk: Desk) -> None:
    effect = desk.dispatched(desk.declared({"one.md": "1"}))

    def work() -> None:
        workspace._Sending._say = lambda self, line: (  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGKILL) if "done" in line else said(self, line)
        )
        assert effect.kind is not None
        workspace.send(effect, effect.kind, lambda: None)

    said = workspace._Sending._say
    assert in_a_process(work) == -signal.SIGKILL
    assert desk.there() == {"one.md": "1"}
    desk.lost(effect)
    assert lookup.check_effect(effect.pk) == Settlement.CONFIRMED


def test_an_attempt_that_wakes_after_the_look_up_is_barred_and_a_new_attempt_is_not(desk: Desk) -> None:
    effect = desk.dispatched(desk.declared())
    desk.lost(effect)
    desk.root.mkdir(parents=True)
    assert lookup.check_effect(effect.pk) == Settlement.NOT_APPLIED
    assert effect.kind is not None
    told = workspace.send(effect, effect.kind, lambda: None)
    assert (told.outcome, desk.there()) == ("not_applied", {})
    effect.attempt += 1
    assert workspace.send(effect, effect.kind, lambda: None).outcome == "applied"
    assert desk.there() == FILES


@pytest.mark.only("sqlite")
def test_a_folder_that_fails_after_the_first_rename_is_unknown_not_unwritten(desk: Desk) -> None:
    effect = desk.dispatched(desk.declared())
    journal = desk.root / ".allstop" / f"{effect.pk}.journal"

    def fails_from_now_on() -> None:
        """The disk goes wrong right after the second look: the journal can be neither written nor read."""
        journal.unlink()
        journal.mkdir()

    assert effect.kind is not None
    told = workspace.send(effect, effect.kind, fails_from_now_on)
    assert "reports/q3.md" in desk.there(), "the first file was put in its place"
    assert told.outcome == "unknown"


@pytest.mark.only("sqlite")
def test_while_a_frozen_process_holds_the_files_nobody_can_tell(desk: Desk) -> None:
    effect = desk.dispatched(desk.declared())
    assert effect.kind is not None
    kind: Kind = effect.kind
    stands = multiprocessing.get_context("fork").Event()

    def work() -> None:
        stands.set()
        os.kill(os.getpid(), signal.SIGSTOP)

    process = multiprocessing.get_context("fork").Process(
        target=workspace.send, args=(effect, kind, work), daemon=True
    )
    process.start()
    try:
        assert stands.wait(10)
        assert workspace.look_up(effect, kind).answer == "can't tell"
    finally:
        process.kill()
        process.join(10)
    assert workspace.look_up(effect, kind).answer == "absent"  # the control: the lock died with its holder


@pytest.mark.only("sqlite")
def test_a_folder_that_can_not_be_seen_proves_nothing(desk: Desk) -> None:
    effect = desk.dispatched(desk.declared())
    assert effect.kind is not None
    assert workspace.look_up(effect, effect.kind).answer == "can't tell"


# --- Later ----------------------------------------------------------------------------------------------


@pytest.mark.only("sqlite")
def test_what_others_changed_since_is_told_apart(desk: Desk) -> None:
    effect = desk.declared()
    executor.execute(effect.pk)
    (desk.root / "reports/q3.md").write_text("by somebody else")
    (desk.root / "index.md").unlink()
    states = {one.path: one.state for one in workspace.states_of(fresh(effect))}
    assert states == {"reports/q3.md": "changed since", "reports/q4.md": "written", "index.md": "gone since"}


def before_and_after(desk: Desk, **fields: Any) -> tuple[Effect, dict[str, str]]:
    desk.root.joinpath("reports").mkdir(parents=True)
    (desk.root / "reports/q3.md").write_text("as it was")
    (desk.root / "reports/q4.md").write_text("as it was, too")
    was = desk.there()
    effect = desk.declared(**fields)
    assert executor.execute(effect.pk) == "applied"
    return fresh(effect), was


@pytest.mark.only("sqlite")
def test_files_are_put_back_under_a_declared_plan(desk: Desk) -> None:
    effect, was = before_and_after(desk, plan=PLAN)
    assert desk.there() == FILES
    assert workspace.put_back(effect) == Told("applied", detail="each file is put back")
    assert desk.there() == was


@pytest.mark.only("sqlite")
def test_nothing_is_put_back_without_one(desk: Desk) -> None:
    effect, _ = before_and_after(desk)
    with pytest.raises(NotDeclared):
        workspace.put_back(effect)
    assert desk.there() == FILES


@pytest.mark.only("sqlite")
def test_what_somebody_changed_since_is_not_put_back(desk: Desk) -> None:
    effect, was = before_and_after(desk, plan=PLAN)
    (desk.root / "reports/q3.md").write_text("by somebody else")
    told = workspace.put_back(effect)
    assert (told.outcome, told.items) == ("partial", {"changed since": ["reports/q3.md"]})
    assert desk.there() == {**was, "reports/q3.md": "by somebody else"}


# --- The kind -------------------------------------------------------------------------------------------

SIX = {
    "commits": "when each file has its place",
    "tells_apart": ["CONFIRMED", "PARTIAL", "NOT_APPLIED"],
    "idempotency": "the effect key",
    "compensation": "restore_files",
    "durable_before_pause": "the journal",
    "when_unknown": "the list of files",
}


def new_kind(**fields: Any) -> NewKind:
    return NewKind(**{**SIX, "op_class": "workspace_change", "provider": "workspace", **fields})


@pytest.mark.only("sqlite")
def test_a_kind_that_writes_files_is_inspected_and_barred_without_being_told(desk: Desk) -> None:
    put = register_kind(
        actor=desk.world.agent, workspace_id=desk.world.workspace.pk, name="docs", new=new_kind()
    )
    assert (put.kind.lookup, put.kind.key_fencing) == ({"inspect": "files"}, True)


@pytest.mark.only("sqlite")
@pytest.mark.parametrize(
    "fields",
    [
        {"op_class": "external_write"},
        {"send": {"url": "https://example.com/x"}},
        {"send": {"folder": "../up"}},
        {"lookup": {"url": "https://example.com/{key}"}},
    ],
)
def test_a_kind_that_writes_files_says_nothing_that_it_can_not_do(desk: Desk, fields: dict[str, Any]) -> None:
    with pytest.raises(BadKind):
        register_kind(
            actor=desk.world.agent,
            workspace_id=desk.world.workspace.pk,
            name="docs",
            new=new_kind(**fields),
        )
