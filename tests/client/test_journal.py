"""A file of facts: what is in it after a kill, half a line, a full disk; and whose it is."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from allstop.facts import Fact
from allstop.journal import Journal
from allstop.outbox import REJECTED, Outbox

CLIENT = Path(__file__).parents[2] / "client"
SECRET = "the-claim-token"

WRITER = """
import os, sys, signal
from pathlib import Path
from allstop.facts import Fact
from allstop.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]), told_by="t")
body = {"claim_token": "the-claim-token", "outcome": "applied"}
outbox.keep(Fact.of("permits/prm_1/report", body, step="ste_1", told_by="t"))
print("kept", flush=True)
signal.pause()
"""


def a_fact(permit: str = "prm_1", step: str = "ste_1") -> Fact:
    body = {"claim_token": SECRET, "outcome": "applied"}
    return Fact.of(f"permits/{permit}/report", body, step=step, told_by="t")


def a_finish(step: str = "ste_1") -> Fact:
    return Fact.of(
        f"steps/{step}/finish", {"claim_token": SECRET, "result": "succeeded"}, step=step, told_by="t"
    )


def an_outbox(folder: Path, max_bytes: int = 1 << 20) -> Outbox:
    return Outbox(folder, told_by="t", max_bytes=max_bytes)


def left_by_the_dead(folder: Path, *facts: Fact) -> Path:
    """A file whose owner is gone."""
    outbox = an_outbox(folder)
    for fact in facts:
        outbox.keep(fact)
    outbox.close()
    (path,) = folder.glob("*.facts")
    return path


@pytest.mark.kill
def test_a_fact_outlives_the_kill_of_its_process_and_no_living_one_is_robbed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(CLIENT)}
    writer = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "kept\n"
        outbox = an_outbox(tmp_path)
        outbox.adopt()
        assert outbox.take() is None
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    outbox.adopt()
    fact = outbox.take()
    assert fact is not None
    assert (fact.path, fact.body["outcome"]) == ("permits/prm_1/report", "applied")
    outbox.done(fact)
    assert list(tmp_path.glob("*.facts")) == []


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, a_fact())
    assert SECRET in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_last_line_that_lacks_only_its_end_is_whole(tmp_path: Path) -> None:
    path = left_by_the_dead(tmp_path, a_fact("prm_1"), a_fact("prm_2"))
    path.write_bytes(path.read_bytes()[:-1])
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    assert outbox.waiting == 2


@pytest.mark.parametrize("cut", [1, 5, 40, -2])
def test_half_a_last_line_costs_only_itself(tmp_path: Path, cut: int) -> None:
    path = left_by_the_dead(tmp_path, a_fact("prm_1"), a_fact("prm_2"))
    whole = path.read_bytes()
    end_of_first = whole.index(b"\n") + 1
    path.write_bytes(whole[:cut] if cut < 0 else whole[: end_of_first + cut])
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    first = outbox.take()
    assert first is not None
    assert first.path == "permits/prm_1/report"
    assert outbox.waiting == 1
    outbox.done(first)
    assert list(tmp_path.glob("*.facts")) == []


def test_a_damaged_line_is_passed_over_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = left_by_the_dead(tmp_path, a_fact("prm_1"), a_fact("prm_2"))
    path.write_bytes(path.read_bytes().replace(b"applied", b"unknown", 1))
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    assert [outbox.take().path, outbox.take()] == ["permits/prm_2/report", None]  # type: ignore[union-attr]
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    "path",
    ["runs/run_1/effects", "runs/run_1/permits", "effects/eff_1/dispatch", "runs/run_1/complete",
     "runs/run_1/steps", "steps/ste_1/claim", "runs/run_1/stops", "permits/../runs/run_1/complete"],
)  # fmt: skip
def test_nothing_that_could_begin_or_end_work_is_ever_told_later(tmp_path: Path, path: str) -> None:
    """Written by hand, well formed and checked: the reader does not take it, and puts it aside."""
    good = a_fact()
    journal = Journal.create(tmp_path)
    journal.append({"fact": {**vars(good), "path": path}}, durable=True)
    journal.close()
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    assert outbox.take() is None
    told = (tmp_path / REJECTED).read_text()
    assert path in told
    assert "never told later" in told
    assert SECRET not in told


def test_a_step_is_finished_after_its_reports_and_reports_wait_for_nobody(tmp_path: Path) -> None:
    left_by_the_dead(tmp_path, a_fact("prm_1"), a_fact("prm_2"), a_finish("ste_1"), a_finish("ste_2"))
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    taken = [outbox.take() for _ in range(3)]
    assert [fact.path for fact in taken if fact] == [
        "permits/prm_1/report",
        "permits/prm_2/report",
        "steps/ste_2/finish",
    ]
    assert outbox.take() is None
    for fact in taken:
        assert fact is not None
        outbox.done(fact)
    last = outbox.take()
    assert last is not None
    assert last.path == "steps/ste_1/finish"


def test_a_full_buffer_costs_the_copy_and_never_the_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = an_outbox(tmp_path, max_bytes=100)
    first, second = a_fact("prm_1"), a_fact("prm_2")
    assert outbox.keep(first)
    assert outbox.keep(second)
    assert (outbox.is_kept(first.key), outbox.is_kept(second.key)) == (True, False)
    assert "wait there to be delivered" in caplog.text
    outbox.done(first)
    outbox.close()
    assert "1 reports are lost" in caplog.text


def test_a_disk_that_fails_half_way_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = an_outbox(tmp_path)
    outbox.keep(a_fact("prm_1"))
    write = os.write

    def full(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", broken)
        return write(fd, data[:20])

    def broken(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    second = a_fact("prm_2")
    assert outbox.keep(second)
    monkeypatch.setattr(os, "write", write)
    assert not outbox.is_kept(second.key)
    outbox.keep(a_fact("prm_3"))
    outbox.close()
    assert "No space left" in caplog.text
    later = an_outbox(tmp_path)
    later.adopt()
    assert [later.take().path[8:13], later.take().path[8:13]] == ["prm_1", "prm_3"]  # type: ignore[union-attr]


def test_a_forked_child_takes_nothing_of_its_parent_with_it(tmp_path: Path) -> None:
    """Nor does it hold the parent's file: that could be adopted as soon as the parent is gone."""
    outbox = an_outbox(tmp_path)
    outbox.keep(mine := a_fact("prm_1"))
    outbox.leave(mine, OSError())
    child = os.fork()
    if not child:
        ok = outbox.keep(a_fact("prm_2")) and outbox.is_kept(mine.key) is False and outbox.waiting == 1
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert outbox.waiting == 1
    outbox.adopt()
    assert outbox.waiting == 2
    outbox.close()
    later = an_outbox(tmp_path)
    later.adopt()
    assert later.waiting == 2


def test_a_file_of_somebody_else_or_behind_a_link_is_not_taken(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = left_by_the_dead(elsewhere, a_fact())
    (tmp_path / "x.facts").symlink_to(path)
    (tmp_path / "y.facts").mkdir()
    outbox = an_outbox(tmp_path)
    outbox.adopt()
    assert outbox.waiting == 0
