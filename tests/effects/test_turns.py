"""Model turns: a partial output is kept or dropped by rule and completes nothing; a spend is told, or not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from effects import drain, ends, settle
from effects.settle import AlreadyReported, Reported, Told
from runs import gate, rules
from runs.access import SET_UP
from runs.guard import Opened
from runs.models import Evidence, EvidencePayload, Run, Turn
from runs.rules import Rules
from runs.turns import NoTurn, Spend
from tests.wire import agent_of
from tests.worlds import World, fresh, kinds_of, lapse

pytestmark = pytest.mark.django_db
TEXT = "The books for June are nearly\x1b[2J closed: \u202e…"
BYTES = TEXT.encode()
SPEND = Spend("large-3", 1200, 340, "0.012 USD")
TOLD = {"model": "large-3", "tokens_in": 1200, "tokens_out": 340, "cost": "0.012 USD"}


@pytest.fixture
def run(world: World) -> Run:
    return world.run()


def begun(world: World, run: Run) -> Opened:
    opened = gate.model(world.ask(run, step_key="think", op_class="model_turn"))
    assert isinstance(opened, Opened)
    return opened


def report(world: World, turn: Opened, outcome: str = "partial", **told: Any) -> Reported:
    permit = turn.permit
    return settle.report(
        actor=world.agent, permit_id=permit.pk, token=permit.token, told=Told(outcome, **told)
    )


def decide(world: World, partial_output: str) -> None:
    now = Rules.model_validate({"partial_output": partial_output})
    rules.change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=0, rules=now)


def payload(run: Run, kind: str) -> dict[str, Any]:
    line = Evidence.objects.filter(stream=run.pk, kind=kind).order_by("-seq")[0]
    found: dict[str, Any] = json.loads(EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body)
    return found


CELLS = [
    # rule, mode of the stop, when it is told, what the line is called, what step and run become
    ("keep", "cancel", "during", "permit.reported", "PARTIAL", "CANCELLED"),
    ("drop", "cancel", "during", "permit.reported", "PARTIAL", "CANCELLED"),
    ("keep", "pause", "during", "permit.reported", "PARTIAL", "PAUSED"),
    ("drop", "pause", "during", "permit.reported", "PARTIAL", "PAUSED"),
    ("keep", "cancel", "lost", "permit.reported_late", "FAILED", "CANCELLED"),
    ("drop", "cancel", "lost", "permit.reported_late", "FAILED", "CANCELLED"),
    ("keep", "abandon", "after the end", "permit.reported_late", "PARTIAL", "ABANDONED"),
    ("drop", "abandon", "after the end", "permit.reported_late", "PARTIAL", "ABANDONED"),
]


@pytest.mark.parametrize(("rule", "mode", "when", "line", "step", "status"), CELLS)
def test_a_turn_that_a_stop_cut_off_keeps_or_drops_its_output_by_rule(
    world: World, run: Run, rule: str, mode: str, when: str, line: str, step: str, status: str
) -> None:
    decide(world, rule)
    turn = begun(world, run)
    world.stop(run, mode=mode)
    if when == "lost":
        lapse(turn.permit, turn.step)
        drain.drain_run(run.pk)
    reported = report(world, turn, spend=SPEND, partial_output=TEXT)
    assert reported.late == (when != "during")
    if when != "lost":
        world.finish(turn.step, "succeeded")
    drain.drain_run(run.pk)
    kept = Turn.objects.get(permit=turn.permit)
    assert (kept.output, kept.output_kept) == ((TEXT, True) if rule == "keep" else ("", False))
    assert (kept.output_size, kept.output_digest) == (len(BYTES), hashlib.sha256(BYTES).hexdigest())
    assert (kept.model, kept.tokens_in, kept.tokens_out, kept.cost) == tuple(TOLD.values())
    told = payload(run, line)
    sizes = {"size": len(BYTES), "sha256": kept.output_digest, "kept": rule == "keep"}
    assert (told["spend"], told["partial_output"]) == (TOLD, sizes)
    assert "June" not in json.dumps(list(EvidencePayload.objects.values_list("body", flat=True)))
    assert (fresh(turn.step).status, fresh(run).status) == (step, status)


@pytest.mark.parametrize(
    ("outcome", "says", "status"),
    [
        ("partial", "succeeded", "PARTIAL"),
        ("partial", "failed", "FAILED"),
        ("applied", "succeeded", "SUCCEEDED"),
    ],
)
def test_a_partial_output_is_no_completed_task_whatever_its_worker_says(
    world: World, run: Run, outcome: str, says: str, status: str
) -> None:
    turn = begun(world, run)
    report(world, turn, outcome, partial_output=TEXT if outcome == "partial" else None)
    assert world.finish(turn.step, says).status == status


def test_a_later_turn_that_came_to_its_end_completes_the_step(world: World, run: Run) -> None:
    step = world.claimed(run, op_class="model_turn")
    for outcome in ("partial", "applied"):
        opened = gate.model(world.ask_of(step, op_class="model_turn"))
        assert isinstance(opened, Opened)
        report(world, opened, outcome)
    assert world.finish(step).status == "SUCCEEDED"


def test_what_a_lost_turn_spent_is_not_reported_and_never_zero(world: World, run: Run) -> None:
    turn = begun(world, run)
    lapse(turn.permit, turn.step)
    drain.drain_run(run.pk)
    assert payload(run, "permit.lost") == {"spend": "not reported"}
    assert "not reported" in fresh(turn.step).detail
    assert not Turn.objects.exists()
    late = report(world, turn, "unknown", spend=Spend(tokens_out=7))
    assert late.late
    assert (Turn.objects.get().tokens_in, Turn.objects.get().tokens_out) == (None, 7)


def test_what_a_turn_spent_may_come_after_its_report(world: World, run: Run) -> None:
    turn = begun(world, run)
    report(world, turn, "applied")
    ends_before = kinds_of(run)
    assert not report(world, turn, "applied").late
    assert kinds_of(run) == ends_before
    assert report(world, turn, "applied", spend=SPEND).late
    assert not report(world, turn, "applied", spend=Spend(cost="nothing")).late, "told once is told"
    assert (Turn.objects.get().cost, kinds_of(run).count("permit.reported_late")) == ("0.012 USD", 1)
    with pytest.raises(AlreadyReported):
        report(world, turn, "partial", partial_output=TEXT)


def test_a_turn_never_completes_a_run_that_a_stop_ended(world: World, run: Run) -> None:
    turn = begun(world, run)
    world.stop(run)
    report(world, turn, "applied", spend=SPEND)
    assert world.finish(turn.step).status == "SUCCEEDED"
    assert fresh(turn.step).reported_after_stop
    drain.drain_run(run.pk)
    assert not isinstance(ends.complete(actor=world.agent, run_id=run.pk, seen=1), Run)
    assert fresh(run).status == "CANCELLED"


def test_only_a_model_turn_has_these(world: World, run: Run) -> None:
    opened = world.opened(run)
    for told in ({"spend": SPEND}, {"partial_output": ""}):
        with pytest.raises(NoTurn):
            report(world, opened, "partial", **told)
    assert fresh(opened.permit).state == "OPEN"


# --- the wire ---------------------------------------------------------------------------------------------


def test_turns_are_reported_and_read_over_the_api(world: World) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    body = {"boundary": "model", "class": "model_turn", "worker": "w-1", "seen_version": 1}
    asked = [agent.post(f"/runs/{run['id']}/permits", {**body, "step": {"key": key}}) for key in "ab"]
    first, second = (said.data["permit"] for said in asked)
    told = agent.report(first, "partial", spend=TOLD, partial_output=TEXT)
    assert told.status == 200
    assert TEXT not in told.text
    items = agent.get(f"/runs/{run['id']}/turns").data["items"]
    assert [item["permit_id"] for item in items] == [second["id"], first["id"]]
    assert (items[0]["tokens_in"], items[0]["state"], items[0]["partial_output"]) == (None, "OPEN", None)
    assert (items[1]["partial_output"], items[1]["output_size"]) == (TEXT, len(BYTES))
    assert {name: items[1][name] for name in TOLD} == TOLD


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("outcome", {"outcome": "applied", "partial_output": "x"}),
        ("outcome", {"outcome": "not_sent", "spend": TOLD}),
        ("partial_output", {"partial_output": "x" * 65_537}),
        ("partial_output", {"partial_output": "a\0b"}),
        ("partial_output", {"partial_output": ["a"]}),
        ("spend.tokens_in", {"spend": {"tokens_in": -1}}),
        ("spend.tokens_in", {"spend": {"tokens_in": 1.5}}),
        ("spend.cost", {"spend": {"cost": 0.5}}),
        ("spend.colour", {"spend": {"colour": "red"}}),
    ],
)
def test_a_spend_or_an_output_that_can_not_be_is_refused(
    world: World, field: str, fields: dict[str, Any]
) -> None:
    agent = agent_of(world.workspace)
    run = agent.run()
    body = {"boundary": "model", "class": "model_turn", "step": {"key": "a"}}
    permit = agent.post(f"/runs/{run['id']}/permits", {**body, "worker": "w", "seen_version": 1}).data[
        "permit"
    ]
    said = agent.report(permit, **{"outcome": "partial", **fields})
    assert (said.status, said.problem) == (422, "invalid-request")
    where = said.data["errors"][0]["field"]
    assert where.startswith(field) or "did not come to its end" in said.text or "spent nothing" in said.text
    assert not Turn.objects.exists()
    effect = agent.permitted(run)["permit"]
    assert agent.report(effect, "applied", spend=TOLD).status == 422
