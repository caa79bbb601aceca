"""Failures 1 to 4: an agent is held, frozen, killed, or comes too late."""

from __future__ import annotations

import time
from datetime import datetime

from .api import Json
from .engine import FAILURE, Drill
from .lab import Lab, first
from .processes import Agent
from .proxy import Proxy, Rule, permit_of, time_left

# The longest end of a permit that a drill waits for.
LONGEST_PERMIT_S = 20.0
MARGIN_S = 1.0  # that a permit must have left, so that what ends its holder is the stop
RETRY_IN_S = 2.0


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
    asked_late, sleeper = frozen_after_check(lab, proxy, f"{lab.key}-late", late)
    asked, agent = frozen_after_check(lab, proxy, lab.key, stopped)
    run = lab.run()
    lab.step("Two agents have a permit each, and are frozen before their second look.")
    stop = lab.stopped(lab.stop(run))
    lab.situation("Permits that the stop lists as in flight", 1, len(stop["in_flight"]))
    lab.situation("Its permit has time left when its holder goes on", True, time_left(asked) > MARGIN_S)
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


def resume(lab: Lab, asked: Rule, agent: Agent, who: str) -> None:
    """The answer of the gate arrives at a frozen agent, which then goes on as if nothing had been."""
    lab.situation("The gate's answer has left the network", True, asked.release())
    agent.thaw()
    lab.step(f"{who} goes on.")


def out_of_time(lab: Lab, asked: Rule) -> bool:
    """Wait until the permit has ended; whether it ends soon enough to be waited for."""
    left = time_left(asked)
    if left > LONGEST_PERMIT_S:
        return False
    lab.step(f"Waiting for the end of a permit, {max(0.0, left):.0f} s.")
    time.sleep(max(0.0, left + 0.2))
    return True


def die_after_request(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    lab.provider.fault("hold_after", key, times=1)
    agent = lab.agent("ways:charge", lease_s=1.5, effect=key)
    held = lab.provider.ledger.wait("held", key)
    lab.situation(
        "Requests that the provider has applied and not answered", 1, lab.provider.applied(key), held
    )
    lab.situation("Exit code of the agent", -9, agent.kill())
    run = lab.run()
    lab.step("The provider has applied the request; its agent was killed before the answer.")
    lab.effect(run, key, "UNKNOWN")
    lab.step("Its lease ran out: the effect is unknown.")
    lab.ended(lab.agent("ways:charge", effect=key), "MustWait")
    lab.step("A second agent asked with the same key, and may not send.")
    lab.stopped(lab.stop(run))
    lab.ended(lab.agent("ways:charge", effect=key), "StopRequested")
    lab.sends(key, 1)
    lab.lines(run, {"permit.opened": 1, "permit.lost": 1, "effect.unknown": 1, "effect.confirmed": 0})
    lab.rests(run, "UNKNOWN", "awaiting verification")


def retry_after_cancel(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    lab.provider.fault("answer", key, times=1, status=402)
    agent = lab.agent("ways:declined_and_again", effect=key)
    lab.reached(agent, "declined", "The provider has declined the first request")
    run = lab.run()
    decide_on_retry(lab, run, RETRY_IN_S)
    lab.step(f"The provider declined it; another try is scheduled in {RETRY_IN_S:.0f} s.")
    lab.stopped(lab.stop(run))
    lines = lab.api.lines(run["id"])
    due, at = first(lines, "retry.scheduled")["payload"]["due_at"], first(lines, "stop.acknowledged")["at"]
    lab.situation("The stop came before the retry was due", True, moment(at) < moment(due))
    agent.go()
    lab.reached(agent, "asking", "The agent tries again by itself, after the stop")
    lab.ended(agent, "StopRequested")
    lab.step("Waiting for the timer.")
    lines = lab.lines(run, {"retry.refused": 1, "dispatch.refused": 1, "retry.due": 0, "permit.opened": 1})
    refused = first(lines, "retry.refused")
    late = bool(refused) and moment(refused["at"]) >= moment(due)
    lab.evidence("The timer fired when it was due, and was refused then", True, late)
    versions = f"{refused.get('carried_version')} and {refused.get('current_version')}"
    lab.evidence("Versions that its refusal names", "1 and 2", versions)
    lab.sends(key, 1, applied=0)
    lab.rests(run, "CANCELLED", "stopped after safe settlement")


def decide_on_retry(lab: Lab, run: Json, delay_s: float) -> None:
    """Decide on another try of the run's only step, as an operator's tool would."""
    step = lab.api.get(f"runs/{run['id']}/steps")["items"][0]
    body = {"seen_version": run["cancel_version"], "delay_s": delay_s, "reason": "DRILL"}
    said = lab.api.ask("POST", f"steps/{step['id']}/retry", body)
    status = said.data.get("status") if isinstance(said.data, dict) else said.status
    lab.situation("The step waits for its retry", "RETRY_WAIT", status)


def moment(text: str) -> datetime:
    """A time on the wire."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


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

DIE_AFTER_REQUEST = Drill(
    "process-dies-after-request",
    "Process dies after the provider request",
    "What was sent by an agent that died is unknown, not failed and not done; nobody sends it again.",
    FAILURE,
    die_after_request,
)
RETRY_AFTER_CANCEL = Drill(
    "retry-timer-after-cancel",
    "Retry timer fires after cancellation",
    "A retry that was scheduled before the stop is refused when its timer fires, and leaves that refusal.",
    FAILURE,
    retry_after_cancel,
)

ALL = [CANCEL_BEFORE_DISPATCH, PAUSE_AFTER_CHECK, DIE_AFTER_REQUEST, RETRY_AFTER_CANCEL]
