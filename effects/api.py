"""The API of this room: effects, reports of permits, ends of steps, kinds. Runs are in run_api.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from runs import access, cursors, problems
from runs.access import Actor, NotFound, find_run
from runs.api import KEYED, MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import ShortKey
from runs.guard import Ask, Known, Opened, Refusal, Waiting
from runs.idempotency import Reply, once, reply, send
from runs.models import Permit
from runs.problems import invalid, not_allowed
from runs.schemas import ProblemOut, StepOut, permit_out, step_out
from runs.tokens import actor_of, home_of, spaces_of
from runs.turns import NoTurn, Spend

from . import ends, intents, kinds, presets, resume, settle
from .intents import Intention, plan_bytes
from .kind_schemas import KindIn, KindOut, KindsOut, kind_out
from .kinds import BadKind, NewKind, Registered
from .models import SENT_BY_US, Effect, Kind, Review
from .schemas import (
    DispatchIn,
    EffectAnswer,
    EffectOut,
    EffectsOut,
    FinishIn,
    NewEffectIn,
    ReportAnswer,
    ReportIn,
    effect_out,
    review_brief,
)
from .settle import Reported, Told

problems.NAMES.update(
    {
        ends.NotQuiet: "not-quiet",
        intents.EffectKeyReused: "effect-key-reused",
        intents.NoPlan: "no-plan",
        resume.NoReason: "invalid-request",
        settle.AlreadyReported: "already-reported",
        settle.LostClaim: "lost-claim",
        settle.NothingDispatched: "nothing-dispatched",
        settle.Unsettled: "unsettled",
    }
)
WHAT_TO_DO = {
    "settled": "Skip it. It is settled and is never sent again; `result` is what is known of it.",
    "must_wait": "Do not send. It was sent before and its outcome is not known yet; ask again later.",
    "waiting": "Do not send. People decide first; ask again with the same key, until it is decided.",
}
router = Router(by_alias=True)


# effects ------------------------------------------------------------------------------------------


@router.post(
    "/runs/{id:run_id}/effects",
    response={200: EffectAnswer, 201: EffectAnswer, 202: EffectAnswer, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def add_effect(request: HttpRequest, run_id: str, body: NewEffectIn) -> HttpResponse:
    """Record an intent and ask to send it, in one call. A known key is answered, never sent twice.

    An effect of a kind that our executor sends is queued instead (`permit` is null).
    """
    newcomer = _NewEffect(actor_of(request), run_id, body)
    return once(request, newcomer.declare, newcomer.answer)


@dataclass
class _NewEffect:
    actor: Actor
    run_id: str
    body: NewEffectIn
    known: bool = False

    def declare(self) -> Opened | Known | Effect | Refusal:
        try:
            return self._declare()
        except intents.CannotAsk as error:
            why = "Its kind does not say how its provider is asked to cancel (send.cancel)"
            raise invalid("on_stop", why) from error

    def _declare(self) -> Opened | Known | Effect | Refusal:
        if self.body.dispatch and not self._is_ours_to_send():
            return intents.dispatch(self._ask(), self._intention())
        self.known = Effect.objects.filter(run_id=self.run_id, key=self.body.key).exists()
        return intents.declare(self._ask(), self._intention())

    def _is_ours_to_send(self) -> bool:
        ours = Kind.objects.filter(name=self.body.kind, provider__in=SENT_BY_US)
        return ours.filter(workspace__runs=self.run_id).exists()

    def _intention(self) -> Intention:
        body, plan = self.body, self.body.plan
        return Intention(
            body.key,
            body.kind,
            body.body.encode(),
            plan_bytes(plan.kind, plan.title, plan.body, plan.none_because),
            body.op_class or "",
            body.title,
            body.target,
            body.amount,
            int(body.approval),
            body.on_stop or "",
        )

    def _ask(self) -> Ask:
        body, step = self.body, self.body.step
        return Ask(
            self.run_id,
            self.actor,
            body.worker,
            body.seen_version,
            step_id=step.id,
            claim_token=step.claim_token,
            step_key=step.key,
            step_name=step.name,
            lease_s=body.lease_s,
        )

    def answer(self, result: Opened | Known | Effect) -> Reply:
        if isinstance(result, Effect):
            told = {"effect": effect_out(result), "permit": None, "queued": result.queued_at is not None}
            return reply(200 if self.known else 201, told | {"reversible": presets.of(result).told})
        return gate_answer(result)


def gate_answer(result: Opened | Known) -> Reply:
    """A permit with its effect, or a known key and what to do about it; 202: people decide first."""
    if isinstance(result, Known):
        effect = Effect.objects.select_related("kind").defer("body").get(pk=result.subject.pk)
        told = {"effect": effect_out(effect), "permit": None, "known": result.answer}
        told |= {"reversible": presets.of(effect).told}
        told |= {"what_to_do": WHAT_TO_DO[result.answer], "result": effect.result}
        if isinstance(result, Waiting):
            return reply(202, told | {"review": review_brief(Review.objects.get(pk=result.review.pk))})
        return reply(200, told)
    effect = Effect.objects.select_related("permit", "kind").defer("body").get(pk=result.subject.pk)
    assert effect.permit is not None  # the gate has just opened it
    told = {"effect": effect_out(effect), "permit": permit_out(effect.permit, effect.pk)}
    return reply(201, told | {"reversible": presets.of(effect).told})


@router.post(
    "/effects/{id:effect_id}/dispatch",
    response={200: EffectAnswer, 201: EffectAnswer, 202: EffectAnswer, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def dispatch_effect(request: HttpRequest, effect_id: str, body: DispatchIn) -> HttpResponse:
    """Ask to send a declared effect, or one that is known not to have been applied."""
    ask = Ask(
        "",
        actor_of(request),
        body.worker,
        body.seen_version,
        claim_token=body.step_claim_token,
        lease_s=body.lease_s,
    )
    approvals = int(body.approval)
    return once(request, lambda: intents.dispatch_again(ask, effect_id, approvals), gate_answer)


@router.get("/runs/{id:run_id}/effects", response={200: EffectsOut, READ: ProblemOut})
def list_effects(request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The effects of a run, newest first."""
    run = find_run(actor_of(request), run_id)
    effects, after = cursors.page(Effect.objects.filter(run=run).defer("body"), cursor, limit)
    return send(reply(200, cursors.listed([effect_out(effect) for effect in effects], after)))


@router.get("/effects/{id:effect_id}", response={200: EffectOut, READ: ProblemOut})
def read_effect(request: HttpRequest, effect_id: str) -> HttpResponse:
    """One effect as it is known now."""
    effect: Effect | None = Effect.objects.select_related("run").defer("body").filter(pk=effect_id).first()
    if effect is None:
        raise NotFound("effect")
    access.demand(actor_of(request), "read", effect.run)
    return send(reply(200, effect_out(effect)))


# reports ------------------------------------------------------------------------------------------


@router.post(
    "/permits/{id:permit_id}/report",
    response={200: ReportAnswer, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def report_permit(request: HttpRequest, permit_id: str, body: ReportIn) -> HttpResponse:
    """Say what became of a call. Always accepted from the permit's holder, however late."""
    spend = Spend(**body.spend.model_dump()) if body.spend else None
    told = Told(**body.model_dump(exclude={"claim_token", "spend"}), spend=spend)

    def report() -> Reported:
        actor, token = actor_of(request), body.claim_token
        try:
            return settle.report(actor=actor, permit_id=permit_id, token=token, told=told)
        except NoTurn as error:
            raise invalid("spend", "Only a model turn has a spend and a partial_output") from error

    return once(request, report, _reported)


def _reported(reported: Reported) -> Reply:
    effect = Effect.objects.defer("body").get(pk=reported.effect.pk) if reported.effect else None
    permit = Permit.objects.get(pk=reported.permit.pk)
    told = {
        "permit": permit_out(permit, effect.pk if effect else None),
        "effect": effect_out(effect) if effect else None,
        "late": reported.late,
    }
    return reply(200, told)


@router.post("/steps/{id:step_id}/finish", response={200: StepOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def finish_step(request: HttpRequest, step_id: str, body: FinishIn) -> HttpResponse:
    """End a step, as its worker says it ended; an unknown effect makes it UNKNOWN all the same."""

    def finish() -> Any:
        actor, token = actor_of(request), body.claim_token
        return settle.finish_step(
            actor=actor, step_id=step_id, token=token, result=body.result, detail=body.detail
        )

    return once(request, finish, lambda step: reply(200, step_out(step)), required=False)


# kinds --------------------------------------------------------------------------------------------


@router.put("/kinds/{name}", response={200: KindOut, 201: KindOut, WRITE: ProblemOut})
def put_kind(request: HttpRequest, name: ShortKey, body: KindIn) -> HttpResponse:
    """Register a kind with its six answers, or change it: for open effects too, except that "not found"
    proves nothing of those that were dispatched before the change.
    """
    actor = actor_of(request)
    if actor.token is None or actor.token.run_id is not None:
        raise not_allowed()
    try:
        put = kinds.register_kind(actor=actor, workspace_id=home_of(actor), name=name, new=_new_kind(body))
    except BadKind as error:
        raise invalid(error.field, error.why) from error
    return send(_registered(put))


def _new_kind(body: KindIn) -> NewKind:
    parts = ("lookup", "send", "compensate")
    told = body.model_dump(exclude={"key", "due_after_s", *parts})
    given = {one: getattr(body, one) for one in parts}
    said = {one: part.model_dump(exclude_unset=True) if part else {} for one, part in given.items()}
    due = timedelta(seconds=body.due_after_s)
    return NewKind(**told, **said, idempotency=body.key, due_after=due)


def _registered(put: Registered) -> Reply:
    return reply(201 if put.created else 200, kind_out(put.kind))


@router.get("/kinds", response={200: KindsOut, READ: ProblemOut})
def list_kinds(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> HttpResponse:
    """The registered kinds, newest first."""
    rows = Kind.objects.filter(workspace_id__in=spaces_of(actor_of(request)))
    found, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed([kind_out(kind) for kind in found], after)))


@router.get("/kinds/{name}", response={200: KindOut, READ: ProblemOut})
def read_kind(request: HttpRequest, name: ShortKey) -> HttpResponse:
    """One kind and its six answers."""
    rows = Kind.objects.filter(workspace_id__in=spaces_of(actor_of(request)), name=name)
    kind = rows.order_by("-pk").first()
    if kind is None:
        raise NotFound("kind")
    return send(reply(200, kind_out(kind)))
