"""Policies: standing rules over runs by label, and over effects by kind and class, each with a gate.

Matching is done in Python, after one EXISTS in a statement that is made anyway
(docs/decisions/0020-a-gate-first-then-the-runs.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from django.db.models import BooleanField, Exists, Func, Q, QuerySet, Value
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from .access import Actor, NotFound, demand_workspace
from .evidence import Line, record
from .fields import Class, Name, ShortKey
from .models import Gate, Policy, Reach, Run, Workspace
from .store import verb


class PolicyTaken(ValueError):
    """A policy of this name is there, with another match. A policy never changes: give a new name."""


def _each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


class Match(BaseModel):
    """What a policy is about. Labels must all be equal; of kinds and classes, any one is enough.

    With kinds or classes it withholds those effects and leaves its runs ACTIVE; by labels alone, the runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    labels: dict[ShortKey, Name] = Field(default={}, max_length=20)
    kinds: Annotated[tuple[ShortKey, ...], AfterValidator(_each_once)] = Field(default=(), max_length=50)
    classes: Annotated[tuple[Class, ...], AfterValidator(_each_once)] = Field(default=(), max_length=8)

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.labels or self.kinds or self.classes):
            raise PydanticCustomError("match", "Give labels, kinds or classes")
        return self

    @property
    def reach(self) -> str:
        return Reach.EFFECTS if self.kinds or self.classes else Reach.RUNS

    @property
    def kept(self) -> dict[str, Any]:
        """As JSON, the way the row, the wire and the evidence hold it."""
        return self.model_dump(mode="json")


def match_of(policy: Policy) -> Match:
    """The match of a stored policy, which was validated when it was made."""
    kept: dict[str, Any] = policy.match
    kinds, classes = (tuple(kept.get(name, ())) for name in ("kinds", "classes"))
    return Match.model_construct(labels=kept.get("labels", {}), kinds=kinds, classes=classes)


def matches(match: Match, labels: Mapping[str, str]) -> bool:
    """Whether a run with these labels falls under it."""
    return all(labels.get(key) == value for key, value in match.labels.items())


def covers(match: Match, kind: str, op_class: str) -> bool:
    """Whether an effect of this kind or class is one that it withholds."""
    return (bool(kind) and kind in match.kinds) or op_class in match.classes


def covered(match: Match) -> Q:
    """The same over rows with `kind` and `op_class`, permits for one."""
    return Q(kind__in=[kind for kind in match.kinds if kind]) | Q(op_class__in=match.classes)


@verb
def create_policy(*, actor: Actor, workspace_id: str, name: str, match: Match) -> Policy:
    """A new policy, its gate open: nothing is withheld by it until it is stopped.

    The same name and match again is the one that is there. For whoever may stop here. Raises NotFound,
    NotAllowed, PolicyTaken.
    """
    workspace = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound("workspace")
    demand_workspace(actor, "stop", workspace_id)
    known = Policy.objects.filter(workspace=workspace, name=name).first()
    if known is not None:
        if match_of(known) != match:
            raise PolicyTaken(name)
        return known
    made = Policy.objects.create(
        workspace=workspace, name=name, match=match.kept, reach=match.reach, created_by=actor.id
    )
    told = {"policy": made.pk, "name": name, "match": match.kept, "reach": made.reach}
    record(workspace, Line("policy.created", actor.id, told))
    return Policy.objects.get(pk=made.pk)


def named(workspace_id: str, text: str) -> Policy | None:
    """The policy of this workspace with this id, else with this name: none can be named like another's id."""
    rows = Policy.objects.filter(workspace_id=workspace_id)
    return rows.filter(pk=text).first() or rows.filter(name=text).first()


# which runs -----------------------------------------------------------------------------------------


class _Label(Func):
    """Whether a column of labels has this one: (column, key, value). A path into JSON, which Django would
    write, finds no key with a quote in it on SQLite, and takes a number for a place in a list."""

    output_field = BooleanField()
    template = "(%(column)s ->> %(key)s::text) = %(value)s"

    def as_sql(
        self,
        compiler: Any,
        connection: Any,
        function: str | None = None,
        template: str | None = None,
        arg_joiner: str | None = None,
        **extra: Any,
    ) -> Any:
        parts = [compiler.compile(one) for one in self.get_source_expressions()]
        names = dict(zip(("column", "key", "value"), (sql for sql, _ in parts), strict=True))
        params = [param for _, given in parts for param in given]
        return (template or self.template) % names, params

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        each = "EXISTS (SELECT 1 FROM json_each(%(column)s) WHERE key = %(key)s AND value = %(value)s)"
        return self.as_sql(compiler, connection, template=each)


def matching_runs(policy: Policy) -> QuerySet[Run]:
    """All runs of its workspace with these labels, of every status."""
    wanted = (_Label("labels", Value(key), Value(value)) for key, value in match_of(policy).labels.items())
    found: QuerySet[Run] = Run.objects.filter(*wanted, workspace_id=policy.workspace_id)
    return found


def over(workspace_id: str, labels: Mapping[str, str], *, reach: str = "") -> list[Policy]:
    """The policies that a run with these labels falls under, in key order; of one reach, when it is given."""
    rows = Policy.objects.filter(workspace_id=workspace_id).order_by("pk")
    return _matching(rows.filter(reach=reach) if reach else rows, labels)


def _matching(policies: Iterable[Policy], labels: Mapping[str, str]) -> list[Policy]:
    return [policy for policy in policies if matches(match_of(policy), labels)]


# the gate -------------------------------------------------------------------------------------------


def any_shut(workspace_id: Any) -> Exists:
    """Whether a policy is shut in this workspace: an id, or an OuterRef to one."""
    return Exists(Policy.objects.filter(workspace_id=workspace_id, gate=Gate.SHUT))


def withholding(run: Run, kind: str = "", op_class: str = "", *, sends: bool = True) -> Policy | None:
    """The shut policy that withholds this of a run, if any; read after the run's lock.

    `sends`: an effect may follow; a claim, for one, is withheld only by a policy of whole runs.
    """
    shut = Policy.objects.filter(workspace_id=run.workspace_id, gate=Gate.SHUT).order_by("pk")
    return next((p for p in _matching(shut, run.labels) if holds(p, kind, op_class, sends=sends)), None)


def holds(policy: Policy, kind: str, op_class: str, *, sends: bool) -> bool:
    """Whether it withholds this in a run that falls under it, while it is shut."""
    if policy.reach == Reach.RUNS:
        return True
    return sends and covers(match_of(policy), kind, op_class)
