"""A step: a unit of a run that this worker claims, fills with effects, and finishes."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from allstop.claimed import Claimed
from allstop.gated import Gated
from allstop.link import Link
from allstop.permit import Permit

if TYPE_CHECKING:
    from allstop.run import Run


class Step(Claimed, Gated):
    """Claimed on entry, finished on exit with the result that its calls add up to, given back if there were
    none.

    held: id and claim token of a step that is claimed already.
    """

    def __init__(
        self,
        run: Run,
        link: Link,
        *,
        key: str,
        name: str | None = None,
        op_class: str = "external_write",
        held: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(run, link, key=key, name=name, op_class=op_class, held=held)
        self.run = run

    def step_of(self, permit: Permit) -> AbstractContextManager[Gated]:
        """This step goes on after the call."""
        return contextlib.nullcontext(self)

    def __enter__(self) -> Step:
        self.run.have(self.claiming())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.have(self.leaving(error))
