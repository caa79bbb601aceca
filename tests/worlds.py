"""The people, rows and asks that tests of all rooms share. Alice operates, Bob and Carol review, Dana reads.

Two kinds of builders: a `World` goes through the verbs, as an agent or a person does; `a_run`, `a_step`,
`a_permit` and `an_effect` put one row into a given status, which no verb could do in one call.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.contrib.auth.hashers import make_password

from effects import intents, settle
from effects.intents import Intention, plan_bytes
from effects.models import Approval, Compensation, Delivery, Effect, Kind, Review
from effects.settle import Reported, Told
from runs import access, admission, drain, gate, people, stops
from runs.access import Actor
from runs.admission import Admitted, NewRun
from runs.guard import Ask, Opened, Refusal
from runs.models import (
    Evidence,
    InFlight,
    Membership,
    OperationClass,
    Permit,
    Press,
    Role,
    Run,
    Step,
    StepStatus,
    StopRequest,
    User,
    Workspace,
)
from runs.stops import StopAnswer, Wish
from runs.store import database_time

ROLES = {
    "alice": Role.OPERATOR,
    "bob": Role.REVIEWER,
    "carol": Role.REVIEWER,
    "dana": Role.VIEWER,
}
PLAN = plan_bytes(none_because="a test")
_numbers = itertools.count(os.getpid() * 1_000_000)
Row = TypeVar("Row", Run, Step, Permit, Effect, Delivery, Compensation, Approval, Review, StopRequest)


def number() -> int:
    """A number that no other row of this test run has, whichever process made it."""
    return next(_numbers)


# --- One row in a given status ----------------------------------------------------------------------------


def a_workspace(name: str = "Finance", **fields: Any) -> Workspace:
    return Workspace.objects.create(name=name, slug=f"{name.lower()}-{number()}", **fields)


def a_person(name: str, workspace: Workspace | None = None, role: str = Role.VIEWER) -> User:
    user = User.objects.create_user(f"{name}-{number()}@example.org", "a long password", name=name.title())
    if workspace is not None:
        Membership.objects.create(user=user, workspace=workspace, role=role)
    return user


def some_people(places: dict[str, tuple[Workspace, str]]) -> list[User]:
    """As `a_person` makes each of them, in two statements for all."""
    password = make_password("a long password")
    users = User.objects.bulk_create(
        User(email=f"{name}-{number()}@example.org", name=name.title(), password=password) for name in places
    )
    Membership.objects.bulk_create(
        Membership(user=user, workspace=workspace, role=role)
        for user, (workspace, role) in zip(users, places.values(), strict=True)
    )
    return users


def a_token(workspace: Workspace, *scopes: str, run: Run | None = None, days: int | None = 90) -> Actor:
    """An agent with a live token; without scopes it may do all that an agent may."""
    granted = list(scopes or ("runs:read", "runs:write", "stop:write", "kinds:write"))
    token, _ = people.issue_token(
        actor=access.SET_UP, workspace_id=workspace.pk, name="agent", scopes=granted, run=run, days=days
    )
    return access.agent(token)


def a_run(status: str = "ACTIVE", workspace: Workspace | None = None, **fields: Any) -> Run:
    key = fields.pop("key", f"run-{number()}")
    made = Run.objects.create(
        workspace=workspace or a_workspace(),
        key=key,
        name=key,
        parameters_digest="",
        status=status,
        **fields,
    )
    return Run.objects.get(pk=made.pk)


def a_step(run: Run | None = None, status: str = "PENDING", **fields: Any) -> Step:
    key = fields.pop("key", f"step-{number()}")
    held = status in (StepStatus.CLAIMED, StepStatus.DISPATCHED)
    lease = {"claim_token": f"token-{number()}", "worker": "w-1", "lease_until": in_seconds(60)}
    made = Step.objects.create(
        run=run or a_run(),
        key=key,
        name=key,
        status=status,
        **{"op_class": OperationClass.EXTERNAL_WRITE, **(lease if held else {}), **fields},
    )
    return Step.objects.get(pk=made.pk)


def a_permit(step: Step | None = None, state: str = "OPEN", **fields: Any) -> Permit:
    step = step or a_step(status=StepStatus.DISPATCHED)
    given = {
        "boundary": "dispatch",
        "op_class": step.op_class,
        "seen_version": step.run.cancel_version,
        "token": step.claim_token or f"token-{number()}",
        "worker": "w-1",
        "permit_until": in_seconds(10),
        "lease_until": in_seconds(60),
    }
    made = Permit.objects.create(run=step.run, step=step, state=state, **{**given, **fields})
    return Permit.objects.get(pk=made.pk)


def an_effect(
    step: Step | None = None, settlement: str = "DECLARED", permit: Permit | None = None, **fields: Any
) -> Effect:
    step = step or a_step(status=StepStatus.DISPATCHED)
    key = fields.pop("key", f"effect-{number()}")
    made = Effect.objects.create(
        run=step.run,
        step=step,
        permit=permit,
        kind_name="bank.charge",
        key=key,
        op_class=step.op_class,
        title=key,
        settlement=settlement,
        **{"body_digest": "", "plan_digest": "", "parameters_digest": "", **fields},
    )
    return Effect.objects.get(pk=made.pk)


def a_delivery(run: Run | None = None, state: str = "QUEUED", **fields: Any) -> Delivery:
    run = run or a_run()
    key = fields.pop("key", f"delivery-{number()}")
    made = Delivery.objects.create(
        run=run,
        key=key,
        state=state,
        **{
            "title": key,
            "channel": "outside",
            "target": "the chat",
            "content_type": "text/plain",
            "body_digest": "",
            "parameters_digest": "",
            "queued_version": run.cancel_version,
            **fields,
        },
    )
    return Delivery.objects.get(pk=made.pk)


def a_compensation(effect: Effect | None = None, state: str = "PROPOSED", **fields: Any) -> Compensation:
    """Of a confirmed effect of a cancelled run, unless one is given."""
    effect = effect or an_effect(a_step(a_run("CANCELLED"), "SUCCEEDED"), "CONFIRMED")
    key = fields.pop("key", f"compensation-{number()}")
    made = Compensation.objects.create(
        effect=effect,
        run=effect.run,
        key=key,
        state=state,
        **{
            "kind_name": "bank.refund",
            "op_class": "external_write",
            "title": "Refund",
            "body_digest": "",
            "run_version": effect.run.cancel_version,
            "proposed_by": "system",
            **fields,
        },
    )
    return Compensation.objects.get(pk=made.pk)


def a_kind(workspace: Workspace, name: str = "bank.charge", **fields: Any) -> Kind:
    six = ("commits", "idempotency", "compensation", "durable_before_pause", "when_unknown")
    given = {"op_class": OperationClass.EXTERNAL_WRITE, "tells_apart": ["CONFIRMED"]}
    return Kind.objects.create(
        workspace=workspace, name=name, **{**dict.fromkeys(six, "said"), **given, **fields}
    )


def a_review(effect: Effect | None = None, **fields: Any) -> Review:
    effect = effect or an_effect(a_step(status=StepStatus.WAITING_APPROVAL))
    asked = {"digest": "as approved", "asked_by": "system", "expires_at": in_seconds(600), **fields}
    named = {"run": effect.run, "step": effect.step, "effect_key": effect.key, "subject_id": effect.pk}
    made = Review.objects.create(workspace=effect.run.workspace, effect=effect, **named, **asked)
    return Review.objects.get(pk=made.pk)


def an_approval(review: Review | None = None, state: str = "GIVEN", **fields: Any) -> Approval:
    review = review or a_review()
    given = {"person": fields.pop("person", None) or a_person("bob"), "digest": review.digest, **fields}
    made = Approval.objects.create(review=review, state=state, expires_at=review.expires_at, **given)
    return Approval.objects.get(pk=made.pk)


def in_seconds(seconds: float) -> datetime:
    """The database's clock, `seconds` from now."""
    return database_time() + timedelta(seconds=seconds)


def fresh(row: Row) -> Row:
    """The row as it stands now, in an object of its own."""
    return type(row).objects.get(pk=row.pk)


def kinds_of(run: Run) -> list[str]:
    """The kinds of a run's evidence lines, in their order."""
    return list(Evidence.objects.filter(stream=run.pk).order_by("seq").values_list("kind", flat=True))


def stops_and_presses() -> tuple[int, int]:
    """How many there are of each."""
    return StopRequest.objects.count(), Press.objects.count()


def in_flight(stop: StopRequest) -> set[str]:
    """The permits that a stop listed."""
    return set(InFlight.objects.filter(stop=stop).values_list("permit_id", flat=True))


# --- A team, through the verbs ----------------------------------------------------------------------------


def intention(key: str = "charge:7", **fields: Any) -> Intention:
    return Intention(key, **{"kind": "bank.charge", "body": b'{"amount": 100}', "plan": PLAN, **fields})


@dataclass
class World:
    """Finance with its people and its agent's token; Mallory administers another workspace."""

    workspace: Workspace = field(default_factory=a_workspace)
    elsewhere: Workspace = field(default_factory=lambda: a_workspace("Elsewhere"))

    def __post_init__(self) -> None:
        places = {name: (self.workspace, role) for name, role in ROLES.items()}
        people = some_people({**places, "mallory": (self.elsewhere, Role.ADMIN)})
        self.alice, self.bob, self.carol, self.dana, self.mallory = map(access.person, people)
        self.agent = a_token(self.workspace)
        self.foreign_agent = a_token(self.elsewhere)

    def admit(self, key: str = "close-books", **fields: Any) -> Admitted | Refusal:
        new = NewRun(key, **fields)
        return admission.admit(actor=self.agent, workspace_id=self.workspace.pk, new=new, worker="w-1")

    def run(self, key: str = "close-books", **fields: Any) -> Run:
        admitted = self.admit(key, **fields)
        assert isinstance(admitted, Admitted)
        return admitted.run

    def ask(self, run: Run, **fields: Any) -> Ask:
        """What worker w-1 shows: `step_key` or (`step_id`, `claim_token`), and what else differs."""
        given = {"actor": self.agent, "worker": "w-1", "seen_version": run.cancel_version}
        return Ask(run.pk, **{**given, **fields})

    def ask_of(self, step: Step, **fields: Any) -> Ask:
        """What the holder of a claimed step shows."""
        return self.ask(step.run, step_id=step.pk, claim_token=step.claim_token, **fields)

    def claimed(self, run: Run, key: str = "pay", **fields: Any) -> Step:
        step = gate.claim(self.ask(run, step_key=key, **fields))
        assert isinstance(step, Step)
        return step

    def opened(self, run: Run, key: str = "charge:7", **fields: Any) -> Opened:
        """Register and dispatch in one call, under a step named as the effect unless one is given."""
        named = fields if "step_id" in fields else {"step_key": key, **fields}
        answer = intents.dispatch(self.ask(run, **named), intention(key))
        assert isinstance(answer, Opened)
        return answer

    def refused(self, run: Run, key: str = "charge:7", **fields: Any) -> Refusal:
        answer = intents.dispatch(self.ask(run, **{"step_key": key, **fields}), intention(key))
        assert isinstance(answer, Refusal)
        return answer

    def report(self, opened: Opened, outcome: str = "applied", **fields: Any) -> Reported:
        permit = opened.permit
        told = Told(outcome, **fields)
        return settle.report(actor=self.agent, permit_id=permit.pk, token=permit.token, told=told)

    def finish(self, step: Step, result: str = "succeeded") -> Step:
        return settle.finish_step(actor=self.agent, step_id=step.pk, token=step.claim_token, result=result)

    def stop(self, run: Run, by: Actor | None = None, **wish: Any) -> StopAnswer:
        return stops.request_stop(actor=by or self.alice, wish=Wish(**wish), run_id=run.pk)

    def stop_key(self, run_key: str, by: Actor | None = None, **wish: Any) -> StopAnswer:
        return stops.request_stop(
            actor=by or self.alice, wish=Wish(**wish), workspace_id=self.workspace.pk, run_key=run_key
        )

    def heartbeat(self, run: Run, *tokens: str, seen: int = 1) -> drain.Heard:
        return drain.heartbeat(actor=self.agent, run_id=run.pk, worker="w-1", seen=seen, tokens=list(tokens))


def lapse(*rows: Step | Permit) -> None:
    """Let the leases of these rows have run out."""
    for row in rows:
        type(row).objects.filter(pk=row.pk).update(lease_until=in_seconds(-1))
