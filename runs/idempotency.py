"""Idempotency-Key: a request that is repeated gets the answer it got, and nothing is done twice.

The answer is kept in the transaction of the verb itself, so a key and its work are both there or
neither is. What changed nothing (a problem other than a recorded refusal) is not kept: ask again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse

from . import bodies, keyring, problems, redaction
from .evidence import canonical, digest
from .guard import Refusal, Waiting
from .models import IdempotencyRecord
from .problems import Problem
from .store import alongside, database_time
from .tokens import actor_of

R = TypeVar("R")
HEADER = "Idempotency-Key"
KEPT_FOR = timedelta(days=7)
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True)
class Reply:
    """An answer as it is kept and sent."""

    status: int
    text: str


def reply(status: int, body: Mapping[str, Any]) -> Reply:
    """An answer with a JSON object."""
    return Reply(status, canonical(body))


def send(answer: Reply, *, replayed: bool = False) -> HttpResponse:
    """The HTTP answer; a kept one says so."""
    media = problems.MEDIA_TYPE if answer.status >= 400 else "application/json"
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return HttpResponse(answer.text, media, answer.status, headers=headers)


def unquoted(header: str) -> str:
    """The key in a header's value, with or without the quotes of the draft; "" when it can't be used."""
    key = header.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    return key if _PRINTABLE.fullmatch(key) else ""


def key_of(request: HttpRequest, *, required: bool) -> str:
    """The request's key, or "" when it has none and needs none. Raises Problem."""
    header = request.headers.get(HEADER)
    if header is None and not required:
        return ""
    if header is None:
        raise Problem(
            "idempotency-key-missing",
            "Send a header Idempotency-Key with a new random value, and the same one when you repeat this.",
        )
    key = unquoted(header)
    if not key:
        raise Problem("idempotency-key-invalid", "A key is 1 to 255 printable ASCII characters, no spaces.")
    if redaction.holds_secret(key):
        raise Problem(
            "idempotency-key-invalid", "It looks like a secret, and keys are kept. Send a random one."
        )
    return key


def once(
    request: HttpRequest, call: Callable[[], R], answer: Callable[[Any], Reply], *, required: bool = True
) -> HttpResponse:
    """Do `call()`, one verb, at most once per key; `answer` turns its result into the reply.

    `answer` runs inside the verb's transaction, before the commit. A Refusal becomes its problem.
    """
    key = key_of(request, required=required)
    if not key:
        return send(_answered(call(), answer))
    return _Once(actor_of(request).id, key, _asked(request)).do(call, answer)


def _answered(result: Any, answer: Callable[[Any], Reply]) -> Reply:
    if isinstance(result, Refusal):
        problem = problems.refused(result)
        return reply(problem.status, problem.document)
    return answer(result)


def _asked(request: HttpRequest) -> str:
    """What is asked, keyed: method, path and body, however the body is spelled.

    The body is kept without its secrets; a plain digest of all of it beside that would give a short one away.
    """
    told = canonical([request.method, request.path, bodies.object_of(request)])
    try:
        key = keyring.read(keyring.REDACTION)
    except keyring.KeyUnreadable:  # a digest of what is kept tells less apart, and gives nothing away
        return digest(redaction.text(told))
    return hmac.new(key, told.encode(), hashlib.sha256).hexdigest()


@dataclass
class _Once:
    owner: str
    key: str
    asked: str
    kept: Reply | None = None

    def do(self, call: Callable[[], Any], answer: Callable[[Any], Reply]) -> HttpResponse:
        before = self._replay()
        if before is not None:
            return before
        try:
            with alongside(lambda result: self._keep_unless_waiting(result, answer)):
                result = call()
        except IntegrityError:  # the same key, answered by another request meanwhile
            meanwhile = self._replay()
            if meanwhile is None:
                raise
            return meanwhile
        if self.kept is not None:
            return send(self.kept)
        # No verb was needed: the answer was read, perhaps after a twin of this request had its way.
        return self._replay() or send(_answered(result, answer))

    def _keep_unless_waiting(self, result: Any, answer: Callable[[Any], Reply]) -> None:
        """That people decide first is no answer to keep: the same request again asks the gate again."""
        if not isinstance(result, Waiting):
            self._keep(_answered(result, answer))

    def _keep(self, answer: Reply) -> None:
        IdempotencyRecord.objects.create(
            owner=self.owner,
            key=self.key,
            request_digest=self.asked,
            status=answer.status,
            body=answer.text,
        )
        self.kept = answer

    def _replay(self) -> HttpResponse | None:
        found = IdempotencyRecord.objects.filter(owner=self.owner, key=self.key).first()
        if found is None:
            return None
        if found.request_digest != self.asked:
            raise Problem(
                "idempotency-key-reused",
                "It was used for another method, address or body. Use a new key for a new request.",
            )
        if found.status is None:
            raise Problem(
                "idempotency-key-in-progress",
                "Wait, then repeat the same request with the same key.",
                headers={"Retry-After": "1"},
            )
        return send(Reply(found.status, found.body), replayed=True)


def forget(most: int = 1_000) -> int:
    """Delete the oldest answers that are older than KEPT_FOR, `most` at a time; returns how many."""
    old = IdempotencyRecord.objects.filter(created_at__lt=database_time() - KEPT_FOR).order_by("created_at")
    ids = list(old.values_list("pk", flat=True)[:most])
    return IdempotencyRecord.objects.filter(pk__in=ids).delete()[0] if ids else 0
