"""An agent of a drill, as a process of its own: `python -m dashboard.drills.agent --way MODULE:FUNCTION …`.

It uses the client as anybody would (ALLSTOP_URL and ALLSTOP_TOKEN are set). Its last line says how it ended.
A way is a function of this package that takes a Work.
"""

from __future__ import annotations

import argparse
import http.client
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allstop import Client, Effect, GateUnavailable, Outcome, Refused, Run, http_outcome
from allstop.gated import Gated

PACKAGE = "dashboard.drills."
WAITS_S = LONGEST_CALL_S = 60.0


@dataclass
class Work:
    """What a way is given. folder: for marks. words: whatever else the drill says. told: its last line."""

    run: Run
    client: Client
    provider: str
    folder: Path
    words: dict[str, str]
    told: dict[str, Any] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Say that this point was reached."""
        (self.folder / name).touch()

    def wait(self, name: str = "go", within_s: float = WAITS_S) -> None:
        """Until the drill lets it go on. Raises TimeoutError."""
        end = time.monotonic() + within_s
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                raise TimeoutError(f"nobody said {name}")
            time.sleep(0.01)

    def effect(self, key: str, owner: Gated | None = None, **settings: Any) -> Effect:
        """One effect of the provider, under that key, not yet sent."""
        return (owner or self.run).effect(
            key=key, kind="drill.charge", none_because="a drill", outcome_of=http_outcome, **settings
        )

    def charge(
        self, key: str, owner: Gated | None = None, within_s: float = LONGEST_CALL_S, **settings: Any
    ) -> Any:
        """One effect at the provider, under that key."""
        return self.effect(key, owner, **settings).send(self.post, key, within_s)

    def post(self, key: str, within_s: float = LONGEST_CALL_S) -> Outcome:
        """The request itself: what the provider answered, judged by its status."""
        place = urlsplit(self.provider)
        asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=within_s)
        try:
            asked.request("POST", "/charges", "", {"Idempotency-Key": key})
            answer = asked.getresponse()
            found = json.loads(answer.read())
        finally:
            asked.close()
        judged = http_outcome(Answered(answer.status, dict(answer.headers)))
        return Outcome(judged.name, result=found, provider_ref=found.get("id"), detail=judged.detail)


@dataclass(frozen=True)
class Answered:
    """As much of a response as the client's judge reads."""

    status: int
    headers: dict[str, str]


def read(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An agent of a drill.")
    parser.add_argument("--way", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--key", required=True, help="of its run")
    parser.add_argument("--name", required=True, help="of its run")
    parser.add_argument("--provider", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lease", type=float, default=30, help="seconds")
    parser.add_argument("--beat", type=float, default=60, help="seconds between two heartbeats")
    parser.add_argument("--patience", type=float, default=20, help="seconds that it waits for the gate")
    parser.add_argument("--word", action="append", default=[], metavar="NAME=TEXT")
    return parser.parse_args(words)


def way_of(name: str) -> Callable[[Work], None]:
    """The function with that name, in this package."""
    module, _, function = name.partition(":")
    way: Callable[[Work], None] = getattr(importlib.import_module(f"{PACKAGE}{module}"), function)
    return way


def main() -> None:
    options = read(sys.argv[1:])
    way = way_of(options.way)
    patience = {"timeout_s": options.patience, "give_up_s": options.patience}
    client = Client(heartbeat_s=options.beat, lease_s=options.lease, **patience)
    told: dict[str, Any] = {"ended": "finished"}
    try:
        with client, client.run(options.key, name=options.name, agent="drill", drill=True) as run:
            words = dict(word.split("=", 1) for word in options.word)
            way(Work(run, client, options.provider, options.folder, words, told))
    except (Refused, GateUnavailable, Exception) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        told |= {"ended": type(error).__name__, "stop_id": getattr(error, "stop_id", None)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
