"""Carry drills out: `python -m dashboard.drills [NAME …] [--data DIR | --url URL] [--json] [--ticks]`.

`manage.py drill` is the same. With neither --data nor --url a private instance is started for all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from .checks import FAILED, INCONCLUSIVE
from .engine import Drill, Result, bench, carry_out
from .instance import Instance, NoInstance, of_data
from .listed import BY_NAME, DRILLS

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="which drills (default: all of them)")
    parser.add_argument("--all", action="store_true", help="all of them")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data", type=Path, metavar="DIR", help="the instance of this data folder")
    where.add_argument("--url", help="the instance at this address; its token is in ALLSTOP_TOKEN")
    parser.add_argument("--json", action="store_true", help="one JSON object a drill and line")
    parser.add_argument("--ticks", action="store_true", help="with --json: also a line for each step")
    parser.add_argument("--list", action="store_true", help="say which drills there are")


def chosen(names: Sequence[str]) -> list[Drill]:
    """The drills with these names, each once, in their own order; all when there are none."""
    if unknown := sorted(set(names) - set(BY_NAME)):
        raise SystemExit(f"There is no drill called {', '.join(unknown)}. `--list` says which there are.")
    return [drill for drill in DRILLS if not names or drill.name in names]


def instance_of(options: argparse.Namespace) -> AbstractContextManager[Instance | None]:
    """Where the drills are to run. Raises SystemExit when the token is missing."""
    if options.data is not None:
        return of_data(options.data)
    if options.url:
        if not os.environ.get("ALLSTOP_TOKEN"):
            raise SystemExit("Set ALLSTOP_TOKEN to a token of a workspace that is for drills.")
        return contextlib.nullcontext(Instance(options.url.rstrip("/"), os.environ["ALLSTOP_TOKEN"]))
    return contextlib.nullcontext(None)


class Words:
    """What is printed, for people or for programs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.json, self.ticks = options.json, options.ticks

    def begin(self, drill: Drill) -> None:
        if not self.json:
            print(f"\n{drill.title} ({drill.name})\n  {drill.shows}", flush=True)

    def tick(self, drill: Drill, said: str) -> None:
        if not self.json:
            print(f"  … {said}", flush=True)
        elif self.ticks:
            print(json.dumps({"name": drill.name, "tick": said}), flush=True)

    def end(self, result: Result) -> None:
        if self.json:
            print(json.dumps(result.told()), flush=True)
            return
        for kind, checks in result.findings.told().items():
            for check in checks:
                sign = "ok " if check["ok"] else "NOT"
                print(f"  {sign} {kind}: {check['what']}: {_beside(check)}")
        print(textwrap.indent(verdict(result), "  "), flush=True)


def _beside(check: dict[str, str]) -> str:
    if check["ok"] and check["expected"] == check["observed"]:
        return check["observed"]
    return f"expected {check['expected']}, observed {check['observed']}"


def verdict(result: Result) -> str:
    """The last lines about a drill."""
    where = "on a private instance" if result.private else "here"
    why = f" {result.findings.why}" if result.findings.why else ""
    told = f"{result.result.capitalize()} {where}, {result.seconds:.1f} s.{why}"
    return (
        told if result.private or not result.findings.report else f"{told}\nReport: {result.findings.report}"
    )


def code_of(results: Sequence[Result]) -> int:
    """0 all passed · 1 one failed · 2 one inconclusive and none failed."""
    ends = {result.result for result in results}
    return 1 if FAILED in ends else 2 if INCONCLUSIVE in ends else 0


def carry_out_all(options: argparse.Namespace) -> int:
    """The chosen drills, one after the other; the exit code."""
    words, results = Words(options), []
    drills = chosen([] if options.all else options.names)
    with instance_of(options) as instance, bench(instance) as place:
        if not options.json and (instance is None or any(drill.private for drill in drills)):
            print(_of_private(drills, instance), flush=True)
        for drill in drills:
            words.begin(drill)
            results.append(carry_out(drill, place, lambda said, drill=drill: words.tick(drill, said)))  # type: ignore[misc]
            words.end(results[-1])
        if instance is not None:
            instance.keep([result.told() for result in results])
    if not options.json:
        print(f"\n{summary(results)}", flush=True)
    return code_of(results)


def _of_private(drills: Sequence[Drill], instance: Instance | None) -> str:
    if instance is None:
        return "All of them run on a private instance, which is started now and removed at the end."
    names = ", ".join(drill.name for drill in drills if drill.private)
    return f"On a private instance, never on yours: {names}."


def summary(results: Sequence[Result]) -> str:
    """How many of each, and what that is worth."""
    ends = [result.result for result in results]
    counts = ", ".join(f"{ends.count(end)} {end}" for end in ("passed", "failed", "inconclusive"))
    return f"{counts}. This shows how the gates held in these drills; it is no promise about the next stop."


def listed() -> str:
    """Which drills there are."""
    return "\n".join(
        f"{drill.name}\n    {drill.title}. {drill.shows} ({', '.join(drill.needs)})" for drill in DRILLS
    )


def carry(options: argparse.Namespace) -> int:
    """The exit code of the command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to go: end what was started
    if options.list:
        print(listed())
        return 0
    try:
        return carry_out_all(options)
    except NoInstance as error:
        raise SystemExit(f"drill: {error}") from None
    except KeyboardInterrupt:
        return INTERRUPTED


def main() -> None:
    parser = argparse.ArgumentParser(prog="drill", description=__doc__.splitlines()[0] if __doc__ else "")
    add_arguments(parser)
    sys.exit(carry(parser.parse_args()))


if __name__ == "__main__":
    main()
