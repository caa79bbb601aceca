"""A small agent that pays one order: `python -m tests.kills.agent --order NAME --kind K --bank URL`.

It uses the client as anybody would (ALLSTOP_URL and ALLSTOP_TOKEN are set). Its last line says how it ended.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from allstop import (
    Client,
    Effect,
    GateUnavailable,
    MustWait,
    NeverSent,
    Outcome,
    PermitExpired,
    Refused,
    Run,
    http_outcome,
)
from allstop.gated import Gated

QUIET = (Refused, GateUnavailable, MustWait, NeverSent, PermitExpired, OSError)


@dataclass(frozen=True)
class Answer:
    """As much of a response as the client's judge reads."""

    status: int
    headers: dict[str, str]


def pay(bank: str, effect: Effect) -> Outcome:
    """One POST with the effect's key and its very bytes."""
    place = urlsplit(bank)
    asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    headers = {"Idempotency-Key": effect.key, "Content-Type": "application/json"}
    asked.request("POST", "/charges", effect.body, headers)
    response = asked.getresponse()
    found = json.loads(response.read())
    asked.close()
    judged = http_outcome(Answer(response.status, dict(response.headers)))
    return Outcome(judged.name, result=found, provider_ref=found.get("id"))


def work(owner: Gated, options: argparse.Namespace, attempt: str = "") -> None:
    effect = owner.effect(
        key=f"{options.order}{attempt}",
        kind=options.kind,
        body=json.dumps({"order": options.order}),
        none_because="a test",
        outcome_of=http_outcome,
    )
    effect.send(pay, options.bank, effect)


def work_in_step(run: Run, options: argparse.Namespace) -> None:
    """The step is claimed first, with the lease of the client."""
    with run.step("pay") as step:
        work(step, options)


def think(run: Run, options: argparse.Namespace) -> None:
    """A model turn: it touches nothing that anybody could look up."""
    run.model_turn(str.upper, options.order)


def work_with_a_new_key(run: Run, options: argparse.Namespace) -> None:
    """What no agent may do: after a lost answer it asks again under another key."""
    try:
        work(run, options)
    except OSError:
        work(run, options, attempt=":again")


WAYS: dict[str, Callable[[Run, argparse.Namespace], None]] = {
    "plain": work,
    "step": work_in_step,
    "think": think,
    "new-key": work_with_a_new_key,
}


def read(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An agent that pays one order.")
    parser.add_argument("--order", required=True, help="also the run's key")
    parser.add_argument("--kind", required=True)
    parser.add_argument("--bank", required=True)
    parser.add_argument("--way", choices=list(WAYS), default="plain")
    parser.add_argument("--lease", type=float, default=2, help="seconds")
    parser.add_argument("--patience", type=float, default=5, help="seconds that it waits for the gate")
    return parser.parse_args(words)


def main() -> None:
    options = read(sys.argv[1:])
    patience = options.patience
    # Its heart does not beat in time: the lease stays the one that was asked for.
    client = Client(heartbeat_s=60, lease_s=options.lease, timeout_s=patience, give_up_s=patience)
    try:
        with client, client.run(options.order) as run:
            WAYS[options.way](run, options)
    except QUIET as error:
        print(f"ended: {type(error).__name__}: {error}", flush=True)  # noqa: T201
    else:
        print("ended: paid", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
