"""What a worker tidies up when its run is stopped: declared and claimed beforehand, carried out then."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allstop.errors import GateUnavailable, Json, MustWait, Refused, Rejected, StepEnded
from allstop.step import Step

if TYPE_CHECKING:
    from allstop.link import Link
    from allstop.run import Run

log = logging.getLogger("allstop")


@dataclass(frozen=True)
class Declared:
    """One declared cleanup: its step, held by this worker, and the call."""

    key: str
    op_class: str
    held: tuple[str, str]
    call: Callable[[], Any]


class Cleanups:
    """The declared cleanups of one run, in the order in which they were declared."""

    def __init__(self, run: Run, link: Link) -> None:
        self._run, self._link = run, link
        self._declared: list[Declared] = []

    def declare(self, key: str, name: str | None, op_class: str, call: Callable[[], Any]) -> None:
        """Register and claim the step, so that a stop waits for it until its own deadline."""
        run = self._run
        claim = {"worker": run.worker, "seen_version": run.version, "lease_s": self._link.pace.lease_s}
        spec: Json = {"key": key, "class": op_class, "cleanup": True, "claim": claim}
        data = run.have(run.posting(f"runs/{run.id}/steps", spec | ({"name": name} if name else {})))
        if not data.get("claim_token"):
            raise StepEnded(f"Cleanup {key!r} is {data.get('status')}; it can't be declared again.", data)
        held = (str(data["id"]), str(data["claim_token"]))
        run.hold(held[1])
        self._declared.append(Declared(key, op_class, held, call))

    def not_needed(self) -> None:
        """The body ended by itself: the claims are given back, and the calls are not made."""
        for one in self._take():
            self._run.let_go(one.held[1])
            path, body = f"steps/{one.held[0]}/release", {"claim_token": one.held[1]}
            with contextlib.suppress(Refused, Rejected):  # it was lost, or a stop took it: the end says so
                self._run.have(self._run.posting(path, body))

    def carry_out(self) -> None:
        """The run is stopped: make the calls, the last declared first, each behind the cleanup guard.

        One that fails or is refused is logged, and the next has its turn: the stop is what goes on.
        """
        for one in reversed(self._take()):
            try:
                self._one(one)
            except (Refused, GateUnavailable) as refusal:
                log.warning("Cleanup %s was not carried out: %s", one.key, refusal)
            except (MustWait, Rejected):
                log.exception("Cleanup %s was not carried out.", one.key)
            except Exception:
                log.exception("Cleanup %s failed.", one.key)
            finally:
                self._run.let_go(one.held[1])

    def _one(self, one: Declared) -> None:
        with Step(self._run, self._link, key=one.key, op_class=one.op_class, held=one.held) as step:
            if one.op_class == "read":
                step.read(one.call)
                return
            why = "it tidies up after a stop"
            step.effect(
                key=f"cleanup:{one.key}", kind="cleanup", op_class=one.op_class, none_because=why
            ).send(one.call)

    def _take(self) -> list[Declared]:
        taken, self._declared = self._declared, []
        return taken
