"""The wire's shapes of this room: what a request may hold, and what an answer holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from .fields import (
    Class,
    In,
    Key,
    Name,
    Note,
    OptionalKey,
    OptionalToken,
    Out,
    Seconds,
    ShortKey,
    ShortName,
    Token,
    Version,
    Worker,
    said,
)
from .gate import Look
from .models import INCONSEQUENTIAL, Evidence, Permit, Receipt, Step, StopRequest
from .models import Worker as WorkerRow


class ProblemOut(BaseModel):
    """RFC 9457. Members beside these five depend on the type."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str


class Page(Out):
    """A page of a list, newest first; `next_cursor` is null on the last."""

    next_cursor: str | None


# runs ---------------------------------------------------------------------------------------------


class NewRunIn(In):
    """A run as its runtime registers it. The key is its own name for it."""

    key: Key
    name: Name = ""
    session: OptionalKey = ""
    agent: ShortName = ""
    runtime: ShortName = ""
    labels: Annotated[dict[ShortKey, Name], said] = Field(default={}, max_length=32)
    ungateable: list[Name] = Field(default=[], max_length=100)
    worker: ShortName = ""
    drill: StrictBool = False
    silent_after_s: Annotated[int, Field(strict=True, ge=1, le=31_536_000)] = 900
    parent: OptionalKey = Field(default="", description="The id of the run that started this one.")


class StopBrief(Out):
    """The stop that holds a run."""

    id: str
    number: int
    mode: str
    recorded_at: datetime
    deadline_at: datetime | None


def stop_brief(stop: StopRequest | None) -> StopBrief | None:
    return StopBrief.model_validate(stop, from_attributes=True) if stop else None


Point = Literal["admit", "claim", "model", "dispatch", "retry", "act", "deliver", "checkpoint"]


class HeartbeatIn(In):
    """A worker is alive, at this version, and holds these claims."""

    worker: Worker
    seen_version: Version
    claim_tokens: list[Token] = Field(default=[], max_length=500)
    confirmed: dict[Point, Version] = Field(
        default={}, description="The version that this worker holds at each boundary, as far as it knows."
    )


class HeartbeatOut(Out):
    """Where the run stands now. `renewed`: open permits whose lease was renewed. `lost`: claim tokens that
    hold nothing any more. `stopped_steps`: steps that this worker held and that were stopped alone.
    `may_go_on`: whether this worker, at the version it said, may begin new work.
    """

    status: str
    cancel_version: int
    stop: StopBrief | None
    renewed: int
    lost: list[str]
    stopped_steps: list[str]
    may_go_on: bool


class ReceiptOut(Out):
    """A worker's own statement that it holds this version at this boundary."""

    boundary: str
    version: int
    confirmed_at: datetime
    heard_at: datetime


class WorkerOut(Out):
    """A worker. Silence is not proof that it stopped; a receipt is shown, never waited for."""

    name: str
    confirmed_version: int | None
    confirmed_at: datetime | None
    last_heard_at: datetime
    receipts: list[ReceiptOut]


class WorkersOut(Out):
    """Workers of a run, those behind first; `confirmed` of `total` said that they hold its version."""

    cancel_version: int
    total: int
    confirmed: int
    as_of: datetime
    items: list[WorkerOut]


def worker_out(worker: WorkerRow, receipts: Sequence[Receipt]) -> WorkerOut:
    """A worker with its receipts on the wire."""
    given = [ReceiptOut.model_validate(r, from_attributes=True) for r in receipts]
    told = {name: getattr(worker, name) for name in WorkerOut.model_fields if name != "receipts"}
    return WorkerOut(**told, receipts=given)


class Nothing(In):
    """An empty body."""


# steps --------------------------------------------------------------------------------------------


class ClaimIn(In):
    """Who claims, at which version, for how long (seconds)."""

    worker: Worker
    seen_version: Version
    lease_s: Seconds = 30


class NewStepIn(In):
    """A step; with `claim` it is claimed at once."""

    key: Key
    name: Name = ""
    op_class: Class = Field(alias="class")
    cleanup: StrictBool = False
    input: Note = Field(default="", description="For the worker's own use. Not stored.")
    claim: ClaimIn | None = None


class ReleaseIn(In):
    """A claim that is given back."""

    claim_token: Token


class StepOut(Out):
    """A step. `claim_token` is only told to the one who claimed it by this very request."""

    id: str
    run_id: str
    key: str
    name: str
    op_class: str = Field(serialization_alias="class")
    status: str
    cleanup: bool
    worker: str
    claim_token: str | None
    claim_version: int | None
    lease_until: datetime | None
    attempt: int
    reported_after_stop: bool
    created_at: datetime
    dispatched_at: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    detail: str


def step_out(step: Step, *, with_token: bool = False) -> dict[str, Any]:
    """A step on the wire; its token only for its new holder."""
    told = {name: getattr(step, name) for name in StepOut.model_fields if name != "claim_token"}
    return StepOut(**told, claim_token=step.claim_token if with_token else None).wire()


class StepsOut(Page):
    """A page of steps."""

    items: list[StepOut]


class StepRef(In):
    """A step that is claimed already (`id`, `claim_token`), or one to register and claim (`key`, `name`)."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["id", "claim_token"]}, {"required": ["key"]}]}
    )
    id: OptionalToken = ""
    claim_token: OptionalToken = ""
    key: OptionalKey = ""
    name: Name = ""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        named = {field for field in ("id", "claim_token", "key") if getattr(self, field)}
        if named not in ({"id", "claim_token"}, {"key"}):
            raise PydanticCustomError("step", "Give either id and claim_token, or key and perhaps name")
        return self


# permits ------------------------------------------------------------------------------------------


def changes_nothing(op_class: str) -> str:
    """What can change the outside world needs an intent: without one nobody could settle it."""
    if op_class in INCONSEQUENTIAL:
        return op_class
    raise PydanticCustomError(
        "effect_needed", "declare an effect of this class instead: POST /runs/…/effects"
    )


class NewPermitIn(In):
    """A permit without an effect: a model turn, a read."""

    boundary: Literal["model", "act", "deliver", "dispatch"]
    op_class: Annotated[Class, AfterValidator(changes_nothing)] = Field(alias="class")
    step: StepRef
    worker: Worker
    seen_version: Version
    lease_s: Seconds = 30


class PermitOut(Out):
    """One attempt to cross a boundary. `permit_ttl_s`: how long a send may begin, from `opened_at`."""

    id: str
    run_id: str
    step_id: str
    effect_id: str | None
    boundary: str
    effect_key: str
    attempt: int
    seen_version: int
    claim_token: str
    state: str
    outcome: str
    opened_at: datetime
    permit_until: datetime
    permit_ttl_s: float
    lease_until: datetime


def permit_out(permit: Permit, effect_id: str | None = None) -> dict[str, Any]:
    """A permit on the wire; for its holder only, it holds the token."""
    derived = {
        "claim_token": permit.token,
        "effect_id": effect_id,
        "permit_ttl_s": (permit.permit_until - permit.opened_at).total_seconds(),
    }
    told = {name: getattr(permit, name) for name in PermitOut.model_fields if name not in derived}
    return PermitOut.model_validate(told | derived).wire()


class PermitAnswer(Out):
    """The gate said yes: look once more, then send."""

    permit: PermitOut


class LookOut(Out):
    """The second look. Only "open" means send. `run_goes_on`: what shut it holds this step, or effects of its
    kind, and not the run; `scope` says which of the two.
    """

    permit_id: str
    look: Literal["open", "shut", "expired", "ended"]
    run_goes_on: bool
    scope: str | None
    run_status: str
    current_version: int
    looked_at: datetime
    permit_until: datetime


def look_out(look: Look) -> dict[str, Any]:
    told = {"look": look.answer, "run_goes_on": look.run_goes_on, "scope": look.scope or None}
    return LookOut.model_validate({**vars(look), **told}).wire()


# evidence -----------------------------------------------------------------------------------------


class LineOut(Out):
    """One line of evidence. `payload` is null when it has none or was removed; the digest stays."""

    stream: str
    seq: int
    at: datetime
    kind: str
    actor: str
    boundary: str
    carried_version: int | None
    current_version: int | None
    ground: str
    stop_id: str
    step_id: str
    permit_id: str
    effect_key: str
    worker: str
    reported_at: datetime | None
    payload: Any
    payload_digest: str
    payload_removed_at: datetime | None
    sealed: bool


class EvidenceOut(Out):
    """Lines in their order. Ask again with `after=next_after` for those behind them."""

    items: list[LineOut]
    next_after: int


def line_out(line: Evidence, **more: Any) -> dict[str, Any]:
    """A line on the wire; `more`: the fields that are not its own columns."""
    told = {name: getattr(line, name) for name in LineOut.model_fields if name not in more}
    return LineOut.model_validate(told | more).wire()
