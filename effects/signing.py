"""Standard Webhooks 1.0: secrets in force, the three headers of a signed message, and whether they fit.

A secret is shown once and kept sealed with a key made of SECRET_KEY, so that a copy of the database alone
signs nothing. Where SECRET_KEY was lost, so are the secrets: make new ones.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

PREFIX = "whsec_"
OVERLAP = timedelta(hours=24)  # how long the secret before stays in force
SECRETS = 5  # in force at once, however often they are rotated in that time
SIGNATURES = 10  # of one message that are looked at
NOW_OR_SO = timedelta(minutes=5)  # how old, or how early, a message may be
Kept = list[dict[str, Any]]  # [{sealed, until: ISO 8601 or None}], oldest first


class Unreadable(ValueError):
    """No secret can be read: it was sealed with another SECRET_KEY. Make a new one."""


def new_secret() -> str:
    """256 random bits as receivers take them: whsec_ + base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def seal(secret: str) -> str:
    """The secret as it is stored."""
    return _box().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """The secret as it was shown. Raises Unreadable."""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable from error


def _box() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_key_of(str(key))) for key in keys])


def _key_of(text: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(b"allstop.notices\0" + text.encode()).digest())


def first() -> tuple[Kept, str]:
    """What is kept of one new secret, and the secret."""
    secret = new_secret()
    return [{"sealed": seal(secret), "until": None}], secret


def live(kept: Kept, now: datetime) -> Kept:
    """Those in force at this moment."""
    return [one for one in kept if not one["until"] or one["until"] > now.isoformat()]


def rotated(kept: Kept, now: datetime) -> tuple[Kept, str]:
    """A new secret; those before stay in force for OVERLAP, or for as long as they had."""
    end, (made, secret) = (now + OVERLAP).isoformat(), first()
    older = [{**one, "until": min(one["until"] or end, end)} for one in live(kept, now)]
    return older[-(SECRETS - 1) :] + made, secret


def in_force(kept: Kept, now: datetime) -> list[str]:
    """The secrets in force, newest first. Raises Unreadable."""
    return [unseal(one["sealed"]) for one in reversed(live(kept, now))]


def headers(notice_id: str, at: int, body: bytes, in_force: Iterable[str]) -> dict[str, str]:
    """The headers of one try at `at` (seconds since 1970), with a signature for each secret in force."""
    signed = " ".join(f"v1,{signature(secret, notice_id, at, body)}" for secret in in_force)
    return {"webhook-id": notice_id, "webhook-timestamp": str(at), "webhook-signature": signed}


def signature(secret: str, notice_id: str, at: int, body: bytes) -> str:
    """base64(HMAC-SHA256(secret, "id.timestamp.body"))."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    text = f"{notice_id}.{at}.".encode() + body
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def fits(
    in_force: Sequence[str], message_id: str, sent_at: str, shown: str, body: bytes, now: datetime
) -> bool:
    """Whether a message is genuine and of now. Never raises: every header is a stranger's text.

    Each signature is compared with that of each secret, in the same time whatever they hold.
    """
    at = int(sent_at) if sent_at.isascii() and sent_at.isdecimal() and len(sent_at) <= 12 else -1
    timely = abs(now.timestamp() - at) <= NOW_OR_SO.total_seconds()
    told = [part.partition(",") for part in shown.split(" ")[:SIGNATURES]]
    ours = [signature(secret, message_id, at, body).encode() for secret in in_force]
    same = False
    for version, _, text in told:
        for mine in ours:
            same |= version == "v1" and hmac.compare_digest(mine, text.encode(errors="replace"))
    return same and timely
