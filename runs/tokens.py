"""Who calls the API: the token in the header, or, for reads only, the signed-in person."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, cast

from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest
from django.utils import timezone

from . import access, audit, redaction
from .access import Actor
from .models import Token
from .problems import Problem
from .rules import secret_fields
from .store import no_waiting
from .throttle import Buckets

SHAPE = re.compile(r"als_[0-9a-f]{8}_[0-9a-f]{64}_[0-9a-f]{8}")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="Allstop"'}
FAILURES = 30  # tokens that are not accepted, of one address, a minute
NOTED_EVERY = timedelta(minutes=1)
STOPS = re.compile(r"/(((runs|steps|policies)/[^/]+/)?stops|workspace/gate/shut)/?$")


def is_stop(request: HttpRequest) -> bool:
    """Whether somebody presses Stop: such a request is never throttled, queued or refused for its form."""
    return request.method == "POST" and bool(STOPS.search(request.path))


def address_of(request: HttpRequest) -> str:
    """Where the request came from."""
    return str(request.META.get("REMOTE_ADDR") or "")[:60]


def actor_of(request: HttpRequest) -> Actor:
    """Who the request was found to come from."""
    return cast(Actor, cast(Any, request).auth)


def home_of(actor: Actor) -> str:
    """The id of the workspace that a token belongs to."""
    assert actor.token is not None  # whoever writes shows a token
    return actor.token.workspace_id


def spaces_of(actor: Actor) -> list[str]:
    """The ids of the workspaces that the actor may read in."""
    if actor.token is not None:
        return [actor.token.workspace_id]
    return [workspace.pk for workspace in access.workspaces_of(actor.user)] if actor.user else []


class TokenAuth:
    """Asks for a live token. A GET is also answered to a signed-in person."""

    openapi_security_schema = {"type": "http", "scheme": "bearer", "description": "als_<id>_<secret>_<check>"}

    def __call__(self, request: HttpRequest) -> Actor:
        shown = request.headers.get("Authorization", "")
        if not shown:
            return self._signed_in(request)
        scheme, _, text = shown.partition(" ")
        text = text.strip()
        fits = scheme.lower() == "bearer" and SHAPE.fullmatch(text)
        token = access.token_of(text) if fits else None
        if token is None:
            raise failed_tokens.answer(request)
        redaction.use(secret_fields(token.workspace_id))
        if not is_stop(request):
            note_use(token)
        return access.agent(token, address_of(request))

    def _signed_in(self, request: HttpRequest) -> Actor:
        user = request.user
        if request.method == "GET" and user.is_authenticated and not user.password_once:
            return access.person(user, address_of(request))
        detail = "Send the header Authorization: Bearer als_… with a token of the workspace."
        raise Problem("token-missing", detail, headers=CHALLENGE)


def note_use(token: Token) -> None:
    """Keep when the token was last used, at most once a minute; never waits, never fails."""
    last = token.last_used_at
    if last is not None and timezone.now() - last < NOTED_EVERY:
        return
    first_try = no_waiting() if connection.vendor == "sqlite" else nullcontext()
    with suppress(DatabaseError), first_try:
        if last is None:
            _note_first_use(token)
        else:
            access.note_use(token)


def _note_first_use(token: Token) -> None:
    """The moment and its mark, or neither."""
    with transaction.atomic():
        if access.note_first_use(token):
            audit.keep(audit.Mark("token.first_used", f"token:{token.pk}", token.workspace_id))


class FailedTokens:
    """Counts tokens that were not accepted, by address."""

    def __init__(self) -> None:
        self.buckets = Buckets(FAILURES)

    def answer(self, request: HttpRequest) -> Problem:
        """The answer to one more; a stop is always told what is wrong with its token."""
        if not self.buckets.take(address_of(request)).wait_s or is_stop(request):
            detail = "It is unknown, expired or revoked. Ask an admin for a new one; nothing was changed."
            return Problem("token-refused", detail, headers=CHALLENGE)
        detail = "Correct the token, then wait a minute. Tokens that are accepted don't count."
        return Problem("too-many-failed-tokens", detail, headers={"Retry-After": "60"})

    def forget(self) -> None:
        """Begin anew."""
        self.buckets.forget()


failed_tokens = FailedTokens()
