"""Agents' own look-ups: whoever knows how asks the provider, and we ask whoever knows.

`kind.lookup`: {callback: url}: we POST our question there, signed with the newest secret of the kind's
account, and the answer is a looked_up.LookedUpIn; or {poll: true}: the agent comes for what is due and
answers (effects/polled.py). Whatever goes wrong is "can't tell".
"""

from __future__ import annotations

from dataclasses import replace

from django.db import close_old_connections

from effects import accounts, outbound, signing
from effects.models import Kind
from effects.new_kind import BadKind, NewKind, check_url
from effects.reconcile import CALLED_BACK, CANT_TELL, Answer
from runs.evidence import canonical
from runs.store import database_time, new_id

from .shape import Sendable

CALLBACK, POLL = "callback", "poll"
NOBODY_CAME = "nobody came to answer it"


def look_up(effect: Sendable, kind: Kind) -> Answer:
    """Ask the agent; one that is polled for is asked by nobody."""
    from effects import looked_up  # which reads answers as this package does

    if not kind.lookup.get(CALLBACK):
        return Answer(CANT_TELL, NOBODY_CAME)
    try:
        request = _question(effect, kind)
        close_old_connections()
        answer = outbound.call(request)
        if answer.status != 200 or answer.cut:
            why = "the answer is too large" if answer.cut else f"the agent answered {answer.status}"
            return Answer(CANT_TELL, why)
        return replace(looked_up.read(answer.body), answered_by=CALLED_BACK)
    except (outbound.Refused, outbound.NoConnection, outbound.NoAnswer) as error:
        return Answer(CANT_TELL, str(error))
    except (signing.Unreadable, looked_up.BadAnswer) as error:
        return Answer(CANT_TELL, str(error) or signing.Unreadable.__doc__ or "")


def _question(effect: Sendable, kind: Kind) -> outbound.Request:
    """Signed by the one newest secret: whoever answers has it already. Each question has an id of its own."""
    account = accounts.of_kind(kind)
    if account is None:
        raise outbound.Refused("the account of its kind is gone, so the question can't be signed")
    now = database_time()
    body = canonical(question_of(effect, kind)).encode()
    secret = signing.in_force(account.secrets, now)[:1]
    headers = signing.headers(new_id("ask"), int(now.timestamp()), body, secret)
    return outbound.Request(
        "POST", str(kind.lookup[CALLBACK]), {**headers, "Content-Type": "application/json"}, body
    )


def question_of(effect: Sendable, kind: Kind) -> dict[str, object]:
    """What we want to know: of which effect, under which key, of which attempt. Its body is not repeated."""
    return {
        "effect_id": effect.pk,
        "run_id": effect.run_id,
        "key": effect.key,
        "kind": kind.name,
        "class": effect.op_class,
        "target": effect.target,
        "title": effect.title,
        "amount": effect.amount,
        "provider_ref": effect.provider_ref,
        "attempt": effect.attempt,
        "dispatched_at": effect.dispatched_at.isoformat() if effect.dispatched_at else None,
    }


def check(new: NewKind) -> None:
    """One of the two ways, and nothing beside it. Raises BadKind."""
    ways = [name for name in (CALLBACK, POLL) if new.lookup.get(name)]
    if len(ways) != 1 or set(new.lookup) - {CALLBACK, POLL}:
        raise BadKind("lookup", "Give callback or poll alone: an agent answers, so nothing else is read")
    if ways == [CALLBACK]:
        check_url("lookup.callback", new.lookup[CALLBACK], needs_key=False)
        if not new.account:
            raise BadKind("account", "The question is signed with a secret of its account: name one")
