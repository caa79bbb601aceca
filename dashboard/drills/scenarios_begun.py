"""Four scenarios in which something has begun when the stop comes: a turn, a read, a write, a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .engine import SCENARIO, Drill
from .files import HALF, WHOLE
from .lab import Lab, first
from .waiting import until

BEAT_S = 0.3  # so often an agent asks whether a stop is known


def model_reasons(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    agent = lab.agent("scenario_ways:reason", beat_s=BEAT_S, effect=key)
    lab.reached(agent, "reasoning", "The model is in the middle of a turn")
    run = lab.run()
    lab.step("A model turn is under way.")
    lab.stopped(lab.stop(run))
    lab.situation("The turn was still under way at the stop", False, (agent.folder / "over").exists())
    lab.ended(agent, "StopRequested")
    lab.step("The turn was cut off at its next piece; the agent has ended.")
    lab.sends(key, 0)
    lines = lab.lines(run, {"stop.acknowledged": 1, "permit.reported": 1, "effect.dispatched": 0})
    lab.evidence(
        "What the turn's report calls it", "partial", first(lines, "permit.reported")["payload"]["outcome"]
    )
    [turn] = lab.api.get(f"runs/{run['id']}/turns")["items"]
    text = turn["partial_output"] or ""
    lab.evidence("Its partial output is kept", "thought 0 …", text[:10], text.startswith("thought 0 "))
    spent = turn["tokens_out"] or 0
    lab.evidence("What it spent is kept, in tokens", "1 or more", spent, spent >= 1)
    lab.evidence(
        "The turn is called a completed task", False, step_of(lab, run, turn["step_id"]) == "SUCCEEDED"
    )
    lab.rests(run, "CANCELLED", "stopped before effect")


def read_begun(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    agent = lab.agent("scenario_ways:look", effect=key)
    lab.reached(agent, "reading", "A read is under way")
    run = lab.run()
    lab.step("A read is under way.")
    lab.stopped(lab.stop(run))
    agent.go()
    lab.reached(agent, "read", "The read returned after the stop")
    lab.ended(agent, "StopRequested")
    lab.step("The read returned, and the agent was refused what it wanted to do with it.")
    lab.sends(key, 0)
    lines = lab.lines(run, {"stop.acknowledged": 1, "permit.reported": 1, "dispatch.refused": 1})
    order = [line["kind"] for line in lines if line["kind"] in ("stop.acknowledged", "permit.reported")]
    lab.evidence(
        "The read's report stands after the stop",
        "stop, report",
        ", ".join(order),
        order[:1] == ["stop.acknowledged"],
    )
    lab.evidence("Effects on record", 0, len(lab.api.get(f"runs/{run['id']}/effects")["items"]))
    lab.rests(run, "CANCELLED", "stopped before effect")


def file_begun(lab: Lab) -> None:
    key = f"{lab.key}:file"
    agent = lab.agent("scenario_ways:write_files", effect=key)
    lab.reached(agent, "half", "One file is written, a second one half")
    run = lab.run()
    lab.step("One file is whole, the second is half written.")
    lab.stopped(lab.stop(run))
    agent.go()
    lab.ended(agent, "StopRequested")
    lab.step("The agent broke off at a safe point, and was refused the third file.")
    sizes = {name: size_of(agent.folder / f"file-{name}") for name in ("one", "two", "three")}
    lab.safety("Bytes of the first file", len(WHOLE), sizes["one"])
    lab.safety("Bytes of the second file: its first half", len(HALF), sizes["two"])
    lab.safety("Bytes of the third file: it is not there", 0, sizes["three"])
    lab.effect(run, f"{key}:one", "CONFIRMED")
    lab.effect(run, f"{key}:two", "PARTIAL")
    lab.evidence("Permits for the third file", 0, lab.permits(run, f"{key}:three"))
    lab.lines(run, {"effect.confirmed": 1, "effect.partial": 1, "dispatch.refused": 1})
    lab.rests(run, "CANCELLED", "partially completed")


def request_timed_out(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    lab.provider.fault("hold_after", key, times=1)
    agent = lab.agent("scenario_ways:time_out", effect=key)
    lab.reached(agent, "timed-out", "The agent has waited in vain for an answer")
    lab.situation("Requests that the provider has applied and not answered", 1, lab.provider.applied(key))
    run = lab.run()
    lab.step("The provider has applied it; its answer did not come in time.")
    lab.effect(run, key, "UNKNOWN")
    lab.stopped(lab.stop(run))
    agent.go()
    lab.ended(agent, "StopRequested")
    lab.step("The agent asked for the same key again, then for another: it may send neither.")
    lab.evidence("The same key, asked for again", "must wait", agent.told("again"))
    lab.sends(key, 1)
    lab.sends(f"{key}:next", 0)
    lab.lines(run, {"effect.unknown": 1, "permit.opened": 1, "effect.confirmed": 0, "effect.not_applied": 0})
    lab.rests(run, "UNKNOWN", "awaiting verification")


def size_of(path: Path) -> int:
    """Its bytes; 0 when there is none."""
    return path.stat().st_size if path.exists() else 0


def step_of(lab: Lab, run: dict[str, Any], step_id: str) -> str:
    """The status of that step, once it has ended."""

    def status() -> str:
        return str(lab.api.get(f"steps/{step_id}")["status"])

    until(lambda: status() not in ("CLAIMED", "DISPATCHED"), 8, 0.15)
    return status()


ALL = [
    Drill(
        "stop-while-the-model-reasons",
        "Stop while the model reasons",
        "A model turn is cut off: what it made and spent is kept, it is no completed task, nothing follows.",
        SCENARIO,
        model_reasons,
    ),
    Drill(
        "stop-during-a-read",
        "Stop during a read",
        "A read that was under way returns and is recorded; the effect that was to follow is refused.",
        SCENARIO,
        read_begun,
    ),
    Drill(
        "stop-during-a-local-write",
        "Stop during a local write",
        "A file that was half written is on record as partial, not as present; the next one is not begun.",
        SCENARIO,
        file_begun,
    ),
    Drill(
        "stop-after-a-request-timed-out",
        "Stop after an external request timed out",
        "A request whose answer never came stays unknown, and is not sent a second time.",
        SCENARIO,
        request_timed_out,
    ),
]
