"""Every mode meets every status of a run: by the verb, over the API, on the page; one table by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from effects import drain, ends
from runs import stops
from runs.models import Run, StopRequest
from tests.dashboard.scenes import browser
from tests.wire import agent_of
from tests.worlds import World, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I4")]
MODES = ("pause", "cancel", "abandon")
# Where the run stands: for each mode where it leaves it, and what the press came to.
TABLE: dict[str, tuple[tuple[str, str], ...]] = {
    "ACTIVE": (("PAUSING", "recorded"), ("CANCELLING", "recorded"), ("ABANDONED", "recorded")),
    "PAUSING": (("PAUSING", "joined"), ("CANCELLING", "recorded"), ("ABANDONED", "recorded")),
    "PAUSED": (("PAUSED", "joined"), ("CANCELLING", "recorded"), ("ABANDONED", "recorded")),
    "CANCELLING": (("CANCELLING", "joined"), ("CANCELLING", "joined"), ("ABANDONED", "recorded")),
    "CANCELLING_TIMEOUT": (
        *(("CANCELLING_TIMEOUT", "joined"), ("CANCELLING_TIMEOUT", "joined")),
        ("ABANDONED", "recorded"),
    ),
    "UNKNOWN": (("UNKNOWN", "joined"), ("UNKNOWN", "joined"), ("ABANDONED", "recorded")),
    "CANCELLED": (("CANCELLED", "finished"),) * 3,
    "COMPLETED": (("COMPLETED", "finished"),) * 3,
    "FAILED": (("FAILED", "finished"),) * 3,
    "ABANDONED": (("ABANDONED", "finished"),) * 3,
}
each_status = pytest.mark.parametrize("before", TABLE)


def cells(world: World, before: str) -> Iterator[tuple[Run, StopRequest | None, str, str, str]]:
    """A run of its own for each mode, the stop that is there, the mode, and what the table says."""
    for mode, (after, answer) in zip(MODES, TABLE[before], strict=True):
        run = brought_to(world, before, mode)
        yield run, stops.stop_of(run), mode, after, answer


def brought_to(world: World, status: str, key: str) -> Run:
    """A run with one charge, brought there by the verbs; a stop that is there is Alice's."""
    run = world.run(key)
    opened = world.opened(run, "charge:1")
    if status in ("COMPLETED", "FAILED"):
        world.report(opened)
        if status == "COMPLETED":
            ends.complete(actor=world.agent, run_id=run.pk, seen=1)
        else:
            ends.fail(actor=world.agent, run_id=run.pk)
    elif status != "ACTIVE":
        by = {"PAUSING": "pause", "PAUSED": "pause", "ABANDONED": "abandon"}.get(status, "cancel")
        stop = world.stop(run, mode=by).stop
        if status == "CANCELLING_TIMEOUT":
            assert stops.force_deadline(actor=world.alice, stop_id=stop.pk).forced
        if status in ("PAUSED", "UNKNOWN", "CANCELLED"):
            world.report(opened, "unknown" if status == "UNKNOWN" else "applied")
        drain.drain_run(run.pk)
    assert fresh(run).status == status
    return fresh(run)


def is_milder(mode: str, there: StopRequest | None, answer: str) -> bool:
    return there is not None and answer == "joined" and MODES.index(mode) < MODES.index(there.mode)


@each_status
def test_a_mode_only_ever_gets_stronger(world: World, before: str) -> None:
    for run, there, mode, after, answer in cells(world, before):
        moves = answer == "recorded"
        said = world.stop(run, by=world.bob, mode=mode)
        assert (fresh(run).status, said.answer, said.press.mode) == (after, answer, mode)
        assert fresh(run).cancel_version == run.cancel_version + moves
        if there is not None:
            assert (said.stop.pk != there.pk) == moves
            assert (fresh(there).superseded_by_id == said.stop.pk, said.weaker is not None) == (moves, moves)
        assert StopRequest.objects.filter(run=run, superseded_by=None, closed_at=None).count() <= 1


@each_status
def test_the_api_says_the_same(world: World, before: str) -> None:
    agent = agent_of(world.workspace)
    for run, there, mode, after, answer in cells(world, before):
        moves = answer == "recorded"
        said = agent.stop({"id": run.pk}, {"mode": mode})
        assert (said.status, fresh(run).status) == (201 if moves else 200, after)
        assert said.data["mode"] == (mode if moves or there is None else there.mode)
        assert said.data["already_finished"] == (answer == "finished")
        assert ("the mode stays" in said.data["sentence"]) == is_milder(mode, there, answer)
        if there is not None and moves:
            old = agent.get(f"/stops/{there.pk}").data
            assert (old["superseded_by_id"], old["closed_because"]) == (said.data["id"], "superseded")


@each_status
def test_the_page_says_the_same(world: World, before: str) -> None:
    bob, means = browser(world.bob), {"pause": "is held", "cancel": "is refused", "abandon": "no longer wait"}
    for run, there, mode, after, answer in cells(world, before):
        moves, form = answer == "recorded", {"key": f"k-{mode}", "mode": mode}
        said = bob.post(f"/runs/{run.pk}/stop", form, headers={"Accept": "application/json"})
        told = said.json()["sentence"]
        assert (said.status_code, fresh(run).status) == (201 if moves else 200, after)
        assert (means[mode] in told) == moves
        assert ("which is milder: the mode stays" in told) == is_milder(mode, there, answer)
        assert ("had already finished" in told) == (answer == "finished")
        assert ("It replaces stop #" in told) == bool(there and moves)
        if there is not None and moves:
            assert f"It replaces stop #{there.number} ({there.mode}, Alice)." in told
