"""Carries drills out, one after the other, for the command, the page and the tests."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checks import Findings, NotMade
from .instance import Instance, NoInstance, Private
from .lab import Lab
from .provider import Provider

FAILURE, SCENARIO = "failure", "scenario"


@dataclass(frozen=True)
class Drill:
    """One drill. shows: one sentence, what it shows when it passes. kind: failure or scenario.

    needs: what it has to have beside an instance: "processes" (it kills, freezes or starts some) · "private
    instance" (it kills the server or takes its store away, so never yours) · "browser".
    """

    name: str
    title: str
    shows: str
    kind: str
    carry_out: Callable[[Lab], None]
    needs: tuple[str, ...] = ("processes",)

    @property
    def private(self) -> bool:
        """Whether it runs on a private instance only."""
        return "private instance" in self.needs


@dataclass(frozen=True)
class Result:
    """What a drill came to. report: the address of its run's report, as long as its instance is there."""

    drill: Drill
    findings: Findings
    private: bool
    seconds: float

    @property
    def result(self) -> str:
        """passed · failed · inconclusive."""
        return self.findings.result

    def told(self) -> dict[str, Any]:
        """One JSON object: the shape that `--json` prints."""
        return {
            "name": self.drill.name,
            "result": self.result,
            "passed": self.result == "passed",
            **self.findings.told(),
            "report": self.findings.report,
            "why": self.findings.why,
            "instance": "private" if self.private else "given",
            "seconds": round(self.seconds, 1),
        }


@dataclass
class Bench:
    """Where drills are carried out. instance: None means a private one for all of them."""

    instance: Instance | None
    folder: Path
    _private: Private | None = None

    def is_private(self, drill: Drill) -> bool:
        """Whether this drill runs on an instance that is started for it."""
        return self.instance is None or drill.private

    def of(self, drill: Drill) -> tuple[Instance, Private | None]:
        """The instance for this drill, and whether it may be killed. Raises NoInstance."""
        if self.instance is not None and not self.is_private(drill):
            return self.instance, None
        if self._private is None:
            self._private = Private(self.folder / "instance")
        return self._private.ready(), self._private

    def close(self) -> None:
        """End what was started."""
        if self._private is not None:
            self._private.end()


@contextlib.contextmanager
def bench(instance: Instance | None = None) -> Iterator[Bench]:
    """A place for drills; whatever they start is ended with it."""
    folder = Path(tempfile.mkdtemp(prefix="allstop-drill-"))
    made = Bench(instance, folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def carry_out(drill: Drill, bench: Bench, tell: Callable[[str], None] = lambda said: None) -> Result:
    """Carry one drill out; `tell` hears of each step. What goes wrong in it is noted, not raised."""
    findings, private = Findings(), bench.is_private(drill)
    began = time.monotonic()
    try:
        instance, ours = bench.of(drill)
    except NoInstance as why:
        findings.not_made(str(why))
        return Result(drill, findings, private, time.monotonic() - began)
    if private:
        tell(f"On a private instance at {instance.url}.")
    folder = Path(tempfile.mkdtemp(prefix=f"{drill.name}-", dir=bench.folder))
    began = time.monotonic()
    with Provider() as provider:
        place = (instance, provider, folder, tell, ours if drill.private else None, findings)
        with Lab(drill.name, drill.title, *place) as lab:
            attempt(drill, lab)
    return Result(drill, findings, private, time.monotonic() - began)


def attempt(drill: Drill, lab: Lab) -> None:
    """What goes wrong is noted, not raised: a drill that broke off shows nothing."""
    try:
        drill.carry_out(lab)
        lab.reported()
    except NotMade as why:
        lab.findings.not_made(str(why))
    except Exception as error:
        lab.findings.error = f"The drill broke off with {type(error).__name__}: {error}"
