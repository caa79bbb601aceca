"""The report's shapes: plain values, the same for a draft, an issued version, the page and the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from dashboard import repair_words, words
from dashboard.event_words import event
from dashboard.words import Term

from .measured import MeasureRow
from .signed import SignRow, StatementFacts, has_read, open_items

SCHEMA = "allstop.report/1"


@dataclass(frozen=True)
class Claim:
    """One sentence with the evidence lines that it stands on, and an anchor of its own.

    Read `lead` (bold), `text`, `stress` (bold) in this order. `effect` is the id of the effect or the
    compensation that it is about, "" if none. A claim that nothing of a kind exists may have no lines.
    `action`: what a person may do about it (propose · review · lift), and `about` the id of what.
    """

    anchor: str
    text: str
    lines: list[int] = field(default_factory=list)
    lead: str = ""
    stress: str = ""
    effect: str = ""
    action: str = ""
    about: str = ""

    @property
    def says(self) -> str:
        """The whole sentence as plain text."""
        return " ".join(part for part in (self.lead, self.text, self.stress) if part)


@dataclass(frozen=True)
class Section:
    """One of the five questions. Never without a claim; `left_out` further ones stand in the manifest."""

    number: int
    key: Literal["stopped", "completed", "uncertain", "more", "next"]
    title: str
    claims: list[Claim]
    left_out: int = 0


@dataclass(frozen=True)
class RunFacts:
    """The run as its agent named it."""

    id: str
    key: str
    name: str
    workspace: str
    session: str
    agent: str
    runtime: str
    ungateable: list[str]
    drill: bool
    admitted_at: datetime
    ended_at: datetime | None
    summary: str


@dataclass(frozen=True)
class PressFacts:
    """One press of Stop. `actor` is an id; `Report.names` has its name. `answer`: recorded · joined · …"""

    at: datetime
    actor: str
    via: str
    answer: str
    note: str


@dataclass(frozen=True)
class StopFacts:
    """One stop request: moments are the server's, None until they came; `asked_at` is the client's claim.

    `pressed_says` is "pressed twice, joined once"; `presses` are the first ones.
    """

    id: str
    number: int
    actor: str
    via: str
    scope: str
    mode: str
    requested_mode: str
    reason: str
    note: str
    version_before: int | None
    version_after: int | None
    finished_before: bool
    asked_at: datetime | None
    recorded_at: datetime
    gate_at: datetime | None
    fenced_at: datetime | None
    deadline_at: datetime | None
    quiet_at: datetime | None
    timed_out_at: datetime | None
    closed_at: datetime | None
    closed_because: str
    pressed: int
    joined: int
    pressed_says: str
    presses: list[PressFacts]
    replaces: str = ""


@dataclass(frozen=True)
class ManifestRow:
    """One effect. `line` is the newest evidence of its settlement; `ground` says what that stands on."""

    id: str
    key: str
    name: str
    kind: str
    op_class: str
    target: str
    amount: str
    settlement: str
    ground: str
    provider_ref: str
    attempt: int
    plan: Literal["declared", "none"]
    late: bool
    contradicted: bool
    seen_twice: int
    job_state: str
    next_check_at: datetime | None
    line: int | None
    job_at: datetime | None = None
    check_until: datetime | None = None
    asks_about: str = ""

    @property
    def term(self) -> Term:
        return words.SETTLEMENT[self.settlement]


@dataclass(frozen=True)
class RepairRow:
    """One compensation. `stands` is the word of its chip, `says` the sentence; `line` its newest evidence.

    `approved_by`: actor ids of those whose approvals stand or were used. `effect`: what it answers.
    """

    id: str
    key: str
    name: str
    kind: str
    op_class: str
    target: str
    amount: str
    state: str
    stage: str
    stands: str
    says: str
    halted: bool
    ground: str
    provider_ref: str
    effect: str
    effect_key: str
    effect_name: str
    number: int
    attempt: int
    proposed_by: str
    approved_by: list[str]
    needed: int | None
    decided_by: str
    reason: str
    next_check_at: datetime | None
    review: str
    line: int | None

    @property
    def term(self) -> Term:
        _, icon, sentence = repair_words.WORDS[self.stage]
        return Term(self.stage, self.stands, sentence, icon, icon)


@dataclass(frozen=True)
class RefusalRow:
    """One refusal, `count` times. `after_stop` is computed from its versions, not from its time."""

    at: datetime
    last_at: datetime
    boundary: str
    reason: str
    what: str
    effect_key: str
    worker: str
    carried_version: int | None
    current_version: int | None
    count: int
    after_stop: bool
    line: int | None

    @property
    def why(self) -> str:
        return words.REFUSAL_REASON.get(self.reason, self.reason)


@dataclass(frozen=True)
class FlightRow:
    """One entry of the stop's list of what was in flight, with what became of it since."""

    permit: str
    what: str
    effect: str
    effect_key: str
    boundary: str
    op_class: str
    worker: str
    opened_at: datetime
    state_then: str
    state_now: str
    settlement: str
    became: str
    lines: list[int]


@dataclass(frozen=True)
class WorkerRow:
    """What a worker itself said last; silence proves nothing."""

    name: str
    version: int | None
    holds_stop: bool
    heard_at: datetime
    says: str


@dataclass(frozen=True)
class LateRow:
    """A report that came after the lease or the run had ended. Kept as evidence."""

    at: datetime
    worker: str
    effect_key: str
    outcome: str
    says: str
    line: int


@dataclass(frozen=True)
class LineRow:
    """An evidence line that a claim cites."""

    seq: int
    at: datetime
    kind: str
    actor: str
    effect_key: str
    payload_digest: str

    @property
    def word(self) -> str:
        return event(self.kind)


@dataclass(frozen=True)
class Listed:
    """How many there are, and what is written when there are none (or some are left out)."""

    total: int
    says: str


@dataclass(frozen=True)
class Manifest(Listed):
    """All effects, in the order of declaration; `counts` by settlement."""

    counts: dict[str, int]
    rows: list[ManifestRow]


@dataclass(frozen=True)
class Repairs(Listed):
    """All compensations, in the order in which they were proposed; `counts` by state."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: list[RepairRow] = field(default_factory=list)


@dataclass(frozen=True)
class BoundaryLog(Listed):
    """What the gate refused; `asked` counts repeats too."""

    asked: int
    rows: list[RefusalRow]


@dataclass(frozen=True)
class InFlightList(Listed):
    """What was in flight when the stop took effect: complete, never shortened."""

    rows: list[FlightRow]


@dataclass(frozen=True)
class Workers(Listed):
    rows: list[WorkerRow]


@dataclass(frozen=True)
class LateReports(Listed):
    rows: list[LateRow]


@dataclass(frozen=True)
class TurnRow:
    """One model turn. What nobody reported is None or ""; `says` tells all of it in words."""

    permit: str
    what: str
    worker: str
    opened_at: datetime
    state: str
    model: str
    tokens_in: int | None
    tokens_out: int | None
    cost: str
    output_size: int | None
    output_digest: str
    output_kept: bool
    says: str


@dataclass(frozen=True)
class Turns(Listed):
    rows: list[TurnRow]


@dataclass(frozen=True)
class NewWork:
    """Work begun after the stop, computed from versions and line numbers. `found` must be 0."""

    found: int
    says: str
    lines: list[int]
    ungateable: list[str]


@dataclass(frozen=True)
class SealFacts:
    """The chain of evidence that the report stands on: compare `head` with `manage.py verify`."""

    upto_seq: int
    head: str


@dataclass(frozen=True)
class Changes:
    """What a version says that version `since` did not: sentences with their lines, made from both."""

    since: int
    claims: list[Claim]
    left_out: int = 0


@dataclass(frozen=True)
class VersionRow:
    """One issued version, for the list beside the report."""

    version: int
    issued_at: datetime
    outcome: str
    final: bool


@dataclass(frozen=True)
class Report:
    """The answer to the five questions. See the package's docstring for how a page uses it.

    Issued versions are read back into it: a field that is added later needs a default.
    """

    schema: str
    draft: bool
    version: int | None
    issued_at: datetime | None
    as_of: datetime
    upto_seq: int
    seal: SealFacts | None
    run: RunFacts
    status: str
    outcome: str
    word: str
    sentence: str
    final: bool
    stamp: str
    known: int
    of: int
    stop: StopFacts | None
    earlier_stops: list[StopFacts]
    sections: list[Section]
    manifest: Manifest
    log: BoundaryLog
    new_work: NewWork
    in_flight: InFlightList
    workers: Workers
    late: LateReports
    evidence: list[LineRow]
    method: list[str]
    matters: str
    deliveries: dict[str, int] = field(default_factory=dict)
    turns: Turns = field(default_factory=lambda: Turns(0, "", []))
    repairs: Repairs = field(default_factory=lambda: Repairs(0, ""))
    changes: Changes | None = None
    measures: list[MeasureRow] = field(default_factory=list)
    # Beside the document: not part of it, not under its digest.
    id: str = field(default="", metadata={"beside": True})
    digest: str = field(default="", metadata={"beside": True})
    names: dict[str, str] = field(default_factory=dict, metadata={"beside": True})
    versions: list[VersionRow] = field(default_factory=list, metadata={"beside": True})
    signed: list[SignRow] = field(default_factory=list, metadata={"beside": True})
    statement: StatementFacts | None = field(default=None, metadata={"beside": True})
    matching: int = field(default=0, metadata={"beside": True})  # effects that a page's reader looks for

    @property
    def term(self) -> Term:
        """Chip, icon and class of the outcome (of the status while the run has not ended)."""
        quiet = bool(self.stop and self.stop.quiet_at)
        held_back = self.word == words.HELD_BACK.word
        return words.run_chip(self.status, self.outcome, quiet=quiet, held_back=held_back)

    @property
    def messages(self) -> str:
        """The run's own messages in a few words: `2 handed over · 1 held`; empty when there are none."""
        return words.messages(self.deliveries)

    @property
    def newest(self) -> int | None:
        """The newest issued version: greater than `version` when this one was replaced."""
        return max((row.version for row in self.versions), default=None)

    @property
    def replaces(self) -> int | None:
        return self.version - 1 if self.version and self.version > 1 else None

    @property
    def replaced(self) -> bool:
        return self.version is not None and self.version != self.newest

    @property
    def open_items(self) -> int:
        """How much it leaves open."""
        counts = (self.manifest.counts, self.repairs.counts, self.deliveries)
        return open_items(*counts, self.status, self.outcome)

    @property
    def has_read(self) -> str:
        """What a person signs."""
        return has_read(self.open_items)

    @property
    def signatures(self) -> list[SignRow]:
        """The sign-offs of this version."""
        return [row for row in self.signed if row.version == self.version]
