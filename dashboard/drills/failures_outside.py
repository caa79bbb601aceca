"""Failures 5 to 7: the store is away, a browser's answer is lost, the controller dies in its drain."""

from __future__ import annotations

import uuid

from . import browser
from .api import Json
from .checks import NotMade
from .engine import FAILURE, Drill
from .failures import MARGIN_S
from .instance import Private
from .lab import Lab
from .proxy import time_left
from .waiting import until

LONG_S = 120  # longer than a server takes to start, also on a busy machine


def store_unavailable(lab: Lab) -> None:
    server, proxy = ours(lab), lab.proxy()
    keys = [f"{lab.key}:{name}" for name in ("before", "meanwhile", "permitted")]
    working = lab.agent("ways:charge_and_another", patience_s=1.5, effect=keys[0], other=keys[1])
    lab.reached(working, "charged", "An agent is at work")
    asked = proxy.rule("hold", "POST", r"/effects$")
    permitted = lab.agent("ways:charge", key=f"{lab.key}-2", url=proxy.url, patience_s=1.5, effect=keys[2])
    lab.situation("Another agent was given a permit, and has not looked again", True, asked.come.wait(20))
    run, press = lab.run(), uuid.uuid4().hex
    with server.without_store():
        lab.step("The database is away.")
        lab.situation("What /readyz answers", 503, until(lambda: not_ready(lab), 10))
        lab.situation("Its permit has time left", True, time_left(asked) > MARGIN_S)
        asked.release()
        working.go()
        lab.ended(working, "GateUnavailable")
        lab.ended(permitted, "GateUnavailable")
        lab.step("Both agents asked, and sent nothing.")
        said = lab.stop(run, key=press)
        lab.evidence("Answer to a press of Stop meanwhile", "503, recorded: no", told(said.status, said.data))
    lab.step("The database is back.")
    lab.situation("What /readyz answers afterwards", 200, until(lambda: ready(lab), 10))
    lab.evidence("The run meanwhile", "ACTIVE", lab.api.get(f"runs/{run['id']}")["status"])
    for key, count in zip(keys, (1, 0, 0), strict=True):
        lab.sends(key, count)
    stop = lab.stopped(lab.stop(run, key=press))
    lab.evidence("Presses of the stop, asked for again with its key", 1, stop["presses"])
    lab.stop(lab.run(f"{lab.key}-2"), mode="abandon")
    lab.lines(run, {"stop.acknowledged": 1, "permit.opened": 1, "effect.confirmed": 1})
    lab.rests(run, "CANCELLED", "partially completed")


def ours(lab: Lab) -> Private:
    """The private instance, which may be treated so. Raises NotMade for any other."""
    if lab.private is None:
        raise NotMade("This drill runs on a private instance only.")
    return lab.private


def not_ready(lab: Lab) -> int:
    """The status of /readyz, as soon as it is not 200."""
    status = lab.api.ready()
    return 0 if status == 200 else status


def ready(lab: Lab) -> int:
    """The status of /readyz, as soon as it is 200."""
    return 200 if lab.api.ready() == 200 else 0


def told(status: int, data: Json | None) -> str:
    """What a press of Stop was told."""
    recorded = (data or {}).get("recorded", "not said")
    return f"{status}, recorded: {'no' if recorded is False else recorded}"


def browser_mid_action(lab: Lab) -> None:
    program, missing = browser.find()
    if missing:
        raise NotMade(missing)
    key, other = f"{lab.key}:click", f"{lab.key}:next-click"
    held = lab.provider.fault("hold_after", key, times=1)
    lab.provider.fault("cut_short", key)
    agent = lab.agent("ways:click_and_another", browser=program, effect=key, other=other)
    clicked = lab.provider.ledger.wait("held", key, within_s=45)
    lab.situation("Clicks that have reached the provider, unanswered", 1, lab.provider.applied(key), clicked)
    lab.step("A browser has clicked; the provider has applied it and not answered.")
    run = lab.run()
    stop = lab.stopped(lab.stop(run))
    points = [one["boundary"] for one in stop["in_flight"]]
    lab.situation("What the stop lists as in flight", "act", ", ".join(points))
    held.let_go.set()
    lab.situation("Answers that were cut off", True, lab.provider.ledger.wait("cut", key))
    lab.step("The answer was cut off.")
    lab.ended(agent, "StopRequested", within_s=40)
    lab.sends(key, 1)
    lab.sends(other, 0)
    lab.lines(run, {"permit.opened": 1, "effect.unknown": 1, "effect.confirmed": 0, "act.refused": 1})
    lab.effect(run, key, "UNKNOWN")
    lab.rests(run, "UNKNOWN", "awaiting verification")


def controller_restarts(lab: Lab) -> None:
    server, press = ours(lab), uuid.uuid4().hex
    key, other = f"{lab.key}:charge", f"{lab.key}:next-charge"
    held = lab.provider.fault("hold_after", key, times=1)
    agent = lab.agent("ways:charge_and_another", lease_s=LONG_S, effect=key, other=other)
    sent = lab.provider.ledger.wait("held", key)
    lab.situation("Requests in flight at the provider", 1, lab.provider.applied(key), sent)
    run = lab.run()
    stop = lab.stopped(lab.stop(run, key=press, deadline_s=LONG_S))
    lab.situation("Permits that the stop lists as in flight", 1, len(stop["in_flight"]))
    lab.situation(
        "The run, when its controller dies", "CANCELLING", lab.api.get(f"runs/{run['id']}")["status"]
    )
    lab.situation("Exit code of the controller", -9, server.kill())
    lab.step("The controller was killed in the middle of the drain.")
    server.start()
    lab.step("It was started again on its data.")
    again = lab.stop(run, key=press, deadline_s=LONG_S).data
    lab.evidence("Stop that the same press, asked again, is told of", stop["id"], again.get("id"))
    lab.evidence("Presses of it", 1, again.get("presses"))
    lab.evidence("The run after the restart", "CANCELLING", lab.api.get(f"runs/{run['id']}")["status"])
    held.let_go.set()
    agent.go()
    lab.ended(agent, "StopRequested")
    lab.step("The provider answered; the agent reported it, asked for more, and ended.")
    lab.sends(key, 1)
    lab.sends(other, 0)
    expected = {"stop.acknowledged": 1, "stop.fenced": 1, "stop.quiet": 1, "stop.closed": 1}
    lab.lines(run, {**expected, "effect.confirmed": 1, "dispatch.refused": 1, "permit.opened": 1})
    lab.rests(run, "CANCELLED", "partially completed")


STORE_UNAVAILABLE = Drill(
    "store-unavailable",
    "Cancellation store unavailable",
    "While the database is away nothing new is sent, and a press of Stop is told that it was NOT recorded; "
    "afterwards the same press is recorded once.",
    FAILURE,
    store_unavailable,
    ("processes", "private instance"),
)
BROWSER_MID_ACTION = Drill(
    "browser-mid-action",
    "Browser action mid-flight",
    "A click whose answer was lost stays unknown until somebody looks, and no click follows it.",
    FAILURE,
    browser_mid_action,
    ("processes", "browser"),
)
CONTROLLER_RESTARTS = Drill(
    "controller-restarts-in-drain",
    "Controller restarts during the drain",
    "A controller that is killed in the middle of a drain goes on with the same stop once it is started "
    "again.",
    FAILURE,
    controller_restarts,
    ("processes", "private instance"),
)

ALL = [STORE_UNAVAILABLE, BROWSER_MID_ACTION, CONTROLLER_RESTARTS]
