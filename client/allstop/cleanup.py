"""What a worker tidies up when its run is stopped: declared and claimed beforehand, carried out then."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allstop.errors import GateUnavailable, Json, MustWait, Refused, Rejected, StepEnded, Withheld
from allstop.step import Step
from allstop.talk import Talk

if TYPE_CHECKING:
    from allstop.attached import Attached
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

    @property
    def words(self) -> dict[str, Any]:
        """Key, kind and plan of its effect."""
        why = "it tidies up after a stop"
        return {"key": f"cleanup:{self.key}", "kind": "cleanup", "none_because": why}


class Declarations:
    """The declared cleanups of one run, in the order in which they were declared. Nobody waits here."""

    def __init__(self, attached: Attached, link: Link) -> None:
        self._attached, self._link = attached, link
        self._declared: list[Declared] = []

    def declaring(self, key: str, name: str | None, op_class: str, call: Callable[[], Any]) -> Talk[None]:
        """Register and claim the step, so that a stop waits for it until its own deadline."""
        run = self._attached
        claim = {"worker": run.worker, "seen_version": run.version, "lease_s": self._link.pace.lease_s}
        spec: Json = {"key": key, "class": op_class, "cleanup": True, "claim": claim}
        data = yield from run.posting(f"runs/{run.id}/steps", spec | ({"name": name} if name else {}))
        if not data.get("claim_token"):
            raise StepEnded(f"Cleanup {key!r} is {data.get('status')}; it can't be declared again.", data)
        held = (str(data["id"]), str(data["claim_token"]))
        run.hold(held[1])
        self._declared.append(Declared(key, op_class, held, call))

    def giving_back(self) -> Talk[None]:
        """The body ended by itself: the claims are given back, and the calls are not made."""
        for one in self._take():
            self._attached.let_go(one.held[1])
            path, body = f"steps/{one.held[0]}/release", {"claim_token": one.held[1]}
            with contextlib.suppress(Refused, Rejected, Withheld):  # lost, or stopped: the end says so
                yield from self._attached.posting(path, body)

    @contextlib.contextmanager
    def _turn(self, one: Declared) -> Iterator[None]:
        """One that fails or is refused is logged, and the next has its turn: the stop is what goes on."""
        try:
            yield
        except (Refused, GateUnavailable) as refusal:
            log.warning("Cleanup %s was not carried out: %s", one.key, refusal)
        except Withheld as refusal:
            log.warning("Cleanup %s was not carried out: %s", one.key, refusal)
        except (MustWait, Rejected):
            log.exception("Cleanup %s was not carried out.", one.key)
        except Exception:
            log.exception("Cleanup %s failed.", one.key)
        finally:
            self._attached.let_go(one.held[1])

    def _take(self) -> list[Declared]:
        taken, self._declared = self._declared, []
        return taken


class Cleanups(Declarations):
    """The same in a thread."""

    def __init__(self, run: Run, link: Link) -> None:
        super().__init__(run, link)
        self._run = run

    def carry_out(self) -> None:
        """The run is stopped: make the calls, the last declared first, each behind the cleanup guard."""
        for one in reversed(self._take()):
            with self._turn(one):
                self._one(one)

    def _one(self, one: Declared) -> None:
        with Step(self._run, self._link, key=one.key, op_class=one.op_class, held=one.held) as step:
            if one.op_class == "read":
                step.read(one.call)
                return
            step.effect(op_class=one.op_class, **one.words).send(one.call)
