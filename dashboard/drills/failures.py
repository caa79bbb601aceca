"""Failures 1 to 4: an agent is held, frozen, killed, or comes too late."""

from __future__ import annotations

import time

from .engine import FAILURE, Drill
from .lab import Lab, first
from .processes import Agent
from .proxy import Proxy, Rule

# The longest end of a permit that a drill waits for.
LONGEST_PERMIT_S = 20.0


def cancel_before_dispatch(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    agent = lab.agent("ways:claim_then_charge", effect=key)
    lab.reached(agent, "claimed", "The agent has claimed its step")
    run = lab.run()
    lab.step("A step is claimed; nothing was asked for yet.")
    stop = lab.stopped(lab.stop(run))
    agent.go()
    lab.reached(agent, "asking", "The agent asks for a permit after the stop")
    lab.ended(agent, "StopRequested")
    lab.step("The agent asked for a permit, and ended.")
    lab.sends(key, 0)
    expected = {"step.claimed": 1, "stop.acknowledged": 1, "step.withheld": 1, "dispatch.refused": 1}
    refused = first(lab.lines(run, {**expected, "permit.opened": 0}), "dispatch.refused")
    versions = f"{refused.get('carried_version')} and {refused.get('current_version')}"
    lab.evidence("Versions that the refusal names", "1 and 2", versions)
    lab.evidence("Stop that the agent was told", stop["id"], agent.told("stop_id"))
    lab.rests(run, "CANCELLED", "stopped before effect")


def pause_after_check(lab: Lab) -> None:
    proxy = lab.proxy()
    stopped, late = f"{lab.key}:stopped", f"{lab.key}:late"
    asked, agent = frozen_after_check(lab, proxy, lab.key, stopped)
    run = lab.run()
    asked_late, sleeper = frozen_after_check(lab, proxy, f"{lab.key}-late", late)
    lab.step("Two agents have a permit each, and are frozen before their second look.")
    stop = lab.stopped(lab.stop(run))
    lab.situation("Permits that the stop lists as in flight", 1, len(stop["in_flight"]))
    resume(lab, asked, agent, "The agent whose run was stopped")
    lab.ended(agent, "StopRequested")
    over = out_of_time(lab, asked_late)
    lab.situation("The other permit has ended while its holder was frozen", True, over)
    resume(lab, asked_late, sleeper, "The agent whose permit ended")
    lab.ended(sleeper, "PermitExpired")
    for key in (stopped, late):
        lab.sends(key, 0)
    lab.lines(run, {"permit.opened": 1, "stop.fenced": 1, "permit.not_sent": 1, "effect.dispatched": 1})
    lab.lines(lab.run(f"{lab.key}-late"), {"permit.opened": 1, "permit.not_sent": 1})
    lab.rests(run, "CANCELLED", "stopped after safe settlement")


def frozen_after_check(lab: Lab, proxy: Proxy, run_key: str, key: str) -> tuple[Rule, Agent]:
    """An agent to which the gate has given a permit, frozen before it hears of it."""
    asked = proxy.rule("hold", "POST", r"/effects$")
    agent = lab.agent("ways:charge", key=run_key, url=proxy.url, effect=key)
    lab.situation(
        "The gate has given the agent a permit", True, asked.come.wait(20) and bool(permit_of(asked))
    )
    lab.situation("The agent is frozen, by the word of the kernel", True, agent.freeze())
    return asked, agent


def permit_of(asked: Rule) -> dict[str, float]:
    """The permit in the answer that the network holds."""
    found: dict[str, float] = (asked.data or {}).get("permit") or {}
    return found


def resume(lab: Lab, asked: Rule, agent: Agent, who: str) -> None:
    """The answer of the gate arrives at a frozen agent, which then goes on as if nothing had been."""
    lab.situation("The gate's answer has left the network", True, asked.release())
    agent.thaw()
    lab.step(f"{who} goes on.")


def out_of_time(lab: Lab, asked: Rule) -> bool:
    """Wait until the permit has ended; whether it ends soon enough to be waited for."""
    ttl = float(permit_of(asked)["permit_ttl_s"])
    if ttl > LONGEST_PERMIT_S:
        return False
    lab.step(f"Waiting for the end of a permit, up to {ttl:.0f} s.")
    time.sleep(max(0.0, asked.come_at + ttl + 0.2 - time.monotonic()))
    return True


CANCEL_BEFORE_DISPATCH = Drill(
    "cancel-between-claim-and-dispatch",
    "Cancel between claim and dispatch",
    "A worker that holds a claimed step gets no permit after the stop; nothing is sent.",
    FAILURE,
    cancel_before_dispatch,
)
PAUSE_AFTER_CHECK = Drill(
    "worker-pauses-after-check",
    "Worker pauses after its check",
    "A worker that was frozen between its permit and its send sends nothing: its second look is refused, or "
    "its permit has ended.",
    FAILURE,
    pause_after_check,
)

ALL = [CANCEL_BEFORE_DISPATCH, PAUSE_AFTER_CHECK]
