"""The words of stops wider than a run: what they are about, where they stand, what a press came to."""

from __future__ import annotations

from dashboard.words import CLASS, Term, brief, clean, count, listed
from runs.models import Result, ScopeKind, StopRequest
from runs.policies import Match


def _terms(*rows: tuple[str, str, str, str]) -> dict[str, Term]:
    return {value: Term(value, word, sentence, icon, icon) for value, word, icon, sentence in rows}


STAGE = _terms(
    (
        "observing",
        "Observing",
        "st-waiting",
        "Its gate stays open. Nothing is refused; what it would have refused is counted.",
    ),
    (
        "fencing",
        "Establishing",
        "st-stopping",
        "No run of it may start new work. We are establishing what was in flight.",
    ),
    ("in force", "In force", "st-refused", "No run of it may start new work until it is released."),
    ("withholds", "In force", "st-refused", "What it names is refused until it is released; the runs go on."),
    ("carrying out", "Carrying out", "st-stopping", "Its runs are stopped one after another."),
    ("carried out", "Carried out", "st-quiet", "Each of its runs had its turn. Not all of them are closed."),
    ("waiting", "Waiting for its run", "st-waiting", "It takes effect the moment its run is registered."),
    ("released", "Released", "st-none", "It holds nothing any more. What it stopped stays stopped."),
    ("closed", "Closed", "st-done", "Nothing of it is open."),
    ("replaced", "Replaced", "st-none", "A stronger stop took its place."),
)

# What a stop of a scope came to for one run.
RESULT = _terms(
    (Result.PENDING, "Not yet", "st-waiting", "Its turn is still to come."),
    (Result.RECORDED, "Recorded", "st-refused", "It has a stop of its own."),
    (Result.JOINED, "Already stopping", "st-stopping", "The press was added to the stop that was there."),
    (Result.FINISHED, "Finished before", "st-none", "No work was left to refuse."),
    (Result.NOT_PERMITTED, "Not permitted", "st-failed", "Whoever pressed may not stop it."),
    (Result.LISTED, "Listed", "st-flight", "It goes on; what was in flight of the kind is listed."),
)
TALLY = (
    (Result.RECORDED, "recorded"),
    (Result.LISTED, "listed"),
    (Result.JOINED, "already stopping"),
    (Result.FINISHED, "finished before"),
    (Result.NOT_PERMITTED, "not permitted"),
)

RECORDED = "Stop #{number} of {subject} recorded {at}. {means}"
MEANS = {
    "scope": "Its gate is shut: no run of it may start new work, and none is admitted until it is released.",
    "effects": "What it names is refused from now on; the runs themselves go on.",
    "step": "Nothing more of this step is let through; the run goes on.",
    "observes": "It only observes: nothing is refused, and what it would have refused is counted.",
}
MEANT = {  # of one that is over
    "scope": "While it stood no run of it could start new work, and none was admitted.",
    "effects": "While it stood what it names was refused; the runs themselves went on.",
    "observes": "It only observed: nothing was refused, and what it would have refused was counted.",
}
HELD_NO_RUN = "It holds nothing any more. The runs went on all the while."
JOINED = "{subject} is stopped already, since {at} (#{number}, {who}). Your request was added to it."
STEP_FINISHED = (
    "The step had already ended. Stop #{number} of {subject} is recorded; no retry of it may begin."
)
OBSERVED_ALREADY = "Stop #{number} observes {subject} already, since {at} ({who}). Your request was added."
OVER = "This press was recorded before, with stop #{number}, which was released since."
WIDE = "A stop of all workspaces is recorded. The gate of each is shut in turn; each has a stop of its own."
WIDE_RELEASED = "All workspaces are released from it. Nothing was started by this."
WIDE_RELEASED_SOME = (
    "Released, but {where}: the rules there ask for two people, and your wish is recorded. A second person "
    "grants it on the page of the stop. Nothing was started by this."
)
WIDE_NOT_FENCED = (
    "Nothing was changed. It is still being carried out: {done} of {total} workspaces are fenced."
)

RELEASED = "Stop #{number} is released. Nothing was started by this; new runs may be admitted."
ASKED = (
    "Your wish to release stop #{number} is recorded. A second person has to grant it; it holds until then."
)
NOT_FENCED = "It is still being fenced: {done} of {total} runs had their turn. Release it once that is over."
NO_STOP = "No stop is in force."
UNREACHABLE = "We cannot confirm the state. Gates fail closed: new effects are refused until this is back."
STANDS = "It stands until it is released, for every run that asks to be admitted later too."
OVERDUE = "overdue: nobody looked at it again"


def subject(stop: StopRequest) -> str:
    """What a stop is about; its session, policy, workspace, run and step come with it."""
    match stop.scope:
        case ScopeKind.SESSION:
            return f"session “{brief(stop.session)}”"
        case ScopeKind.WORKSPACE:
            return f"workspace “{brief(stop.workspace)}”"
        case ScopeKind.POLICY:
            return f"policy “{brief(stop.policy)}”"
        case ScopeKind.BULK:
            return count(stop.runs_n or 0, "selected run")
        case ScopeKind.STEP:
            return f"step “{brief(stop.step)}”"
    return f"run “{brief(stop.run or stop.run_key)}”"


def capital(text: str) -> str:
    """The first letter of a sentence; the rest as it is."""
    return text[:1].upper() + text[1:]


def tally(results: dict[str, int]) -> str:
    """`9 recorded · 3 already stopping · 1 finished before · 1 not permitted`; empty without any."""
    return " · ".join(f"{results[kind]} {word}" for kind, word in TALLY if results.get(kind))


def described(match: Match) -> str:
    """A policy's match in words: `runs with payments = yes; effects of kind bank.charge`."""
    tags = [f"{clean(name)} = {clean(value)}" for name, value in sorted(match.labels.items())]
    said = [f"runs with {listed(tags)}" if tags else "every run"]
    if match.kinds:
        said.append(f"effects of kind {' or '.join(clean(kind) for kind in match.kinds)}")
    if match.classes:
        said.append(f"effects of class {' or '.join(CLASS.get(name, name) for name in match.classes)}")
    return "; ".join(said)
