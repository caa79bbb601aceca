"""The honesty lexicon: each status has its value, word, sentence, icon and css class here, once.

A sentence may hold {fields}; `Term.say(**facts)` fills them. No label outruns its evidence, so
the words for a success that we only hope for do not exist here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

FORBIDDEN = ("cancelled successfully", "successfully cancelled", "rolled back", "undone", "all clear")


@dataclass(frozen=True)
class Term:
    """One state as a person meets it. `icon` is a symbol of icons.svg, `css` a chip class."""

    value: str
    word: str
    sentence: str
    icon: str
    css: str

    def say(self, **facts: object) -> str:
        """The sentence with its facts; a missing fact raises KeyError (a half sentence would lie)."""
        return self.sentence.format(**facts)


def _terms(*rows: tuple[str, str, str, str]) -> dict[str, Term]:
    """Rows of (value, word, icon, sentence); the css class is the icon's name."""
    return {value: Term(value, word, sentence, icon, icon) for value, word, icon, sentence in rows}


RUN = _terms(
    ("ACTIVE", "Running", "st-running", "May start new work."),
    (
        "CANCELLING",
        "Stopping",
        "st-stopping",
        "Stop recorded {at}. New work is refused from version {version}."
        " We are finding out what was already in flight.",
    ),
    (
        "QUIET",
        "Quiet, reconciling",
        "st-quiet",
        "No worker may start new work. {open} still to be checked.",
    ),
    (
        "CANCELLING_TIMEOUT",
        "Stop timed out",
        "st-timeout",
        "{late} New work stays refused. {effects_are} unknown.",
    ),
    (
        "PAUSING",
        "Pausing",
        "st-stopping",
        "Stop recorded {at}. New work is held from version {version}. Work in flight is draining.",
    ),
    ("PAUSED", "Paused", "st-paused", "Held by {who}. Resumes only by a new decision."),
    ("UNKNOWN", "Awaiting verification", "st-unknown", "We cannot yet say whether {effects} happened."),
    ("CANCELLED", "Stopped", "st-none", "New work is refused for good."),
    ("COMPLETED", "Completed", "st-done", "The runtime reported the end of the run."),
    ("FAILED", "Failed", "st-failed", "The runtime reported a failure."),
    ("ABANDONED", "Abandoned", "st-abandoned", "We no longer wait or act. Outside work may continue."),
)

DRILL = _terms(
    ("waiting", "In line", "st-waiting", "It waits for its turn: one drill runs at a time."),
    ("running", "Running", "st-running", "It runs now."),
    ("passed", "Passed", "st-confirmed", "Its situation occurred; safety and evidence were as they must be."),
    ("failed", "Failed", "st-failed", "Its situation occurred, and something was not as it must be."),
    ("inconclusive", "Inconclusive", "st-unknown", "Its situation could not be made, so it shows nothing."),
    ("interrupted", "Interrupted", "st-none", "It was not carried to its end, so it shows nothing."),
    ("never", "Never run", "st-before", "Nobody has run it here."),
)

OUTCOME = _terms(
    ("not ended", "Not ended", "st-flight", "The run has not ended."),
    ("abandoned", "Abandoned", "st-abandoned", "We no longer wait or act. Outside work may continue."),
    (
        "awaiting verification",
        "Awaiting verification",
        "st-unknown",
        "We cannot yet say whether {effects} happened.",
    ),
    ("compensation pending", "Compensation pending", "st-comp", "A corrective action needs {need}."),
    ("resumable pause", "Paused", "st-paused", "Held by {who}. Resumes only by a new decision."),
    (
        "ended with an accepted unknown",
        "Ended, unknown accepted",
        "st-accepted",
        "Two people accepted that {effects} cannot be determined.",
    ),
    ("completed", "Completed", "st-done", "The runtime reported the end of the run."),
    ("failed", "Failed", "st-failed", "The runtime reported a failure."),
    (
        "partially completed",
        "Partially completed",
        "st-partial",
        "{done} happened, {not_done} did not. See the list.",
    ),
    (
        "stopped after safe settlement",
        "Stopped, settled",
        "st-settled",
        "Work in flight reached a safe boundary; no effect is unresolved.",
    ),
    ("stopped before effect", "Stopped before effect", "st-before", "No outside effect was dispatched."),
)

SETTLEMENT = _terms(
    ("DECLARED", "Declared", "st-declared", "Recorded, and not sent."),
    ("DISPATCHED", "In flight", "st-flight", "A permit to send was given; it may still complete."),
    ("CONFIRMED", "Confirmed", "st-confirmed", "It happened."),
    ("PARTIAL", "Partially completed", "st-partial", "Part of it happened."),
    ("NOT_APPLIED", "Not applied", "st-none", "It did not happen."),
    ("NOT_STARTED", "Not started", "st-none", "No permit to send it was ever used."),
    ("UNKNOWN", "Awaiting verification", "st-unknown", "We cannot yet say whether it happened."),
    (
        "ACCEPTED_UNKNOWN",
        "Accepted as unknown",
        "st-accepted",
        "Two people accepted that it cannot be determined.",
    ),
)

STEP = _terms(
    ("PENDING", "Queued", "st-waiting", "A worker may claim it."),
    ("CLAIMED", "Claimed", "st-waiting", "A worker holds it; nothing was sent."),
    ("WAITING_APPROVAL", "Waits for approval", "st-comp", "People decide before it may be sent."),
    ("DISPATCHED", "In flight", "st-flight", "A permit to send was given; it may still complete."),
    ("RETRY_WAIT", "Retry scheduled", "st-waiting", "The gate is asked again when it is due."),
    ("SUCCEEDED", "Succeeded", "st-confirmed", "Its worker reported that it succeeded."),
    ("PARTIAL", "Partially completed", "st-partial", "Part of it happened."),
    ("FAILED", "Failed", "st-failed", "It failed."),
    ("UNKNOWN", "Awaiting verification", "st-unknown", "We cannot yet say how it ended."),
    ("WITHHELD", "Withheld", "st-refused", "Refused before anything was sent."),
)

REVIEW = _terms(
    ("waiting", "Waiting", "st-comp", "People decide before it may be sent."),
    ("granted", "Approved", "st-waiting", "It may be sent, once the gate has looked again."),
    ("used", "Approved and used", "st-settled", "Its approvals were used by one dispatch."),
    ("rejected", "Rejected", "st-refused", "Rejected by {by}:"),
    ("expired", "Expired", "st-none", "Its time was over: {reason}. Nothing was sent."),
    ("cancelled", "Closed by a stop", "st-refused", "Closed by {reason}. Nothing was sent."),
    ("ended", "Closed", "st-none", "Closed before it was sent: {reason}."),
    ("void", "Void", "st-none", "Not as it was any more: {reason}. Nothing was sent."),
    ("not_needed", "Not needed", "st-none", "{by} decided that it is not needed:"),
)

DELIVERY = _terms(
    ("QUEUED", "Queued", "st-waiting", "Waits to be handed over; the gate is asked first."),
    ("DISPATCHED", "In flight", "st-flight", "A permit to hand it over was given; it may still leave."),
    ("HELD", "Held", "st-paused", "A pause holds it. A resume queues it again."),
    ("WITHHELD", "Withheld", "st-refused", "A stop came first; it will not be handed over."),
    ("HANDED_OVER", "Handed over", "st-confirmed", "Its receiver took it. Nothing calls it back."),
    ("NOT_HANDED_OVER", "Not handed over", "st-none", "It was tried, and is known not to have been taken."),
    ("UNKNOWN", "Unknown", "st-unknown", "We cannot yet say whether it was taken."),
    (
        "ACCEPTED_UNKNOWN",
        "Accepted as unknown",
        "st-accepted",
        "Two people accepted that it cannot be determined.",
    ),
)

PERMIT = _terms(
    ("OPEN", "In flight", "st-flight", "Its holder may still send."),
    ("REPORTED", "Reported", "st-confirmed", "Its holder said that its call is over."),
    ("NOT_SENT", "Not sent", "st-none", "Its holder attests that nothing was sent."),
    ("LOST", "Lost", "st-unknown", "Its lease ran out. Nobody says what happened."),
)

# A model turn, by what its holder reported.
TURN = _terms(
    ("applied", "Came to its end", "st-confirmed", "Its worker reported that it came to its end."),
    ("partial", "Cut off", "st-partial", "It ended in the middle: no completed task."),
    ("not_applied", "Did not take place", "st-none", "Its worker reported that it did not take place."),
    ("unknown", "Unknown", "st-unknown", "Its worker can’t say how it ended."),
)

LATE = Term(
    "late",
    "Late report",
    "Reported {at}, after the stop. Kept as evidence; status unchanged.",
    "st-late",
    "st-late",
)

CLASS = {
    "model_turn": "model turn",
    "read": "read",
    "workspace_change": "workspace change",
    "external_job": "external job",
    "external_write": "external write",
    "approval_wait": "approval wait",
    "browser_action": "browser action",
    "delivery": "delivery",
}

# What a refusal at a boundary was about, one and many.
REFUSED = {
    "admit": ("run", "runs"),
    "claim": ("queued step", "queued steps"),
    "model": ("model turn", "model turns"),
    "dispatch": ("dispatch", "dispatches"),
    "retry": ("retry", "retries"),
    "act": ("browser action", "browser actions"),
    "deliver": ("delivery", "deliveries"),
}

REFUSAL_REASON = {
    "stopped": "the run is stopped",
    "stale_version": "its version is stale",
    "lost_claim": "its claim is not its own any more",
    "not_approved": "people did not approve it",
    "blind_retry": "it may have happened",
    "unverified": "only its worker says that it did not happen",
    "key_forgotten": "the provider may have forgotten its key",
    "tries_used_up": "it was tried as often as it may be",
    "not_due": "its retry is not due yet",
    "not_at_rest": "its run is not at rest",
    "halted": "compensations are halted",
    "no_rule": "no rule permits it",
    "not_forwarded": "the rules forward no stop",
    "not_sure": "what it answers is not known to have happened",
}

# The pill beside the workspace; static/live.js says the same words.
FRESHNESS = (
    "Live",
    "Reconnecting…",
    "Paused by you",
    "Not live.",
    "Signed out",
    "No longer allowed",
)

MODE = {
    "pause": "New work is held. Can be resumed.",
    "cancel": "New work is refused for good. Workers are asked to end at the next safe point.",
    "abandon": "We stop waiting and acting. Work already handed to other systems may go on there.",
}

REASONS = (
    ("other", "Other"),
    ("wrong input", "Wrong input"),
    ("wrong behaviour", "The agent does the wrong thing"),
    ("cost", "Cost"),
    ("not needed", "No longer needed"),
)

STOP_RECORDED = {
    "pause": "Stop #{number} recorded {at}. New work is held from version {version}."
    " Resuming it is a decision of its own.",
    "cancel": "Stop #{number} recorded {at}. New work is refused from version {version}.",
    "abandon": "Stop #{number} recorded {at}. New work is refused from version {version}."
    " We no longer wait or act.",
}
STOP_SUPERSEDES = " It replaces stop #{number} ({mode}, {who})."
STOP_JOINED = "Already stopping since {at} (#{number}, {who}). Your request was added to it."
STOP_MILDER = " You asked for {asked}, which is milder: the mode stays {mode}."
STOP_FINISHED = (
    "The run had already finished, {word}. Stop #{number} is recorded; no work was left to refuse,"
    " and no message that is still queued will be handed over."
)
# What the deadline of a stop decides, by mode.
DEADLINE = {
    "pause": "If work in flight has not ended by then: leases are fenced, its effects are unknown,"
    " and the run is paused.",
    "cancel": "If work in flight has not ended by then: status Stop timed out.",
    "abandon": "An abandon waits for nothing, so its deadline decides nothing.",
}
WAS = {"pause": "paused", "cancel": "cancelled", "abandon": "abandoned"}
DEADLINE_FORCED = "The deadline of stop #{number} has passed now, by your decision."
DEADLINE_NOT_FORCED = "Nothing waits for the deadline of stop #{number} any more; nothing was changed."
RESUMED = "Resumed at version {version}. That starts nothing by itself: workers attach and claim again."
RESUMED_BY = "{who} had resumed it at {at}: it may start new work, at version {version}."
RESUME = {
    "safe to run": ("Safe to run", "st-waiting"),
    "skip, settled": ("Skip, settled", "st-settled"),
    "skip, accepted as unknown": ("Skip, accepted as unknown", "st-accepted"),
    "waits for approval": ("Waits for approval", "st-comp"),
    "skip, not approved": ("Skip, not approved", "st-refused"),
    "skip, its step was stopped": ("Skip, its step was stopped", "st-refused"),
    "must wait": ("Must wait", "st-unknown"),
}
NOT_RECORDED = "Your stop was NOT recorded."
NOT_RECORDED_YET = "Your stop is NOT recorded yet."
MAY_STILL_START = "The run may still start work."
PERHAPS_RECORDED = "We do not know whether your stop was recorded."
SAME_KEY = "Try again: the same key is used, there will be one stop."
UNKNOWN_WHETHER = "We do not know whether it was recorded. Checking with the same key…"
PREVIEW_UNAVAILABLE = "Preview unavailable. You can still request the stop."
STILL_IN = "{worker} is still in {step} since {since}, heard {ago} ago."
NOT_CONFIRMED = "{workers} did not confirm by {deadline}."
SILENT = "Silence is not proof that it stopped."
SILENT_MANY = "Silence is not proof that they stopped."
SILENT_RUN = "Last heard {ago} ago. Silence is not proof that it stopped."
SILENCE = "Silence is not proof that it stopped; it will be refused if it returns."
SILENCE_OF_MANY = "Silence is not proof that they stopped; whoever returns will be refused."


# Actors that are nobody: Allstop itself, and whoever holds the machine.
OURS = {"system": "Allstop", "system:set-up": "the set-up", "system:restore": "a restore"}

MISSING = (
    "Restored from a backup taken {taken}; what was recorded between {taken} and the restore at {at} is "
    "missing here."
)


HELD_BACK = Term(
    "ACTIVE",
    "Held at the gate",
    "Every gate refuses it: its workspace’s gate was shut since it was admitted. Once that gate is open, a "
    "pause and a resume of its own let it go on.",
    "st-paused",
    "st-paused",
)


def run_chip(status: str, outcome: str, *, quiet: bool = False, held_back: bool = False) -> Term:
    """The chip of a run: its outcome once it ended, else its status. Unknown values raise KeyError.

    `held_back`: an active run that a gate above it refuses.
    """
    if held_back and status == "ACTIVE":
        return HELD_BACK
    if status in {"CANCELLING", "CANCELLING_TIMEOUT"}:
        return RUN["QUIET"] if quiet else RUN[status]
    if status in {"ACTIVE", "PAUSING", "PAUSED"}:
        return RUN[status]
    return OUTCOME[outcome]


def moment_utc(at: datetime) -> str:
    """29 Nov 2026, 15:02:13 UTC."""
    return at.astimezone(UTC).strftime("%-d %b %Y, %H:%M:%S UTC")


def late(living: list[str], more: int, behind: str, deadline: str) -> str:
    """Past a deadline: who answers and is still at it (`living`, and so many `more`), and who did not
    confirm. Where nothing is known of either, it is the work in flight that did not end.
    """
    told = [*living, *([f"{more} more are still at work."] if more > 0 else [])]
    if behind or not told:
        told.append(NOT_CONFIRMED.format(workers=behind or "Work in flight", deadline=deadline))
    return " ".join(told)


def count(number: int, one: str, many: str = "") -> str:
    """ "1 effect", "2 effects"; `many` where the plural is not an added s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(parts: list[str]) -> str:
    """["a", "b", "c"] as "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def doubtful(named: str, effects: int, deliveries: int) -> str:
    """What may have happened: `named` tells the effects; messages beside them, or alone."""
    if not deliveries:
        return named
    over = f"the hand-over of {count(deliveries, 'message')}"
    return f"{named} and {over}" if effects else over


def messages(counts: Mapping[str, int]) -> str:
    """`2 handed over · 1 held · 1 unknown`; empty when there is no message."""
    order = ("HANDED_OVER", "NOT_HANDED_OVER", "HELD", "WITHHELD", "UNKNOWN", "ACCEPTED_UNKNOWN")
    parts = [
        f"{counts[state]} {DELIVERY[state].word.lower()}"
        for state in (*order, "DISPATCHED", "QUEUED")
        if counts.get(state)
    ]
    return " · ".join(parts)


def span(seconds: float) -> str:
    """A length of time in the two largest units: 41 s, 4 min 1 s, 3 h 31 min, 2 d 4 h."""
    whole = max(0, int(seconds))
    if seconds != whole and 0.05 <= seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


# Reordering and invisible marks could make one name look like another; joiners stay, scripts need them.
HIDDEN = dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0x200E, 0x200F, 0x061C, 0x2060, 0xFEFF, 0x00AD]
)
SPACES = {"Cc": " ", "Zl": " ", "Zp": " ", "Cs": "", "Co": "", "Cn": ""}


def clean(text: object) -> str:
    """Text of a stranger, fit to be shown on one line: no control, bidi or invisible characters."""
    return clean_end(text).strip()


def clean_end(text: object) -> str:
    """As `clean`, keeping the space in front: for the lines of indented text."""
    plain = str(text).translate(HIDDEN)
    return "".join(SPACES.get(unicodedata.category(sign), sign) for sign in plain).rstrip()


def brief(text: object, signs: int = 60) -> str:
    """A stranger's text for a place that has little room; the whole of it stands somewhere else."""
    plain = clean(text)
    return plain if len(plain) <= signs else f"{plain[: signs - 1].rstrip()}…"
