"""POST /hooks/<account id>: webhooks of providers. No token: each is signed, as Standard Webhooks says.

An account that is not there and a signature that does not fit get the same answer, after the same work.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from runs import bodies
from runs.idempotency import reply, send
from runs.problems import Problem
from runs.throttle import Buckets
from runs.tokens import FAILURES, address_of

from . import inbound
from .inbound import Message, NotGenuine

refused = Buckets(FAILURES)  # by address, as tokens that are not accepted


def hook(request: HttpRequest, account_id: str) -> HttpResponse:
    """Take one webhook; a replay is answered as the first was, and changes nothing."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    try:
        return send(reply(200, {"answer": inbound.receive(account_id, _message(request))}))
    except NotGenuine:
        raise _refusal(request) from None


def _message(request: HttpRequest) -> Message:
    shown = request.headers
    body = bodies.take(request)
    if bodies.too_large(body):
        bodies.read(body)
    return Message(
        shown.get("webhook-id", ""),
        shown.get("webhook-timestamp", ""),
        shown.get("webhook-signature", ""),
        body,
    )


def _refusal(request: HttpRequest) -> Problem:
    if not refused.take(address_of(request)).wait_s:
        detail = "No account of this address, no signature that fits, or not of now. Nothing was changed."
        return Problem("webhook-refused", detail)
    detail = "Correct the signature, then wait a minute. Webhooks that are accepted don't count."
    return Problem("too-many-refused-webhooks", detail, headers={"Retry-After": "60"})
