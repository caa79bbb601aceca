"""The rules of a workspace: what its admins decided beforehand for all its runs.

One validated row with a version; without one the defaults hold. (A policy is a scope of a stop; the
rules are not.) Whoever decides under a lock calls `rules_of` after it, in a statement of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from . import redaction
from .access import Actor, NotFound, demand_workspace
from .evidence import Line, record
from .fields import Class, known, plain, sized, visible
from .models import RulesRow, Workspace
from .secret_forms import normal
from .store import Now, database_time, verb

DAY_S = 86_400
NEVER, AUTOMATIC = "never", "automatic"


class ApprovalRule(BaseModel):
    """Effects that people approve first: of this kind, of this class, with this text in their amount.

    What is left out matches anything; at least one of the three is given. `expires_s`: how long an
    approval that is asked for may take, in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Annotated[str, sized(120), AfterValidator(visible), known] = ""
    op_class: Class | None = Field(default=None, alias="class")
    amount: Annotated[str, sized(60), AfterValidator(plain), known] = ""
    approvals: Annotated[int, Field(strict=True, ge=1, le=9)] = 1
    expires_s: Annotated[int, Field(strict=True, ge=60, le=30 * DAY_S)] = DAY_S

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.kind or self.op_class or self.amount):
            raise PydanticCustomError("approval_rule", "Give a kind, a class or a text of the amount")
        return self

    def matches(self, kind: str, op_class: str, amount: str) -> bool:
        """Whether an effect of this kind, class and amount text falls under it."""
        return (
            self.kind in ("", kind)
            and self.op_class in (None, op_class)
            and self.amount.casefold() in amount.casefold()
        )


class CompensationRule(BaseModel):
    """What may be done with compensations of one kind, named exactly. Without a rule: never.

    approve: after so many people said yes. automatic: without them, and only for what puts back local files,
    of a run that nobody stopped; of a stopped one it is `approve`. `after_a_stop`: also for a run that a stop
    ended or holds, or that had ended when Stop was pressed. `propose`: by people (and by tokens of the run),
    or by the drain too when a run comes to rest. `expires_s`: how long people have to decide, and it to be
    sent, in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Annotated[str, sized(120, 1), AfterValidator(visible), known]
    policy: Literal["never", "approve", "automatic"] = "approve"
    approvals: Annotated[int, Field(strict=True, ge=1, le=9)] = 1
    expires_s: Annotated[int, Field(strict=True, ge=60, le=30 * DAY_S)] = DAY_S
    after_a_stop: Annotated[bool, Field(strict=True)] = False
    propose: Literal["people", "drain"] = "people"


def _kinds_once(rules: tuple[CompensationRule, ...]) -> tuple[CompensationRule, ...]:
    if len({rule.kind for rule in rules}) < len(rules):
        raise PydanticCustomError("compensations", "Give one rule for each kind")
    return rules


def _each_once(classes: tuple[Class, ...]) -> tuple[Class, ...]:
    if "approval_wait" in classes:
        raise PydanticCustomError("classes", "An approval wait is no cleanup")
    return tuple(sorted(set(classes)))


def _as_fields(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(normal, names)):
        raise PydanticCustomError("secret_fields", "A field's name has a letter or a digit")
    return tuple(sorted(set(names)))


Days = Annotated[int, Field(strict=True, ge=1, le=36_500)] | None


class Retention(BaseModel):
    """For how many days what is kept, since its run ended and was settled; null: for good.

    evidence: bodies of lines · attachments · turns: outputs of model turns · refusals · webhooks: what was
    received · notices, with their log.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    evidence: Days = None
    attachments: Days = None
    turns: Days = None
    refusals: Days = None
    webhooks: Days = None
    notices: Days = None


FieldName = Annotated[str, sized(60, 1), AfterValidator(visible)]


class Rules(BaseModel):
    """All rules of a workspace, with their defaults.

    partial_output: what is kept of a model turn that a stop cut off. cleanup_classes: what a step
    declared as cleanup may be during a stop. silent_stop: the mode of the stop that is recorded for a
    silent run; null records none. approvals: which effects people approve first. release_by_two: a stop
    that stands is released by two people; it is never asked for to stop. forward_stops: a cancel asks the
    providers of effects that were declared so to cancel them. compensations: which may be
    proposed, and who decides about them. secret_fields: names of fields whose values are never kept, beside
    those that are known everywhere (runs/secret_forms.py); however they are spelled. retention: for how
    long bodies are kept (dashboard/retention.py); lines, digests and reports always are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    partial_output: Literal["keep", "drop"] = "keep"
    cleanup_classes: Annotated[tuple[Class, ...], AfterValidator(_each_once)] = Field(
        default=("read", "workspace_change"), max_length=20
    )
    silent_stop: Literal["pause", "cancel", "abandon"] | None = None
    approvals: tuple[ApprovalRule, ...] = Field(default=(), max_length=50)
    release_by_two: Annotated[bool, Field(strict=True)] = False
    forward_stops: Annotated[bool, Field(strict=True)] = False
    compensations: Annotated[tuple[CompensationRule, ...], AfterValidator(_kinds_once)] = Field(
        default=(), max_length=50
    )

    secret_fields: Annotated[tuple[FieldName, ...], AfterValidator(_as_fields)] = Field(
        default=(), max_length=100
    )

    retention: Retention = Retention()

    @property
    def kept(self) -> dict[str, Any]:
        """As JSON, the way the row, the wire and the evidence hold it."""
        return self.model_dump(mode="json", by_alias=True)

    def approval_for(self, kind: str, op_class: str, amount: str) -> ApprovalRule | None:
        """The strictest rule for such an effect: most approvals, then the earliest end; None: no rule."""
        found = [rule for rule in self.approvals if rule.matches(kind, op_class, amount)]
        return max(found, key=lambda rule: (rule.approvals, -rule.expires_s), default=None)

    def compensation_for(self, kind: str) -> CompensationRule | None:
        """The rule that permits compensations of this kind; None: none does."""
        return next((rule for rule in self.compensations if rule.kind == kind and rule.policy != NEVER), None)


DEFAULTS = Rules()
FIELDS = tuple(Rules.model_fields)


@dataclass(frozen=True)
class Standing:
    """The rules in force; `version` 0 and no author while they are the defaults."""

    workspace_id: str
    version: int
    rules: Rules
    changed_by: str = ""
    changed_at: datetime | None = None


class RulesChanged(Exception):
    """Somebody else changed the rules meanwhile. What they wrote stands; nothing was changed."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing.version)
        self.standing = standing


def rules_of(workspace_id: str) -> Rules:
    """The rules of a workspace now, in one query; the defaults where nobody changed them."""
    return standing(workspace_id).rules


def standing(workspace_id: str) -> Standing:
    """As `rules_of`, with their version and who wrote them."""
    row = RulesRow.objects.filter(pk=workspace_id).first()
    if row is None:
        return Standing(workspace_id, 0, DEFAULTS)
    return Standing(workspace_id, row.version, Rules.model_validate(row.body), row.changed_by, row.changed_at)


# Read anew after so long in each process; what counts is what is in force when something is stored.
FRESH_S = 5.0
_secret_fields: dict[str, tuple[float, tuple[str, ...]]] = {}


def secret_fields(workspace_id: str) -> tuple[str, ...]:
    """The names of fields that this workspace keeps nothing of, at most FRESH_S old."""
    until, names = _secret_fields.get(workspace_id, (0.0, ()))
    if time.monotonic() >= until:
        if len(_secret_fields) > 10_000:
            _secret_fields.clear()
        names = rules_of(workspace_id).secret_fields
        _secret_fields[workspace_id] = (time.monotonic() + FRESH_S, names)
    return names


@contextmanager
def redacting(workspace_id: str) -> Iterator[None]:
    """What is redacted in this block is redacted as this workspace's rules want it, too."""
    with redaction.also(secret_fields(workspace_id)):
        yield


@verb
def change_rules(*, actor: Actor, workspace_id: str, version: int, rules: Rules) -> Standing:
    """Put new rules in the place of those of `version` (0: the defaults).

    The same rules again change nothing, leave no line, and are answered whatever the version. Raises
    NotFound, NotAllowed, RulesChanged.
    """
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "rules", workspace_id)
    was = standing(workspace_id)
    if rules == was.rules:
        return was
    if was.version != version:
        raise RulesChanged(was)
    _write(workspace, actor, was, rules)
    return standing(workspace_id)


def _write(workspace: Workspace, actor: Actor, was: Standing, rules: Rules) -> None:
    told = {"body": rules.kept, "changed_by": actor.id}
    rows = RulesRow.objects.filter(pk=workspace.pk, version=was.version)
    if not rows.update(version=was.version + 1, changed_at=Now(), **told):
        RulesRow.objects.create(workspace=workspace, changed_at=database_time(), **told)
    before, after = was.rules.kept, rules.kept
    names = [name for name in FIELDS if before[name] != after[name]]
    payload = {
        "version": was.version + 1,
        "was": {name: before[name] for name in names},
        "now": {name: after[name] for name in names},
    }
    record(workspace, Line("rules.changed", actor.id, payload))
    _secret_fields.pop(workspace.pk, None)
