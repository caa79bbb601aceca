"""The wire's shapes of kinds: their six answers, how they are sent, asked about and compensated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StringConstraints

from runs.fields import Class, In, Note, Out, known, plain, said, sized, visible
from runs.schemas import Page

from . import kinds
from .models import Kind
from .new_kind import on_wire
from .schemas import PART, Answer, AnyJson, Duration, HttpStatus, JsonPath, Url


class PresentIf(In):
    """When an answer means that the effect is there."""

    status: HttpStatus = 200
    json_path: JsonPath | None = None
    equals: AnyJson = None


Word = Annotated[str, sized(60, 1), AfterValidator(visible)]
Selector = Annotated[str, sized(300, 1), AfterValidator(visible)]
Shown = Annotated[str, sized(2000, 1), AfterValidator(plain)]
StepIn = dict[Literal["fill", "select", "click", "wait", "with"], Annotated[str, sized(2000)]]
Words = Annotated[list[Word], Field(max_length=20)]


class FenceIn(In):
    """How the question bars a key that is not there: a parameter of its own; the answer says so at `path`."""

    param: Annotated[str, sized(60, 1), AfterValidator(visible)] = "fence"
    value: Annotated[str, sized(60, 1), AfterValidator(visible)] = "1"
    path: JsonPath | None = None


class JobIn(In):
    """How far a job is: its provider's own word at `path`, and which words mean what. `url`: where a job is
    asked about, with {key} or {ref}, unless that is the look-up's own address.
    """

    path: JsonPath
    url: Url | None = None
    accepted: Words = []
    running: Words = []
    completed: Words = []
    failed: Words = []


class LookUpIn(In):
    """How to ask what happened. `{key}` in the address is the effect key; paths are dotted (data.0.id).

    key_path: where an object says its key; another one is another object. partial_path leads to what
    is missing or, with partial_equals, to the word for it; items to what to keep of it.
    """

    url: Url
    method: Literal["GET"] = "GET"
    present_if: PresentIf | None = None
    absent_status: list[HttpStatus] = Field(default=[404], max_length=20)
    key_path: JsonPath | None = None
    partial_path: JsonPath | None = None
    partial_equals: AnyJson = None
    items: JsonPath | None = None
    count_path: JsonPath | None = None
    ref_path: JsonPath | None = None
    fence: StrictBool | FenceIn = False
    job: JobIn | None = None


class OwnLookUpIn(In):
    """The agent itself says what is there: we call it back, signed, or it comes for what is due (`poll`)."""

    callback: Url | None = None
    poll: Literal[True] | None = None


class CancelIn(In):
    """How a provider is asked to cancel, once a stop of the run wants that; {key} or {ref} in the address."""

    url: Url
    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"


class SendIn(In):
    """How our executor sends it: one request, with the effect key as Idempotency-Key."""

    url: Url
    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
    content_type: Annotated[str, sized(100, 1), AfterValidator(visible)] = "application/json"
    ref_path: JsonPath | None = None
    cancel: CancelIn | None = None


class CancelOnlyIn(In):
    """An agent sends for itself; its provider may be asked to cancel all the same."""

    cancel: CancelIn


class ModelIn(In):
    """Where a model is asked for a turn, by a chat completion. `model`: the only one that may be asked;
    `limit_s`: how long its answer may take.
    """

    url: Url
    model: Annotated[str, sized(120, 1), AfterValidator(visible)] | None = None
    limit_s: Annotated[float, Field(strict=True, ge=1, le=300)] = 60


class ShownIn(In):
    """How a page shows it: `selector` finds something (that holds `text`, or whose text `equals` it): it
    happened; `absent_selector` finds something: it did not. {key} in a text is the effect key.
    """

    selector: Selector | None = None
    text: Shown | None = None
    equals: Shown | None = None
    absent_selector: Selector | None = None


class PageIn(In):
    """An action on a page, by a real browser: open `start`, `do` the steps; the last changes something.

    A step is {fill or select: selector, with: text}, {click: selector} or {wait: selector}. {key}, {target},
    {amount} and {body.path} are filled in. `shows`: how the page then says what came of it. The page reaches
    the origin of `start`, and `origins`. `commit`: the place of the last step, where it is said at all.
    """

    start: Url
    do: list[StepIn] = Field(min_length=1, max_length=40)
    commit: Annotated[int, Field(strict=True, ge=0)] | None = None
    shows: ShownIn | None = None
    origins: list[Url] = Field(default=[], max_length=20)


class PageLookUpIn(ShownIn):
    """A page of the site on which people would look. `counts`: each thing found is one that was made."""

    page: Url
    counts: StrictBool = False
    origins: list[Url] = Field(default=[], max_length=20)


class FolderIn(In):
    """Where our executor writes files: below this folder of the workspace's own."""

    folder: Annotated[str, sized(300), AfterValidator(visible)] = ""


class CompensateIn(In):
    """The call that would lessen an effect of this kind, for effects that declare it without a body of their
    own. `kind`: the compensation's, unless the effect names another. Filled in when it is proposed: {key},
    {ref}, {target}, {amount}, {body.path}, {result.path}.
    """

    kind: Annotated[str, sized(120), AfterValidator(plain), said] = ""
    title: Annotated[str, sized(300), AfterValidator(plain), said] = ""
    target: Annotated[str, sized(300), AfterValidator(plain), said] = ""
    amount: Annotated[str, sized(60), AfterValidator(plain), said] = ""
    body: Annotated[str, StringConstraints(strict=True, max_length=PART)] = ""
    expected: Note = ""
    risks: Note = ""


class KindIn(In):
    """A kind and its six answers: commits … when_unknown. Times are in seconds. `due_after_s`: how long an
    effect of it may stay unknown before people are told.

    A kind that our executor sends may leave an answer out: its provider's own stands then.
    """

    op_class: Class = Field(alias="class")
    provider: Literal["http", "workspace", "job", "email", "browser", "model", "outside"] = "outside"
    title: Annotated[str, sized(200), AfterValidator(plain), said] = ""
    commits: Answer = ""
    tells_apart: list[Answer] = Field(default=[], max_length=20)
    key: Answer = ""
    compensation: Answer = ""
    durable_before_pause: Answer = ""
    when_unknown: Answer = ""
    lookup: LookUpIn | PageLookUpIn | OwnLookUpIn | None = None
    send: SendIn | ModelIn | PageIn | CancelOnlyIn | FolderIn | None = None
    settle_window_s: Duration = 60
    check_every_s: list[Annotated[float, Field(strict=True, ge=1, le=86_400)]] = Field(
        default=[], max_length=20
    )
    check_for_s: Duration = 86_400
    key_fencing: StrictBool = False
    key_retention_s: Duration = 86_400
    retry_after_s: list[Annotated[float, Field(strict=True, ge=1, le=86_400)]] = Field(
        default=[], max_length=20
    )
    account: Annotated[str, sized(120), AfterValidator(plain), known] = ""
    reversible: Annotated[str, sized(40), AfterValidator(visible)] = ""
    compensate: CompensateIn | None = None
    due_after_s: Annotated[int, Field(strict=True, ge=60, le=31_536_000)] = 14_400


class KindOut(Out):
    """A registered kind. `defaults`: the answers that it left out, which are its provider's own."""

    id: str
    name: str
    op_class: str = Field(serialization_alias="class")
    provider: str
    title: str
    commits: str
    tells_apart: list[str]
    key: str
    compensation: str
    durable_before_pause: str
    when_unknown: str
    lookup: dict[str, Any] | None
    send: dict[str, Any] | None
    settle_window_s: int
    check_every_s: list[float]
    check_for_s: int
    key_fencing: bool
    key_retention_s: int
    retry_after_s: list[float]
    account: str
    reversible: str
    compensate: dict[str, Any] | None
    due_after_s: int
    defaults: list[str]
    created_at: datetime
    updated_at: datetime


def kind_out(kind: Kind) -> dict[str, Any]:
    """A kind on the wire."""
    answers = kinds.answers_of(kind)
    derived: Mapping[str, Any] = {
        **{on_wire(said.name): said.texts if said.name == "tells_apart" else said.text for said in answers},
        "lookup": kind.lookup or None,
        "send": kind.send or None,
        "compensate": kind.compensate or None,
        "due_after_s": int(kind.due_after.total_seconds()),
        "defaults": [on_wire(said.name) for said in answers if said.default],
    }
    told = {name: getattr(kind, name) for name in KindOut.model_fields if name not in derived}
    return KindOut.model_validate({**told, **derived}).wire()


class KindsOut(Page):
    """A page of kinds."""

    items: list[KindOut]
