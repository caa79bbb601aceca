"""Look-ups that an agent answers: Allstop says which effects are in doubt, your function says what is there.

def look(one: LookUp) -> Seen:
    booking = bank.find(one.key)
    return Seen.present(ref=booking.id) if booking else Seen.absent()

client.answer_look_ups({"bank.charge": look}, every_s=5)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from allstop.errors import Json, Rejected
from allstop.talk import Ask, Talk, asked
from allstop.wire import new_key

log = logging.getLogger("allstop")

AT_ONCE = 10


@dataclass(frozen=True)
class LookUp:
    """One effect of which it is not known whether it happened. `key`: the one that was sent to the provider.

    matter: "effect", or "compensation", which has a key of its own; `effect_id` is the id of either.
    dispatched_at: RFC 3339, by Allstop's clock. turn: what makes the answer yours, for 30 seconds.
    """

    turn: str
    effect_id: str
    run_id: str
    key: str
    kind: str
    target: str = ""
    title: str = ""
    amount: str = ""
    provider_ref: str = ""
    attempt: int = 1
    dispatched_at: str | None = None
    matter: str = "effect"

    @classmethod
    def of(cls, told: Json) -> LookUp:
        """As the server tells it; what this client does not know is left out."""
        return cls(**{one.name: told[one.name] for one in fields(cls) if one.name in told})


@dataclass(frozen=True)
class Seen:
    """What is there under the key. A look-up that failed is "can't tell", never "absent".

    observed: the fields that you looked at. count: how many objects there are, if that can be seen.
    fenced: absent, and the provider will never apply this key from now on.
    """

    answer: str
    detail: str = ""
    observed: Json = field(default_factory=dict)
    items: Any = None
    ref: str = ""
    count: int | None = None
    fenced: bool = False
    job: str = ""

    @classmethod
    def present(cls, ref: str = "", **more: Any) -> Seen:
        """It is there."""
        return cls("present", ref=ref, **more)

    @classmethod
    def partial(cls, items: Any, **more: Any) -> Seen:
        """Part of it is there; `items` says which."""
        return cls("partial", items=items, **more)

    @classmethod
    def absent(cls, **more: Any) -> Seen:
        """The provider was asked, and holds nothing under the key."""
        return cls("absent", **more)

    @classmethod
    def cant_tell(cls, why: str) -> Seen:
        """The provider could not be asked, or its answer says nothing."""
        return cls("can't tell", why)

    @property
    def body(self) -> Json:
        """On the wire."""
        told = {name: value for name, value in vars(self).items() if value not in (None, "", {})}
        return told if self.fenced else {name: told[name] for name in told if name != "fenced"}


Look = Callable[[LookUp], Seen]
AsyncLook = Callable[[LookUp], Seen | Awaitable[Seen]]


def failed(one: LookUp, error: Exception) -> Seen:
    """A look-up that raised saw nothing at all."""
    log.warning("The look-up of %s failed: %r", one.key, error)
    return Seen.cant_tell(f"the look-up failed: {type(error).__name__}")


def taking(kind: str, limit: int = AT_ONCE) -> Talk[list[LookUp]]:
    """Take what is due of a kind: each is ours for 30 seconds."""
    answer = yield from asked(Ask("GET", "look-ups", params={"kind": kind, "limit": str(limit)}))
    return [LookUp.of(told) for told in answer.data["items"]]


def telling(one: LookUp, seen: Seen) -> Talk[bool]:
    """Say what was seen. False: it took too long, or another answered; it will be due again if need be."""
    path = f"{one.matter}s/{one.effect_id}/look-ups"
    ask = Ask("POST", path, {"turn": one.turn, **seen.body}, new_key())
    try:
        yield from asked(ask)
    except Rejected as error:
        if error.status != 409:
            raise
        log.info("The look-up of %s was not ours any more: %s", one.key, error)
        return False
    return True


def known(looks: Mapping[str, Any]) -> list[str]:
    """The kinds that are asked for. Raises TypeError where there is none: a loop would be for nothing."""
    if not looks:
        raise TypeError("Name the kinds whose look-ups you answer: {name: function}.")
    return sorted(looks)
