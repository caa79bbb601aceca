"""What the verbs about unknowns answer, and why they don't: one sentence a reason."""

from __future__ import annotations

from dataclasses import dataclass

from .models import Resolution

TEXT_MAX = 4_000
FILE_MAX = 256 * 1024
WHY_NOT: dict[str, str] = {
    "token": "Tokens never count: a person decides, signed in, on a page.",
    "evidence": "Say what shows it: an empty text is no evidence.",
    "items": "Say which part of it happened.",
    "verdict": "This can't be said of it.",
    "own_run": "It is your own run: your word alone is no evidence. Cite a line in which the provider"
    " says so, or have somebody else attach the evidence or record the verdict.",
    "own_yes": "It is your own run: somebody else has to agree.",
    "foreign": "That evidence belongs to something else. Cite lines and attachments of this one.",
    "changed": "Somebody recorded something meanwhile. Your draft is kept: compare, then decide.",
    "waits": "Somebody's verdict waits for a second person there. Open it: agree, or record another.",
    "settled": "It is known by now. Compare; if that is wrong, correct it.",
    "not_unknown": "It is not unknown: its holder still has it, or it was never sent.",
    "in_window": "Too early: it may still appear at the provider. Its settle window is not over.",
    "may_be_sent": "A worker still holds it and may send it. Wait for its report, or for its lease to end.",
    "lost_holder": "A worker that we lost may still send it. That it did not happen needs the"
    " provider's record: a line of a look-up or webhook, or an attached reference, link or file.",
    "same": "That is what it says already.",
    "same_person": "You recorded it. Somebody else has to correct it, or agree.",
    "no_correction": "What a compensation came to is not corrected here. Propose another one, or decide"
    " that none is needed.",
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
    "abandoned": "Nobody is asked any more: its run was abandoned. Evidence that arrives by itself still"
    " counts.",
    "asking": "It is being asked at this moment.",
    "polled": "Its own agent answers look-ups: it hears of this one the next time that it asks for them.",
    "not_found": "There is nothing here.",
    "not_allowed": "You may see this, but not do that to it.",
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
    """A verdict is on record. `state`: as what its subject stands now; `waits`: for a second person."""

    resolution: Resolution
    state: str
    waits: bool = False


@dataclass(frozen=True)
class Checked:
    """What was said just now: present · partial · absent · can't tell. `means`: as reconcile has it."""

    answer: str
    detail: str
    means: str
    state: str
