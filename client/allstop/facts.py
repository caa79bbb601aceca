"""What happened, to be told until it is heard: the report of a permit, the finish of a step.

Only these two outlive their process. A dispatch, a look, a claim, a completion or a heartbeat asks for
something that was right at its time; told later, it could start work that nobody wants any more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from allstop.errors import GateUnavailable, Json, Refused, Rejected
from allstop.talk import Answer, Ask, Do, Talk, asked
from allstop.wire import new_key

if TYPE_CHECKING:
    from allstop.outbox import Outbox

log = logging.getLogger("allstop")

_PATH = re.compile(r"permits/[\w.:-]+/report|steps/[\w.:-]+/finish")
_BARE = ("claim_token", "outcome", "reported_at")


@dataclass(frozen=True)
class Fact:
    """path, body, key: the call that tells it, with one Idempotency-Key however often it is made.

    step: its step's id. told_by: a digest of the API token that was used; the token itself is never kept.
    """

    path: str
    body: Json
    key: str
    step: str
    told_by: str

    @classmethod
    def of(cls, path: str, body: Json, *, step: str, told_by: str) -> Fact:
        """A new one, as of now by this machine's clock."""
        return cls(path, {**body, "reported_at": datetime.now(UTC).isoformat()}, new_key(), step, told_by)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Fact:
        """One from the disk. Raises ValueError for whatever is not a fact, a dispatch above all."""
        names = ("path", "key", "step", "told_by")
        texts = {name: kept.get(name) for name in names}
        body = kept.get("body")
        if not all(isinstance(text, str) for text in texts.values()) or not isinstance(body, dict):
            raise ValueError("it is not a fact")
        if not _PATH.fullmatch(str(texts["path"])):
            raise ValueError(f"a call to {texts['path']!r} is never told later")
        return cls(body=body, **{name: str(text) for name, text in texts.items()})

    @property
    def waits(self) -> bool:
        """A step can be finished only after the reports of its permits."""
        return self.path.startswith("steps/")

    def ask(self, within_s: float) -> Ask:
        """The call that tells it."""
        return Ask("POST", self.path, self.body, self.key, within_s=within_s)

    def bare(self) -> Fact | None:
        """The same report without what the server may not like. None if there is nothing to leave out."""
        body = {name: value for name, value in self.body.items() if name in _BARE}
        if "outcome" not in body or len(body) == len(self.body):
            return None
        return Fact(self.path, body, f"{self.key}-bare", self.step, self.told_by)


def telling(outbox: Outbox, fact: Fact, within_s: float) -> Talk[Json]:
    """Keep a fact on the disk, tell it, and forget it once it was answered. Raises as Wire.send does.

    When it raises, the fact is kept for later, or put aside with the reason if the server will never take it.
    """
    try:
        first = yield Do(lambda: outbox.keep(fact))
        if not first:
            raise GateUnavailable("An earlier fact of this step was not delivered yet.")
        answer = yield from sending(fact, within_s)
    except BaseException as error:
        outbox.leave(fact, error)
        raise
    outbox.done(fact)
    return answer.data


def sending(fact: Fact, within_s: float) -> Talk[Answer]:
    """Tell it; if it is rejected for its size or form, at least its outcome."""
    try:
        return (yield from asked(fact.ask(within_s)))
    except Rejected as error:
        less = fact.bare() if error.status in (413, 422) else None
        if less is None:
            raise
        log.warning("A report was rejected, so only its outcome is sent: %s", error)
    return (yield from asked(less.ask(within_s)))


def is_final(error: BaseException, fact: Fact, told_by: str) -> bool:
    """Whether the server has said that it will never take this fact.

    Not when it is away, busy or broken, and not when the question was who asks: a token may be renewed, and
    what another token may not see (404) its own may.
    """
    if isinstance(error, Refused):
        return True
    if not isinstance(error, Rejected) or not 400 <= error.status < 500:
        return False
    return error.status != 404 or fact.told_by == told_by
