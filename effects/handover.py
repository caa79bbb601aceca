"""Our sender of deliveries: permit → connect → second look → send → report, as the executor does.

A task says only "look at this delivery"; the row decides. What happens between a permit and its report
without an answer is left to the permit's lease: nothing here guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.core.mail import EmailMessage

from runs.access import EXECUTOR
from runs.guard import Ask, Opened, Refusal
from runs.models import Permit

from . import deliveries, mail, outbound
from .delivery_moves import OURS
from .executor import LEASE_S, NotOpen, lease_kept, look_again, now, report, worker_name
from .models import Channel, Delivery, DeliveryState
from .providers.http import outcome_of
from .settle import Told


def deliver(delivery_id: str) -> str:
    """Hand one queued delivery over if the gate lets it; returns what came of it, for the log.

    "nothing to do" · "refused" · an outcome of settle.OUTCOMES. Raises what the database raises.
    """
    rows = Delivery.objects.filter(pk=delivery_id, state=DeliveryState.QUEUED, channel__in=OURS)
    if not rows.exists():
        return "nothing to do"
    began, worker = now(), worker_name()  # before the gate is asked: our own count ends first
    answer = deliveries.hand_over(actor=EXECUTOR, delivery_id=delivery_id, worker=worker, lease_s=LEASE_S)
    if not isinstance(answer, Opened):
        if not isinstance(answer, Refusal) or not deliveries.let_go(delivery_id):
            deliveries.wait_longer(delivery_id)
        return "refused" if isinstance(answer, Refusal) else "nothing to do"
    permit = answer.permit
    ask = Ask(permit.run_id, EXECUTOR, worker, permit.seen_version, claim_token=permit.token, lease_s=LEASE_S)
    with lease_kept(ask):
        told = _send(answer.subject, permit, began)
        report(permit, told)
    return told.outcome


def _send(delivery: Delivery, permit: Permit, began: float) -> Told:
    ready = partial(look_again, permit, began)
    try:
        deliveries.check_target(deliveries.message_of(delivery))
        return SENDERS[delivery.channel](delivery, ready)
    except NotOpen as shut:
        return Told("not_sent", detail=f"the second look said: {shut}")
    except (deliveries.BadTarget, outbound.Refused, outbound.NoConnection) as error:
        return Told("not_applied", detail=f"nothing was sent: {error}")
    except outbound.NoAnswer as error:
        return Told("unknown", detail=str(error))


def _by_webhook(delivery: Delivery, ready: Callable[[], None]) -> Told:
    headers = {"Content-Type": delivery.content_type, "Idempotency-Key": delivery.key}
    request = outbound.Request("POST", delivery.target, headers, bytes(delivery.body))
    status = outbound.call(request, ready).status
    return Told(outcome_of(status), detail=f"the receiver answered {status}")


def _by_email(delivery: Delivery, ready: Callable[[], None]) -> Told:
    message = EmailMessage(
        subject=delivery.title,
        body=bytes(delivery.body).decode(errors="replace"),
        to=[delivery.target],
        headers={"Message-ID": f"<{delivery.pk}@allstop.invalid>"},  # the same on every attempt
    )
    message.content_subtype = "html" if "html" in delivery.content_type else "plain"
    return mail.send(message, ready)


SENDERS: dict[str, Callable[[Delivery, Callable[[], None]], Told]] = {
    Channel.WEBHOOK: _by_webhook,
    Channel.EMAIL: _by_email,
}
