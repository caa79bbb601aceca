"""Whether what an effect does can be lessened afterwards: said of its kind, before the effect.

Two lists, of what can be compensated and what can't be called back. A kind names one entry (`reversible`);
nothing here sends anything, and "can" permits nothing: that takes a plan, a rule and people.
"""

from __future__ import annotations

from dataclasses import dataclass

from .models import Effect, Kind, Provider
from .new_kind import BadKind, NewKind


@dataclass(frozen=True)
class Preset:
    """One entry: `title` is what was done, `sentence` goes on from "It can be compensated by …" or
    "It can’t be called back, because …"; `can` None: nobody said.
    """

    name: str
    can: bool | None
    title: str
    sentence: str

    @property
    def told(self) -> dict[str, bool | str | None]:
        """As the wire has it."""
        return {"preset": self.name, "can": self.can, "sentence": self.sentence}


def _can(name: str, title: str, by: str) -> Preset:
    return Preset(name, True, title, f"It can be compensated by {by}.")


def _cannot(name: str, title: str, because: str) -> Preset:
    return Preset(name, False, title, f"It can’t be called back, because {because}.")


CAN = (
    _can("reservation", "Reserves something", "releasing what was reserved, as long as nobody has used it"),
    _can("draft", "Makes a draft", "removing the new draft, as long as nobody has published or built on it"),
    _can("local_resource", "Opens a temporary resource here", "closing it; what it did meanwhile stays"),
    _can("staged_change", "Stages a change", "putting back what was there, which it was made to allow"),
    _can("payment", "Moves money", "a refund, or a void before it settles: a booking of its own; fees stay"),
)
CANNOT = (
    _cannot("mail_sent", "Sends a mail", "it lies in the mailboxes of others, who may have read it"),
    _cannot("webhook_consumed", "Calls a webhook", "another system has read it and may have acted on it"),
    _cannot("public_post", "Publishes something", "people and machines may have read and copied it"),
    _cannot("deletion", "Deletes something", "no way to recover it is documented"),
    _cannot("human_decision", "Asks a person to decide", "people decided, and others went on from there"),
)
PRESETS = {preset.name: preset for preset in (*CAN, *CANNOT)}
UNSAID = Preset("", None, "", "Its kind does not say whether it can be called back: don’t count on it.")
OF_PROVIDER: dict[str, str] = {Provider.EMAIL: "mail_sent"}  # where the kind leaves it out


def of_kind(kind: Kind | None) -> Preset:
    """What a kind says of its effects, or its provider for it; UNSAID where nobody does."""
    return UNSAID if kind is None else named(kind.reversible, kind.provider)


def named(reversible: str, provider: str) -> Preset:
    """The same by the two columns of a kind."""
    return PRESETS.get(reversible or OF_PROVIDER.get(provider, ""), UNSAID)


def of(effect: Effect) -> Preset:
    """The same of an effect; a request to cancel is not called back either."""
    return UNSAID if effect.asks_about_id else of_kind(effect.kind)


def check(new: NewKind) -> None:
    """Raises BadKind for a preset that there is not."""
    if new.reversible and new.reversible not in PRESETS:
        raise BadKind("reversible", f"There is no such preset. There are: {', '.join(PRESETS)}")
