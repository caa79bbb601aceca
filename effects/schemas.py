"""The wire's shapes of this room: runs with their outcome, effects, reports, kinds."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from runs import redaction
from runs.evidence import canonical
from runs.fields import (
    Class,
    In,
    Key,
    Moment,
    Name,
    Note,
    Out,
    Seconds,
    ShortName,
    Token,
    Version,
    Worker,
    known,
    lines,
    plain,
    said,
    sized,
    visible,
)
from runs.models import StopRequest
from runs.saying import words_in
from runs.schemas import Page, PermitOut, StepRef, StopBrief, stop_brief

from .models import Effect, Review

PART = 64 * 1024  # bytes of a result, of items, of usage


def storable(value: Any) -> Any:
    """A JSON value of at most 64 KiB without U+0000, which no database keeps."""
    if any("\0" in text for text in _texts(value)):
        raise PydanticCustomError("characters", "Input may not hold the character U+0000")
    if len(canonical(value).encode()) > PART:
        raise PydanticCustomError("size", "Input should have at most 64 KiB as JSON")
    return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in _texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def not_blank(text: str) -> str:
    """A decision has a reason; spaces are none."""
    if not words_in(text):
        raise PydanticCustomError("blank", "Say why")
    return text


AnyJson = Annotated[Any, AfterValidator(storable), said]
Body = Annotated[str, StringConstraints(strict=True)]  # raw text, kept byte for byte
Answer = Annotated[str, sized(2000, 1), AfterValidator(lines), said]
Reason = Annotated[str, sized(2000, 1), AfterValidator(lines), AfterValidator(not_blank), said]
Url = Annotated[str, sized(2000, 1), AfterValidator(visible)]
Duration = Annotated[int, Field(strict=True, ge=0, le=31_536_000)]
HttpStatus = Annotated[int, Field(strict=True, ge=100, le=599)]
JsonPath = Annotated[str, sized(200, 1), AfterValidator(visible)]


# runs ---------------------------------------------------------------------------------------------


class RunOut(Out):
    """A run. `outcome` follows from the rows as they stand; `stop` is the newest one. `silent`: in motion,
    and nothing was heard of its workers for as long as it said; silence is not proof that it stopped.
    """

    id: str
    key: str
    name: str
    workspace_id: str
    session: str
    parent: str | None
    agent: str
    runtime: str
    labels: dict[str, str]
    ungateable: list[str]
    status: str
    cancel_version: int
    outcome: str
    summary: str
    drill: bool
    started_at: datetime
    ended_at: datetime | None
    last_heard_at: datetime | None
    silent: bool
    stop: StopBrief | None
    url: str


def run_out(run: Any, stop: StopRequest | None, outcome: str, url: str) -> dict[str, Any]:
    """A run (with its session selected, and `silent`) on the wire."""
    derived = {
        "session": run.session.key if run.session else "",
        "outcome": outcome,
        "started_at": run.admitted_at,
        "parent": run.parent_id,
        "stop": stop_brief(stop),
        "url": url,
    }
    told = {name: getattr(run, name) for name in RunOut.model_fields if name not in derived}
    return RunOut.model_validate(told | derived).wire()


class RunsOut(Page):
    """A page of runs."""

    items: list[RunOut]


class CompleteIn(In):
    """The runtime's word that the run completed, at the version it saw."""

    seen_version: Version
    worker: ShortName = ""
    summary: Note = ""


class ResumeIn(In):
    """A resume decision: why, and what it is about: whatever came later beats it.

    `seen_version` is the run's `cancel_version`, `presses` those of its stop, as you read them.
    """

    reason: Reason
    seen_version: Version
    stop_id: ShortName = ""
    presses: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None


class FailIn(In):
    """The runtime's word that the run failed."""

    seen_version: Version | None = None
    worker: ShortName = ""
    summary: Note = ""


class FinishIn(In):
    """How a step ended, as its worker says."""

    claim_token: Token
    result: Literal["succeeded", "partial", "failed", "unknown"]
    detail: Note = ""
    reported_at: Moment | None = None


# effects ------------------------------------------------------------------------------------------


class PlanIn(In):
    """What would lessen this effect, or the reason why there is nothing."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["kind"]}, {"required": ["none_because"]}]}
    )
    kind: Annotated[str, sized(120), AfterValidator(visible), known] = ""
    title: Name = ""
    body: Body = ""
    none_because: Note = ""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.none_because and (self.kind or self.title or self.body):
            raise PydanticCustomError("plan", "Give either kind (with title, body) or none_because")
        return self


# true: one person decides before it is sent; a number: so many. Its workspace's rules may want more.
Approvals = StrictBool | Annotated[int, Field(strict=True, ge=0, le=9)]


class NewEffectIn(In):
    """An effect before it is sent. `body` is the very text that is sent; its bytes are kept.

    on_stop: a cancel of its run asks its provider to cancel it, where its kind says how and the rules let it.
    """

    key: Key
    kind: Annotated[str, sized(120, 1), AfterValidator(visible), known]
    op_class: Class | None = Field(default=None, alias="class")
    target: Name = ""
    title: Name = ""
    amount: Annotated[str, sized(60), AfterValidator(plain), said] = ""
    step: StepRef
    worker: Worker
    seen_version: Version
    body: Body = ""
    plan: PlanIn
    dispatch: StrictBool = True
    approval: Approvals = False
    on_stop: Literal["ask_provider"] | None = None
    lease_s: Seconds = 30


class DispatchIn(In):
    """Ask to send a declared effect, or one that is known not to have been applied."""

    step_claim_token: Token
    worker: Worker
    seen_version: Version
    approval: Approvals = False
    lease_s: Seconds = 30


class EffectOut(Out):
    """An effect. `settlement` is what is known of it, on `ground`; `queued`: our executor will send it.

    `job_state`: how far a job is at its provider, as of `job_at`; it settles nothing. `asks_about`: the
    effect that its provider was asked to cancel by this one.
    """

    id: str
    run_id: str
    step_id: str
    key: str
    kind: str
    op_class: str = Field(serialization_alias="class")
    target: str
    title: str
    amount: str
    settlement: str
    ground: str
    contradicted: bool
    late: bool
    attempt: int
    body_digest: str
    plan: dict[str, str]
    result: Any
    items: Any
    provider_ref: str
    why_unknown: str
    queued: bool
    declared_at: datetime
    dispatched_at: datetime | None
    settled_at: datetime | None
    unknown_since: datetime | None
    next_check_at: datetime | None
    check_until: datetime | None
    checks: int
    job_state: str
    job_at: datetime | None
    on_stop: str | None
    asks_about: str | None


def effect_out(effect: Effect) -> dict[str, Any]:
    """An effect on the wire; its body is not repeated, its digest is."""
    derived = {
        "kind": effect.kind_name,
        "plan": redaction.redact(json.loads(bytes(effect.plan) or b"{}")),
        "queued": effect.queued_at is not None,
        "asks_about": effect.asks_about_id,
    }
    told = {name: getattr(effect, name) for name in EffectOut.model_fields if name not in derived}
    return EffectOut.model_validate(told | derived).wire()


class EffectsOut(Page):
    """A page of effects."""

    items: list[EffectOut]


class ReviewBrief(Out):
    """What people are asked, where it stands, and until when it must be decided and used.

    status: waiting · granted · used · rejected · expired · cancelled (by a stop) · ended (its run did) ·
    void · not_needed (both of a compensation). `step_id`: null for a compensation.
    """

    id: str
    run_id: str
    step_id: str | None
    effect_id: str
    effect_key: str
    status: Literal[
        "waiting", "granted", "used", "rejected", "expired", "cancelled", "ended", "void", "not_needed"
    ]
    needed: int
    given: int
    expires_at: datetime


def status_of(review: Review) -> str:
    """Where a review stands, from its moments."""
    return review.closed_as or ("granted" if review.granted_at else "waiting")


def review_brief(review: Review) -> dict[str, Any]:
    """An open review as the gate's answer holds it (one query)."""
    derived = {"status": status_of(review), "given": review.approvals.filter(state="GIVEN").count()}
    told = {name: getattr(review, name) for name in ReviewBrief.model_fields if name not in derived}
    return ReviewBrief.model_validate(told | derived).wire()


class ReversibleOut(Out):
    """Whether what it does can be lessened afterwards, as its kind says; `can` null: nobody said."""

    preset: str
    can: bool | None
    sentence: str


class EffectAnswer(Out):
    """The gate's answer for an effect: a permit, or none and why not. `review`: people decide first.

    `reversible`: what its kind says of afterwards, told before it is sent.
    """

    effect: EffectOut
    permit: PermitOut | None
    queued: bool = False
    known: Literal["settled", "must_wait", "waiting"] | None = None
    reversible: ReversibleOut
    review: ReviewBrief | None = None
    what_to_do: str | None = None
    result: Any = None


def _as_text(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("characters", "Input may not hold the character U+0000")
    if len(text.encode()) > PART:
        raise PydanticCustomError("size", "Input should have at most 64 KiB as UTF-8")
    return text


Tokens = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]


class SpendIn(In):
    """What a model turn spent, as far as its holder knows. `cost` is text: the amount and its currency."""

    model: Annotated[str, sized(120), AfterValidator(plain), said] = ""
    tokens_in: Tokens | None = None
    tokens_out: Tokens | None = None
    cost: Annotated[str, sized(60), AfterValidator(plain), said] = ""


class ReportIn(In):
    """What became of a call. `not_sent`: only from a holder that never received "open".

    Of a model turn: its `spend`, and the `partial_output` that it had made when it was cut off.
    """

    claim_token: Token
    outcome: Literal["applied", "partial", "not_applied", "unknown", "not_sent"]
    result: AnyJson = None
    provider_ref: Name = ""
    items: AnyJson = None
    detail: Note = ""
    usage: Annotated[dict[str, Any], AfterValidator(storable), said] = {}
    spend: SpendIn | None = None
    partial_output: Annotated[str, StringConstraints(strict=True), AfterValidator(_as_text), said] | None = (
        None
    )
    reported_at: Moment | None = None

    @model_validator(mode="after")
    def _whole_or_part(self) -> Self:
        if self.partial_output is not None and self.outcome in ("applied", "not_sent"):
            raise PydanticCustomError("outcome", "A turn with a partial output did not come to its end")
        if self.spend is not None and self.outcome == "not_sent":
            raise PydanticCustomError("outcome", "A turn that was not sent spent nothing")
        return self


class ReportAnswer(Out):
    """The permit and its effect after the report. `late`: it came after the lease, or after the run."""

    permit: PermitOut
    effect: EffectOut | None
    late: bool
