"""Three scenarios about people: who decide, who press again and again, who resume."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from .api import Json, Said
from .engine import SCENARIO, Drill
from .lab import Lab, first
from .waiting import LONG_S, until

PRESSES = 50


def approval_waited_for(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    agent = lab.agent("scenario_ways:ask_people", effect=key)
    lab.reached(agent, "waiting", "An effect waits for people")
    run = lab.run()
    lab.situation("Reviews that are open", 1, sum(not one["closed_at"] for one in reviews(lab, run)))
    lab.step("A charge waits for somebody's approval.")
    lab.stopped(lab.stop(run))
    agent.go()
    lab.ended(agent, "StopRequested")
    lab.step("The agent asked again after the stop.")
    lab.sends(key, 0)
    lab.lines(run, {"review.waiting": 1, "review.cancelled": 1, "step.withheld": 1, "permit.opened": 0})
    lab.effect(run, key, "NOT_STARTED")
    lab.evidence("Reviews that are open", 0, sum(not one["closed_at"] for one in reviews(lab, run)))
    lab.rests(run, "CANCELLED", "stopped before effect")


def pressed_again(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    holding = lab.provider.fault("hold_after", key, times=1)
    agent = lab.agent("ways:charge", effect=key)
    lab.situation("A request is in flight", True, lab.provider.ledger.wait("held", key))
    run = lab.run()
    lab.step("A charge is in flight.")
    answers = press(lab, run)
    statuses = Counter(said.status for said in answers)
    lab.situation("Presses that were answered", PRESSES, statuses[200] + statuses[201])
    lab.step(f"{PRESSES} presses at once, under two keys.")
    holding.let_go.set()
    agent.wait()
    lab.sends(key, 1)
    lab.evidence("Stops that the answers name", 1, len({said.data["id"] for said in answers}))
    stops = [one for one in lab.api.get("stops?limit=100")["items"] if one["run_id"] == run["id"]]
    lab.evidence("Stops of the run", 1, len(stops))
    lab.evidence("Presses on record, one a key", 2, stops[0]["presses"])
    lines = lab.lines(run, {"stop.acknowledged": 1, "stop.joined": 1})
    version = first(lines, "stop.acknowledged")["current_version"]
    lab.evidence("Version of the run: bumped once", 2, lab.api.get(f"runs/{run['id']}")["cancel_version"])
    lab.evidence("Version that the stop names", 2, version)
    lab.effect(run, key, "CONFIRMED")
    lab.rests(run, "CANCELLED", "partially completed")


def press(lab: Lab, run: Json) -> list[Said]:
    """All presses at once, half of them under one key and half under another. One that a busy server turned
    away is pressed again with its key, as the client does.
    """
    keys = [f"{lab.key}-press-{number % 2}" for number in range(PRESSES)]
    until_s = time.monotonic() + LONG_S

    def one(key: str) -> Said:
        said = lab.stop(run, key=key)
        while said.status in (0, 503) and time.monotonic() < until_s:
            time.sleep(0.5)
            said = lab.stop(run, key=key)
        return said

    with ThreadPoolExecutor(PRESSES) as threads:
        return list(threads.map(one, keys))


def resumed(lab: Lab) -> None:
    key = f"{lab.key}:charge"
    taken, declined, held = (f"{key}:{name}" for name in ("taken", "declined", "held"))
    lab.provider.fault("answer", declined, times=1, status=402)
    holding = lab.provider.fault("hold_after", held, times=1)
    agent = lab.agent("scenario_ways:three_charges", effect=key)
    lab.situation("A request is in flight", True, lab.provider.ledger.wait("held", held))
    run = lab.run()
    lab.step("One charge is taken, one declined, one in flight.")
    stop = lab.stopped(lab.stop(run, mode="pause", deadline_s=1))
    lab.situation(
        "The one in flight is unknown, and the run paused", True, until(lambda: waits(lab, run, held))
    )
    refused = resume(lab, run, stop)
    told = f"{refused.status} {refused.problem}".strip()
    lab.evidence("A resume while one of them is unknown", "409 not-resumed", told)
    lab.step("A resume was asked for while one effect must wait.")
    answers = {one["key"]: one["answer"] for one in refused.data.get("effects", [])}
    for name, answer in BEFORE_A_RESUME.items():
        lab.evidence(f"Before a resume, charge:{name}", answer, answers.get(f"{key}:{name}"))
    holding.let_go.set()
    agent.wait()
    lab.effect(run, held, "CONFIRMED")
    lab.step("The late answer settles it.")
    lab.evidence("A resume then", 200, resume(lab, run, stop).status)
    lab.step("A second agent takes up the work.")
    second = lab.agent("scenario_ways:three_again", effect=key)
    lab.ended(second, "finished")
    lab.evidence("What the second agent skipped", "taken and held", second.told("skipped"))
    lab.sends(taken, 1)
    lab.sends(declined, 2, applied=1)
    lab.sends(held, 1)
    lab.lines(run, {"stop.acknowledged": 1, "run.paused": 1, "run.resumed": 1, "run.completed": 1})
    lab.rests(run, "COMPLETED", "completed")


BEFORE_A_RESUME = {"taken": "skip, settled", "declined": "safe to run", "held": "must wait"}


def waits(lab: Lab, run: Json, key: str) -> bool:
    """Whether the run is paused while nobody knows of this effect."""
    paused = lab.api.get(f"runs/{run['id']}")["status"] == "PAUSED"
    return paused and lab.settlement(run, key) == "UNKNOWN"


def resume(lab: Lab, run: Json, stop: Json) -> Said:
    """The decision to go on, about the run as it stands now."""
    time.sleep(0.05)
    now = lab.api.get(f"runs/{run['id']}")
    body = {"reason": "DRILL", "seen_version": now["cancel_version"], "stop_id": stop["id"]}
    return lab.api.ask("POST", f"runs/{run['id']}/resume", body, key=f"{lab.key}-resume-{time.time()}")


def reviews(lab: Lab, run: Json) -> list[Json]:
    """The reviews of the run."""
    found: list[Json] = lab.api.get("reviews")["items"]
    return [one for one in found if one["run_id"] == run["id"]]


ALL = [
    Drill(
        "stop-during-an-approval-wait",
        "Stop during an approval wait",
        "The stop closes the wait with its reason; what people were asked about is never sent.",
        SCENARIO,
        approval_waited_for,
    ),
    Drill(
        "repeated-stop-requests",
        "Repeated stop requests",
        f"{PRESSES} presses at once are one stop: each is answered, none is an error, one stop is recorded.",
        SCENARIO,
        pressed_again,
    ),
    Drill(
        "resume-after-a-pause",
        "Resume after a pause",
        "A resume waits until nothing is unknown; then only what did not happen is sent, the rest not again.",
        SCENARIO,
        resumed,
    ),
]
