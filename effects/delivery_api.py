"""The API of deliveries: a run's own messages. How a permit of one is used is in docs/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from runs import access, cursors, problems, redaction
from runs.access import Actor, find_run
from runs.api import KEYED, MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import In, Key, Name, Out, Seconds, ShortName, Version, Worker, said, sized, visible
from runs.guard import Ask, Known, Opened, Refusal
from runs.idempotency import Reply, once, reply, send
from runs.models import Permit
from runs.problems import Problem, invalid
from runs.schemas import Page, PermitOut, ProblemOut, permit_out
from runs.tokens import actor_of

from . import deliveries
from .deliveries import BadTarget, DeliveryKeyReused, Message, NoRetry, Queued, shown_target
from .models import Delivery
from .schemas import Body

problems.NAMES.update({DeliveryKeyReused: "delivery-key-reused", NoRetry: "nothing-to-retry"})
WHAT_TO_DO = {
    "settled": "Skip it. It is settled and is never handed over again.",
    "must_wait": "Do not send. It may be under way, or its outcome is not known yet; ask again later.",
    "not_handed_over": "Do not send. It was tried and not taken; queue it again first.",
}
LONGEST = 200_000  # bytes of a message; the body of a request is limited too
router = Router(by_alias=True)


def not_too_long(text: str) -> str:
    """A message of at most LONGEST bytes."""
    if len(text.encode()) > LONGEST:
        raise PydanticCustomError("size", "Input should have at most {most} bytes", {"most": LONGEST})
    return text


class NewDeliveryIn(In):
    """A message to be handed over. `outside`: the agent does it itself, with a permit."""

    key: Key
    channel: Literal["webhook", "email", "outside"]
    target: Annotated[str, sized(2000, 1), AfterValidator(visible)] = Field(
        description="webhook: a URL · email: one address · outside: where, in words"
    )
    title: Name = Field(default="", description="What people read; of an e-mail, its subject")
    body: Annotated[Body, AfterValidator(not_too_long)] = Field(
        default="", description="Kept and sent byte for byte"
    )
    content_type: Annotated[str, sized(100), AfterValidator(visible), said] = ""
    worker: Worker
    seen_version: Version

    @model_validator(mode="after")
    def _words_without_secrets(self) -> Self:
        """Where we send it has to stay as it is, and is shown by its origin; words are kept as words are."""
        if self.channel == "outside":
            self.target = redaction.text(self.target)
        return self


class HandOverIn(In):
    """Ask to hand it over now."""

    worker: Worker
    seen_version: Version
    lease_s: Seconds = 30


class RetryDeliveryIn(In):
    """Queue it again."""

    worker: ShortName = ""


class DeliveryOut(Out):
    """A delivery. `state` is what is known of it; of a webhook's address, `target` shows the origin."""

    id: str
    run_id: str
    key: str
    channel: str
    target: str
    title: str
    content_type: str
    body_digest: str
    state: str
    queued_version: int
    attempt: int
    late: bool
    detail: str
    provider_ref: str
    queued_at: datetime
    dispatched_at: datetime | None
    settled_at: datetime | None
    unknown_since: datetime | None


class DeliveriesOut(Page):
    """A page of deliveries."""

    items: list[DeliveryOut]


class HandOverAnswer(Out):
    """The gate's answer for a delivery: a permit, or none and why not."""

    delivery: DeliveryOut
    permit: PermitOut | None
    known: Literal["settled", "must_wait", "not_handed_over"] | None = None
    what_to_do: str | None = None


def delivery_out(delivery: Delivery) -> dict[str, Any]:
    """A delivery on the wire; its body is not repeated, its digest is."""
    told = {name: getattr(delivery, name) for name in DeliveryOut.model_fields if name != "target"}
    return DeliveryOut.model_validate({**told, "target": shown_target(delivery)}).wire()


@router.post(
    "/runs/{id:run_id}/deliveries",
    response={200: DeliveryOut, 201: DeliveryOut, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def add_delivery(request: HttpRequest, run_id: str, body: NewDeliveryIn) -> HttpResponse:
    """Queue a message of this run. A known key answers the delivery as it stands."""
    actor = actor_of(request)
    find_run(actor, run_id, "write")
    told = body.model_dump(include={"key", "channel", "target", "title", "content_type"})
    message = Message(**told, body=body.body.encode())

    def queue() -> Queued | Refusal:
        try:
            return deliveries.queue(Ask(run_id, actor, body.worker, body.seen_version), message)
        except BadTarget as error:
            raise invalid("target", error.why) from error

    return once(request, queue, lambda done: reply(201 if done.created else 200, delivery_out(done.delivery)))


@router.get("/runs/{id:run_id}/deliveries", response={200: DeliveriesOut, READ: ProblemOut})
def list_deliveries(
    request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50
) -> HttpResponse:
    """The deliveries of a run, newest first."""
    run = find_run(actor_of(request), run_id)
    rows, after = cursors.page(Delivery.objects.filter(run=run).defer("body"), cursor, limit)
    return send(reply(200, cursors.listed([delivery_out(row) for row in rows], after)))


@router.get("/deliveries/{id:delivery_id}", response={200: DeliveryOut, READ: ProblemOut})
def read_delivery(request: HttpRequest, delivery_id: str) -> HttpResponse:
    """One delivery as it is known now."""
    return send(reply(200, delivery_out(_found(actor_of(request), delivery_id, "read"))))


def _found(actor: Actor, delivery_id: str, action: str) -> Delivery:
    delivery = deliveries.find(delivery_id)
    access.demand(actor, action, delivery.run)
    return delivery


@router.post(
    "/deliveries/{id:delivery_id}/hand-over",
    response={200: HandOverAnswer, 201: HandOverAnswer, WRITE: ProblemOut},
    openapi_extra=KEYED,
)
def hand_over(request: HttpRequest, delivery_id: str, body: HandOverIn) -> HttpResponse:
    """Ask to hand over a message of channel `outside`: look once more, then send, then report."""
    actor = actor_of(request)
    if _found(actor, delivery_id, "write").channel != "outside":
        raise Problem("nothing-to-hand-over", "Allstop hands over messages of this channel itself.")

    def ask() -> Any:
        return deliveries.hand_over(
            actor=actor,
            delivery_id=delivery_id,
            worker=body.worker,
            seen=body.seen_version,
            lease_s=body.lease_s,
        )

    return once(request, ask, _answer)


def _answer(answer: Opened | Known) -> Reply:
    delivery = Delivery.objects.defer("body").get(pk=answer.subject.pk)
    if isinstance(answer, Known):
        known = {"known": answer.answer, "what_to_do": WHAT_TO_DO[answer.answer]}
        return reply(200, {"delivery": delivery_out(delivery), "permit": None, **known})
    permit = Permit.objects.get(pk=answer.permit.pk)
    return reply(201, {"delivery": delivery_out(delivery), "permit": permit_out(permit)})


@router.post(
    "/deliveries/{id:delivery_id}/retry",
    response={200: DeliveryOut, WRITE: ProblemOut},
    openapi_extra=MAY_KEY,
)
def retry_delivery(request: HttpRequest, delivery_id: str, body: RetryDeliveryIn) -> HttpResponse:
    """Queue again what is known not to have been handed over. The gate is asked now, and when it is sent."""
    actor = actor_of(request)

    def retry() -> Delivery | Refusal:
        return deliveries.retry(actor=actor, delivery_id=delivery_id, worker=body.worker)

    return once(request, retry, lambda delivery: reply(200, delivery_out(delivery)), required=False)
