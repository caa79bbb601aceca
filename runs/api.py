"""The API of this room: heartbeats, steps, permits, evidence. Stops are in stop_api.py.

Runs themselves are read in effects/api.py, because a run's answer carries its outcome. A view
parses, authorises, calls one verb and answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.urls import register_converter
from ninja import Router
from pydantic import Field

from . import access, cursors, drain, gate, receipts
from .access import Actor, NotFound, find_run
from .fields import BIGGEST
from .guard import Ask, Opened, Refusal
from .idempotency import Reply, once, reply, send
from .models import Evidence, EvidencePayload, Permit, Run, RunStatus, Seal, Step, StepStatus
from .problems import invalid
from .rules import rules_of
from .schemas import (
    ClaimIn,
    EvidenceOut,
    HeartbeatIn,
    HeartbeatOut,
    LookOut,
    NewPermitIn,
    NewStepIn,
    PermitAnswer,
    ProblemOut,
    ReleaseIn,
    StepOut,
    StepsOut,
    WorkersOut,
    line_out,
    look_out,
    permit_out,
    step_out,
    stop_brief,
    worker_out,
)
from .store import database_time
from .tokens import actor_of

READ = frozenset({401, 403, 404, 422, 429, 503})
WRITE = frozenset({400, 401, 403, 404, 409, 413, 422, 429, 503})
_KEY = {"in": "header", "name": "Idempotency-Key", "schema": {"type": "string", "maxLength": 255}}
KEYED: dict[str, Any] = {"parameters": [{**_KEY, "required": True}]}
MAY_KEY: dict[str, Any] = {"parameters": [{**_KEY, "required": False}]}
Limit = Annotated[int, Field(ge=1, le=cursors.LIMIT)]
Cursor = Annotated[str, Field(max_length=120)]
After = Annotated[int, Field(ge=0, le=BIGGEST)]

router = Router(by_alias=True)


class Id:
    """A path part that can be an id of ours; anything else is no address of the API."""

    regex = r"[a-z]{2,3}_[0-9a-f]{32}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(Id, "id")


# runs ---------------------------------------------------------------------------------------------


@router.post("/runs/{id:run_id}/heartbeat", response={200: HeartbeatOut, WRITE: ProblemOut})
def heartbeat(request: HttpRequest, run_id: str, body: HeartbeatIn) -> HttpResponse:
    """A worker is alive, at this version; the leases of its claims are renewed."""
    heard = drain.heartbeat(
        actor=actor_of(request),
        run_id=run_id,
        worker=body.worker,
        seen=body.seen_version,
        tokens=body.claim_tokens,
        confirmed={str(point): version for point, version in body.confirmed.items()},
    )
    told = HeartbeatOut(
        status=heard.run.status,
        cancel_version=heard.run.cancel_version,
        stop=stop_brief(heard.stop),
        renewed=heard.renewed,
        lost=heard.lost,
        stopped_steps=heard.stopped_steps,
        may_go_on=heard.run.status == RunStatus.ACTIVE and heard.run.cancel_version == body.seen_version,
    )
    return send(reply(200, told.wire()))


@router.get("/runs/{id:run_id}/workers", response={200: WorkersOut, READ: ProblemOut})
def list_workers(request: HttpRequest, run_id: str, limit: Limit = 50) -> HttpResponse:
    """Who works on a run, and which version each has confirmed at which boundary; those behind first."""
    run = find_run(actor_of(request), run_id)
    standing = receipts.standing(run)
    workers = list(receipts.workers(run)[:limit])
    given = receipts.of(run, workers)
    items = [worker_out(worker, given[worker.name]) for worker in workers]
    told = WorkersOut(cancel_version=run.cancel_version, items=items, as_of=database_time(), **standing)
    return send(reply(200, told.wire()))


# steps --------------------------------------------------------------------------------------------


@router.post(
    "/runs/{id:run_id}/steps",
    response={200: StepOut, 201: StepOut, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def add_step(request: HttpRequest, run_id: str, body: NewStepIn) -> HttpResponse:
    """Register a step, and claim it when `claim` is given. A known key answers that step."""
    newcomer = _NewStep(actor_of(request), run_id, body)
    return once(request, newcomer.register, newcomer.answer)


@dataclass
class _NewStep:
    actor: Actor
    run_id: str
    body: NewStepIn
    known: Step | None = None

    def register(self) -> Step | Refusal:
        run = find_run(self.actor, self.run_id, "write")
        known: Step | None = Step.objects.filter(run=run, key=self.body.key).first()
        self.known, claim = known, self.body.claim
        if known is None and self.body.cleanup:
            self._refuse_class(run)
        if claim is None:
            return gate.register(self._ask("", run.cancel_version), cleanup=self.body.cleanup)
        if known is not None and self._is_taken(known, run, claim):
            return known
        ask = self._ask(claim.worker, claim.seen_version, claim.lease_s)
        return gate.claim(ask, cleanup=self.body.cleanup)

    def _refuse_class(self, run: Run) -> None:
        """Whoever declares a cleanup should not learn during a stop that it may not be one."""
        if self.body.op_class not in rules_of(run.workspace_id).cleanup_classes:
            raise invalid("cleanup", f"A step of class {self.body.op_class} can't be cleanup here")

    def _is_taken(self, step: Step, run: Run, claim: ClaimIn) -> bool:
        """It ended or is held, in a run that goes on: an answer, not a refusal."""
        goes_on = run.status == RunStatus.ACTIVE and run.cancel_version == claim.seen_version
        return goes_on and step.status != StepStatus.PENDING

    def _ask(self, worker: str, seen: int, lease_s: float = 30) -> Ask:
        return Ask(
            self.run_id,
            self.actor,
            worker,
            seen,
            op_class=self.body.op_class,
            step_key=self.body.key,
            step_name=self.body.name,
            lease_s=lease_s,
        )

    def answer(self, step: Step) -> Reply:
        claimed = self.body.claim is not None and step is not self.known
        return reply(200 if self.known else 201, step_out(step, with_token=claimed))


@router.get("/runs/{id:run_id}/steps", response={200: StepsOut, READ: ProblemOut})
def list_steps(request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The steps of a run, newest first."""
    run = find_run(actor_of(request), run_id)
    steps, after = cursors.page(Step.objects.filter(run=run), cursor, limit)
    return send(reply(200, cursors.listed([step_out(step) for step in steps], after)))


@router.get("/steps/{id:step_id}", response={200: StepOut, READ: ProblemOut})
def read_step(request: HttpRequest, step_id: str) -> HttpResponse:
    """One step, without its token."""
    return send(reply(200, step_out(find_step(actor_of(request), step_id))))


def find_step(actor: Actor, step_id: str, action: str = "read") -> Step:
    """The step, for those who may do this to its run. Raises NotFound, NotAllowed."""
    step: Step | None = Step.objects.select_related("run").filter(pk=step_id).first()
    if step is None:
        raise NotFound("step")
    access.demand(actor, action, step.run)
    return step


@router.post("/steps/{id:step_id}/claim", response={200: StepOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def claim_step(request: HttpRequest, step_id: str, body: ClaimIn) -> HttpResponse:
    """Take a queued step; the answer holds the claim token."""
    step = find_step(actor_of(request), step_id, "write")
    ask = Ask(
        step.run_id,
        actor_of(request),
        body.worker,
        body.seen_version,
        op_class=step.op_class,
        step_id=step.pk,
        lease_s=body.lease_s,
    )
    return once(request, lambda: gate.claim(ask), _claimed, required=False)


def _claimed(step: Step) -> Reply:
    return reply(200, step_out(step, with_token=True))


@router.post("/steps/{id:step_id}/release", response={200: StepOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def release_step(request: HttpRequest, step_id: str, body: ReleaseIn) -> HttpResponse:
    """Give a claim back before anything was sent."""
    step = find_step(actor_of(request), step_id, "write")
    ask = Ask(
        step.run_id,
        actor_of(request),
        step.worker,
        step.claim_version or step.run.cancel_version,
        step_id=step.pk,
        claim_token=body.claim_token,
    )
    return once(request, lambda: gate.release(ask), lambda s: reply(200, step_out(s)), required=False)


# permits ------------------------------------------------------------------------------------------


@router.post(
    "/runs/{id:run_id}/permits", response={201: PermitAnswer, WRITE: ProblemOut}, openapi_extra=KEYED
)
def open_permit(request: HttpRequest, run_id: str, body: NewPermitIn) -> HttpResponse:
    """Ask to begin a model turn, a read or another operation without an effect of its own."""
    if body.boundary != gate.boundary_of(body.op_class):
        raise invalid("boundary", f"A {body.op_class} crosses {gate.boundary_of(body.op_class)}")
    ask = ask_of(actor_of(request), run_id, body)

    def dispatch() -> Any:
        find_run(ask.actor, run_id, "write")
        return gate.dispatch(ask)

    return once(request, dispatch, _opened)


def ask_of(actor: Actor, run_id: str, body: NewPermitIn) -> Ask:
    """What the body shows at the gate."""
    return Ask(
        run_id,
        actor,
        body.worker,
        body.seen_version,
        boundary=body.boundary,
        op_class=body.op_class,
        step_id=body.step.id,
        claim_token=body.step.claim_token,
        step_key=body.step.key,
        step_name=body.step.name,
        lease_s=body.lease_s,
    )


def _opened(opened: Opened) -> Reply:
    permit = Permit.objects.get(pk=opened.permit.pk)
    return reply(201, {"permit": permit_out(permit)})


@router.get("/permits/{id:permit_id}", response={200: LookOut, READ: ProblemOut})
def look_again(request: HttpRequest, permit_id: str, claim_token: str = "") -> HttpResponse:
    """The second look, directly before the send. Only "open" means send. Always a fresh read."""
    run = Run.objects.filter(permits__pk=permit_id).first()
    if run is None or not (claim_token.isascii() and claim_token.isprintable()):
        raise NotFound("permit")
    access.demand(actor_of(request), "read", run)
    return send(reply(200, look_out(gate.look(permit_id, claim_token))))


# evidence -----------------------------------------------------------------------------------------


@router.get("/runs/{id:run_id}/evidence", response={200: EvidenceOut, READ: ProblemOut})
def list_evidence(request: HttpRequest, run_id: str, after: After = 0, limit: Limit = 100) -> HttpResponse:
    """Evidence in its order, from the line behind `after`. Ask again from `next_after` for more."""
    find_run(actor_of(request), run_id)
    lines = list(Evidence.objects.filter(stream=run_id, seq__gt=after).order_by("seq")[:limit])
    last = lines[-1].seq if lines else after
    bodies = {
        body.seq: body for body in EvidencePayload.objects.filter(stream=run_id, seq__gt=after, seq__lte=last)
    }
    sealed = Seal.objects.filter(stream=run_id).aggregate(upto=Max("upto_seq"))["upto"] or 0
    items = [_line(line, bodies.get(line.seq), sealed) for line in lines]
    return send(reply(200, {"items": items, "next_after": last}))


def _line(line: Evidence, body: EvidencePayload | None, sealed: int) -> dict[str, Any]:
    return line_out(
        line,
        payload=json.loads(body.body) if body and body.body else None,
        payload_removed_at=body.removed_at if body else None,
        sealed=line.seq <= sealed,
    )
