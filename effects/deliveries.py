"""Deliveries: a run's own outbound messages, queued, held by its stop, and handed over through the gate.

A delivery is queued while its run is ACTIVE. It may be handed over then, or after the run COMPLETED or
FAILED at the version at which it was queued, as long as no stop was recorded since. Nothing takes back
what was handed over: cancelling the run does not prove a message unsent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from runs import gate, policies, redaction, scopes, wake
from runs.access import SYSTEM, Actor, NotFound, demand
from runs.evidence import Line, canonical, digest, record
from runs.guard import (
    ENDED,
    STOPPED,
    Ask,
    Known,
    NoIntent,
    Opened,
    Refusal,
    lock_run,
    refuse,
    scopes_open,
    view,
    watched,
    why_not,
    why_not_deliver,
)
from runs.models import Boundary, OperationClass, Permit, Run
from runs.store import Now, after, verb

from . import close, outbound
from .delivery_moves import AGAIN_S, DOUBTFUL, OURS, line_of
from .models import Channel, Delivery, DeliveryState

REFUSED_S = 30  # one that was refused while its run goes on asks again after this


class DeliveryKeyReused(ValueError):
    """This run has a delivery with this key and another message. Use a key of its own."""


class BadTarget(ValueError):
    """We can't hand it over there."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class NoRetry(ValueError):
    """Only what is known not to have been handed over can be queued again."""


@dataclass(frozen=True)
class Message:
    """What is to be handed over, where, and how. `body` is kept and sent byte for byte."""

    key: str
    channel: str
    target: str
    title: str = ""
    body: bytes = b""
    content_type: str = ""

    @property
    def parameters(self) -> str:
        """The digest that a second call under this key must match."""
        return digest(canonical([self.channel, self.target, self.title, self.type, digest(self.body)]))

    @property
    def type(self) -> str:
        usual = "application/json" if self.channel == Channel.WEBHOOK else "text/plain; charset=utf-8"
        return self.content_type or usual


@dataclass(frozen=True)
class Queued:
    """The delivery as it stands; `created`: it was new."""

    delivery: Delivery
    created: bool


def shown_target(delivery: Delivery) -> str:
    """Where it goes, as people may read it."""
    return shown_address(delivery.target) if delivery.channel == Channel.WEBHOOK else delivery.target


def shown_address(url: str) -> str:
    """The origin of a URL and a mark for the rest, which is often a secret of its receiver.

    The mark tells whether two addresses are the same; it can't be sent back as one.
    """
    try:
        target = outbound.target_of(url)
    except outbound.Refused:
        return "an address that can't be read"
    return target.origin if target.path == "/" else f"{target.origin}/{redaction.marker('path', target.path)}"


def message_of(delivery: Delivery) -> Message:
    """The message as it was queued."""
    return Message(
        delivery.key,
        delivery.channel,
        delivery.target,
        delivery.title,
        bytes(delivery.body),
        delivery.content_type,
    )


# queue ----------------------------------------------------------------------------------------------


def queue(ask: Ask, message: Message) -> Queued | Refusal:
    """Record a message that is to be handed over. The same key again answers the delivery as it stands.

    Raises NotFound, NotAllowed, BadTarget, DeliveryKeyReused.
    """
    check_target(message)
    asked = replace(ask, boundary=Boundary.DELIVER, op_class=OperationClass.DELIVERY, effect_key=message.key)
    return _queue(asked, message)


def check_target(message: Message) -> None:
    """Whether we could hand it over at all. Asked again when it is sent. Raises BadTarget."""
    if message.channel == Channel.WEBHOOK:
        check_url(message.target)
    elif message.channel == Channel.EMAIL:
        if not settings.EMAIL_CONFIGURED:
            raise BadTarget("No e-mail server is configured here")
        try:
            validate_email(message.target)
        except ValidationError as error:
            raise BadTarget("An e-mail goes to one address") from error


def check_url(url: str) -> None:
    """An address that outbound calls may have by its form. Raises BadTarget."""
    if redaction.is_redacted(url):
        raise BadTarget("This is how the address is shown: send it whole, or not at all")
    try:
        target = outbound.target_of(url)
    except outbound.Refused as error:
        raise BadTarget(str(error)) from error
    if target.scheme != "https" and target.origin not in outbound.exempt_origins():
        raise BadTarget("It must begin with https://")


@verb
def _queue(ask: Ask, message: Message) -> Queued | Refusal:
    run = lock_run(ask.run_id)
    now = view(run, ask)
    known: Delivery | None = Delivery.objects.filter(run=run, key=message.key).first()
    if known is not None:
        if known.parameters_digest != message.parameters:
            raise DeliveryKeyReused(message.key)
        return Queued(known, created=False)
    reason = why_not(run, ask.seen_version, now.scopes_open)
    if reason is not None:
        return refuse(run, ask, reason, Boundary.DELIVER)
    made = _insert(run, message)
    record(run, line_of(made, ask.actor.id, ask.worker), last_seq=now.last_seq)
    watched(run, ask, now)
    _wake(made)
    return Queued(Delivery.objects.get(pk=made.pk), created=True)


def _insert(run: Run, message: Message) -> Delivery:
    return Delivery.objects.create(
        run=run,
        key=message.key,
        channel=message.channel,
        target=message.target,
        title=message.title or message.key,
        content_type=message.type,
        body=message.body,
        body_digest=digest(message.body),
        parameters_digest=message.parameters,
        queued_version=run.cancel_version,
        turn_at=_turn(message.channel),
    )


def _turn(channel: str) -> Any:
    """When our sender looks at it; None for those that their agent hands over."""
    return Now() if channel in OURS else None


def _wake(delivery: Delivery) -> None:
    if delivery.channel in OURS:
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.deliver", delivery.pk), robust=True)


@verb
def retry(*, actor: Actor, delivery_id: str, worker: str = "") -> Delivery | Refusal:
    """Queue once more what is known not to have been handed over; through the gate, now and when sent.

    Raises NotFound, NotAllowed, NoRetry.
    """
    found = find(delivery_id)
    run = lock_run(found.run_id)
    asked: dict[str, Any] = {"boundary": Boundary.DELIVER, "op_class": OperationClass.DELIVERY}
    asked["effect_key"] = found.key
    ask = Ask(run.pk, actor, worker, run.cancel_version, **asked)
    now = view(run, ask)
    delivery = find(delivery_id)
    if delivery.state not in (DeliveryState.NOT_HANDED_OVER, DeliveryState.WITHHELD):
        raise NoRetry(delivery_id)
    reason = why_not_deliver(run, run.cancel_version, now.scopes_open)
    if reason is None and (delivery.state == DeliveryState.WITHHELD or _is_stopped(delivery)):
        reason = STOPPED
    if reason is not None:
        return refuse(run, ask, reason, Boundary.DELIVER)
    Delivery.queue_again(delivery, run.cancel_version, _turn(delivery.channel))
    record(run, line_of(delivery, actor.id, worker, again=True), last_seq=now.last_seq)
    watched(run, ask, now)
    _wake(delivery)
    return find(delivery_id)


def _is_stopped(delivery: Delivery) -> bool:
    """Whether the step of its newest attempt has a stop of its own: what was tried there ends there."""
    return Permit.objects.filter(pk=delivery.permit_id, step__stopped_at__isnull=False).exists()


def find(delivery_id: str) -> Delivery:
    """The delivery with its run; NotFound if there is none."""
    found: Delivery | None = Delivery.objects.select_related("run").filter(pk=delivery_id).first()
    if found is None:
        raise NotFound("delivery")
    return found


# hand over --------------------------------------------------------------------------------------------


class _Intent(NoIntent):
    """What the gate does for a delivery in its own transaction."""

    def __init__(self, delivery_id: str, actor: str) -> None:
        self.delivery_id, self.actor = delivery_id, actor

    def annotations(self, ask: Ask) -> dict[str, Any]:
        return {}

    def known(self, run: Run, seen: dict[str, Any]) -> Known | None:
        delivery = Delivery.objects.get(pk=self.delivery_id)
        if delivery.state in DOUBTFUL:
            return Known("must_wait", delivery)
        if delivery.state == DeliveryState.NOT_HANDED_OVER:
            return Known("not_handed_over", delivery)
        settled = (DeliveryState.HANDED_OVER, DeliveryState.ACCEPTED_UNKNOWN)
        return Known("settled", delivery) if delivery.state in settled else None

    def opened(self, run: Run, permit: Permit, seen: dict[str, Any]) -> tuple[Delivery, list[Line]]:
        delivery = Delivery.objects.get(pk=self.delivery_id)
        Delivery.dispatch(delivery, permit)
        return delivery, [line_of(delivery, self.actor, permit.worker, permit=permit)]


def hand_over(
    *, actor: Actor, delivery_id: str, worker: str, seen: int | None = None, lease_s: float = 30
) -> Opened | Known | Refusal:
    """Ask to hand it over now: a permit at the boundary `deliver` (look once more, then send).

    `seen`: the version that the asker holds; None for our own sender, which holds that of the delivery.
    What was tried, or is in flight, is answered as Known. Raises NotFound, NotAllowed.
    """
    delivery = find(delivery_id)
    demand(actor, "write", delivery.run)
    ask = Ask(
        delivery.run_id,
        actor,
        worker,
        delivery.queued_version if seen is None else seen,
        op_class=OperationClass.DELIVERY,
        step_key=f"delivery:{delivery.pk}:{delivery.attempt + 1}",
        step_name=delivery.title,
        effect_key=delivery.key,
        lease_s=lease_s,
        queued=True,
    )
    return gate.deliver(ask, _Intent(delivery.pk, actor.id))


# what waits for our sender -----------------------------------------------------------------------------


def waiting(limit: int = 200) -> list[str]:
    """Deliveries queued for longer than a message takes; each is handed out once per AGAIN_S."""
    rows = Delivery.objects.filter(state=DeliveryState.QUEUED, turn_at__lte=after(-AGAIN_S))
    ids = list(rows.order_by("turn_at").values_list("pk", flat=True)[:limit])
    return [delivery_id for delivery_id in ids if _take_turn(delivery_id)]


def _take_turn(delivery_id: str) -> bool:
    mine = Delivery.objects.filter(pk=delivery_id, turn_at__lte=after(-AGAIN_S))
    return bool(mine.update(turn_at=Now()))


@verb
def let_go(delivery_id: str) -> bool:
    """Withhold what no gate will let through any more: its run has ended, so no resume gives it the epoch of
    the scopes above, which were stopped since. Whether it was withheld.
    """
    run = lock_run(find(delivery_id).run_id)
    delivery = find(delivery_id)
    held = policies.withholding(run, sends=False)  # by one that may be younger than the run
    is_open = held is None and Run.objects.filter(scopes_open(run), pk=run.pk).exists()
    if run.status not in ENDED or is_open or delivery.state != DeliveryState.QUEUED:
        return False
    Delivery.withhold(delivery)
    stop = scopes.stop_above(run, lambda: held)
    record(run, line_of(delivery, SYSTEM.id, stop_id=stop.pk if stop else ""))
    close.tell(run)
    return True


def wait_longer(delivery_id: str) -> None:
    """It was refused while its run goes on, and asks again later."""
    rows = Delivery.objects.filter(pk=delivery_id, state=DeliveryState.QUEUED, turn_at__isnull=False)
    rows.update(turn_at=after(REFUSED_S))
