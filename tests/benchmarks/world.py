"""What a benchmark works on: a workspace, a token, runs, and calls of the real verbs."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db import transaction

from effects import intents, settle
from effects.models import Kind
from runs import access, admission, gate, people, stops
from runs.access import Actor
from runs.guard import Ask, Opened, lock_run
from runs.models import Evidence, Membership, Run, Step, User, Workspace
from runs.store import database_time, new_id

numbers = itertools.count(1)


@dataclass
class World:
    """One workspace with an agent that may write and a person who may stop."""

    workspace: Workspace
    agent: Actor
    person: Actor

    @classmethod
    def make(cls) -> World:
        name = new_id("bench")
        workspace = Workspace.objects.create(name=name, slug=name)
        user = User.objects.create_user(f"{name}@example.test")
        Membership.objects.create(user=user, workspace=workspace, role="operator")
        scopes = ["runs:write", "stop:write"]
        token, _ = people.issue_token(
            actor=access.SET_UP, workspace_id=workspace.pk, name="bench", scopes=scopes
        )
        Kind.objects.create(
            workspace=workspace,
            name="bench.write",
            op_class="external_write",
            commits="at once",
            idempotency="the key",
            compensation="none",
            durable_before_pause="nothing",
            when_unknown="look",
        )
        return cls(workspace, access.agent(token), access.person(user))

    def run(self) -> Run:
        admitted = admission.admit(
            actor=self.agent, workspace_id=self.workspace.pk, new=admission.NewRun(new_id("key"))
        )
        assert isinstance(admitted, admission.Admitted)
        return admitted.run

    def runs(self, n: int) -> list[str]:
        """So many active runs at once, each with a step that waits and the line of its admission."""
        quiet = database_time() + timedelta(minutes=15)
        made = [
            Run(
                workspace=self.workspace,
                key=new_id("key"),
                name="bench",
                parameters_digest="",
                silent_at=quiet,
            )
            for _ in range(n)
        ]
        for start in range(0, n, 500):
            Run.objects.bulk_create(made[start : start + 500])
        steps = [Step(run=run, key="next", name="next", op_class="external_write") for run in made]
        for start in range(0, n, 500):
            Step.objects.bulk_create(steps[start : start + 500])
        lines = [Evidence(stream=run.pk, seq=1, kind="run.admitted", actor=self.agent.id) for run in made]
        for start in range(0, n, 500):
            Evidence.objects.bulk_create(lines[start : start + 500])
        return [run.pk for run in made]

    @property
    def token(self) -> str:
        """The id of the agent's token."""
        assert self.agent.token is not None
        return str(self.agent.token.pk)

    def ask(self, run_id: str, version: int = 1) -> Ask:
        return Ask(run_id, self.agent, "bench-worker", version)

    def stop(self, run_id: str) -> stops.StopAnswer:
        return stops.request_stop(actor=self.person, wish=stops.Wish(), run_id=run_id)


def permit(ask: Ask) -> Opened:
    """Register a step and open its permit: the gate with its evidence line, no effect row."""
    opened = gate.dispatch(replace(ask, step_key=new_id("step")))
    assert isinstance(opened, Opened)
    return opened


def admit(world: World) -> None:
    """One more run of the workspace; AssertionError when its gate is shut."""
    world.run()


def stick(run_id: str, seconds: float) -> None:
    """Hold the lock of a run, as a process does that stands still within its transaction."""
    with transaction.atomic():
        lock_run(run_id)
        time.sleep(seconds)


def full_step(world: World, ask: Ask) -> None:
    """Declare + dispatch an effect, look again, report it: the whole step of an agent."""
    key = new_id("effect")
    new = intents.Intention(key, "bench.write", b"{}", intents.plan_bytes(none_because="a benchmark"))
    opened = intents.dispatch(replace(ask, step_key=key), new)
    assert isinstance(opened, Opened)
    assert gate.look(opened.permit.pk, opened.permit.token).answer == "open"
    told = settle.Told("applied")
    settle.report(actor=world.agent, permit_id=opened.permit.pk, token=opened.permit.token, told=told)
