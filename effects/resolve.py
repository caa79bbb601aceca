"""What people say of an unknown: take, ask now, attach, resolve, agree, withdraw, correct.

A person's verdict needs evidence, and stands on the weakest ground: whatever a provider says later goes
before it. What can't be determined is accepted by two people. Tokens have no way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runs.access import Actor

from .models import Attachment, Resolution
from .unknowns import Unknown

TEXT_MAX = 4_000
FILE_MAX = 256 * 1024
WHY_NOT: dict[str, str] = {
    "token": "Tokens never count: a person decides, signed in, on a page.",
    "evidence": "Say what shows it: an empty text is no evidence.",
    "items": "Say which part of it happened.",
    "verdict": "This can't be said of it.",
    "own_run": "It is your own run: your word alone is no evidence. Cite a line of the provider, or have somebody"
    " else attach the evidence or record the verdict.",
    "foreign": "That evidence belongs to something else. Cite lines and attachments of this one.",
    "changed": "Somebody recorded something meanwhile. Your draft is kept: compare, then decide.",
    "settled": "It is known by now. Compare; if that is wrong, correct it.",
    "not_unknown": "It is not unknown: its holder still has it, or it was never sent.",
    "in_window": "Too early: it may still appear at the provider. Its settle window is not over.",
    "may_be_sent": "A worker still holds it and may send it. Wait for its report, or for its lease to end.",
    "lost_holder": "A worker that we lost may still send it. That it did not happen needs the provider's record:"
    " a line of a look-up or webhook, or an attached reference, link or file.",
    "same": "That is what it says already.",
    "same_person": "You recorded it. Somebody else has to correct it, or agree.",
    "withdrawn": "This verdict waits for nobody any more.",
    "not_yours": "Only the person who recorded it may withdraw it.",
    "taken": "Somebody else looks after it. Ask them to release it, or have it assigned to you.",
    "not_taken": "You don't look after it.",
    "no_member": "That person is no member who may resolve.",
    "form": "Attach a reference, a link, a quote or a file.",
    "link": "A link begins with https:// or http://.",
    "too_big": "A file may have at most 256 KiB. Attach a link, or quote what matters.",
    "too_many": "It has 50 attachments; more won't help whoever reads it.",
    "export": "Several at once need one export of the provider, as a file that you attach here.",
    "no_look_up": "Nobody can be asked: this kind has no look-up.",
    "no_kind": "Nobody can be asked: its kind is not registered, so it has no look-up.",
    "a_message": "Nobody can be asked: a message has no look-up.",
    "abandoned": "Nobody is asked any more: its run was abandoned. Evidence that arrives by itself still counts.",
    "asking": "It is being asked at this moment.",
    "polled": "Its own agent answers look-ups: it is asked the next time that it asks for them.",
}


@dataclass(frozen=True)
class NotResolved:
    """Nothing was changed. `reason` is a key of WHY_NOT; `by`: what somebody recorded meanwhile."""

    reason: str
    by: Resolution | None = None

    @property
    def sentence(self) -> str:
        return WHY_NOT[self.reason]


@dataclass(frozen=True)
class Resolved:
    """A verdict is on record. `state`: as what the subject stands now; `waits`: for a second person."""

    resolution: Resolution
    state: str
    waits: bool = False


@dataclass(frozen=True)
class Checked:
    """What the provider said just now: present · partial · absent · can't tell; `means` as reconcile says it."""

    answer: str
    detail: str
    means: str
    state: str


def take(*, actor: Actor, subject_id: str) -> Unknown | NotResolved:
    """Look after it from now on. Refused while somebody else does. Raises NotFound, NotAllowed."""
    raise NotImplementedError


def give_back(*, actor: Actor, subject_id: str) -> Unknown | NotResolved:
    """Look after it no more. Raises NotFound, NotAllowed."""
    raise NotImplementedError


def check_now(*, actor: Actor, subject_id: str) -> Checked | NotResolved:
    """Ask the provider at once, whenever the next check is due. The line says who asked.

    Raises NotFound, NotAllowed.
    """
    raise NotImplementedError


def attach(
    *,
    actor: Actor,
    subject_id: str,
    form: str,
    text: str = "",
    file_name: str = "",
    content_type: str = "",
    content: bytes = b"",
) -> Attachment | NotResolved:
    """Keep evidence: form "reference" · "link" · "quote" (`text`) · "file" (`content`, up to FILE_MAX bytes).

    Raises NotFound, NotAllowed.
    """
    raise NotImplementedError


def resolve(
    *,
    actor: Actor,
    subject_id: str,
    verdict: str,
    evidence: str,
    items: Any = None,
    attachments: Sequence[str] = (),
    lines: Sequence[int] = (),
    seen: int,
    correct: bool = False,
) -> Resolved | NotResolved:
    """Record a person's verdict (models.Verdict) with its evidence, and settle what it settles.

    `lines`: seqs of evidence lines of this subject in its run's stream; `attachments`: ids. `seen`: the number
    of the newest verdict that the person was shown (0: none). `correct`: it was shown as settled, and this
    says that this is wrong. Raises NotFound, NotAllowed.
    """
    raise NotImplementedError


def agree(*, actor: Actor, resolution_id: str) -> Resolved | NotResolved:
    """The second person's yes to a verdict that waits for one. Raises NotFound, NotAllowed."""
    raise NotImplementedError


def withdraw(*, actor: Actor, resolution_id: str, why: str = "") -> Resolved | NotResolved:
    """Take back one's own verdict that waits for a second person. Raises NotFound, NotAllowed."""
    raise NotImplementedError


def check_many(*, actor: Actor, subject_ids: Iterable[str]) -> dict[str, str]:
    """Have each asked as soon as possible: id → "" (it will be) or a key of WHY_NOT ("not_found" too)."""
    raise NotImplementedError


def assign_many(*, actor: Actor, subject_ids: Iterable[str], person_id: int | None) -> dict[str, str]:
    """Have a member look after each (None: nobody): id → "" or a key of WHY_NOT ("not_found" too)."""
    raise NotImplementedError


def resolve_many(
    *, actor: Actor, subject_ids: Sequence[str], verdict: str, evidence: str, file_name: str, content: bytes
) -> dict[str, Resolved | NotResolved]:
    """One verdict for each, on one export of the provider that all share; a second person agrees to each."""
    raise NotImplementedError
