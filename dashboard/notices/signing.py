"""Standard Webhooks 1.0: secrets, and the three headers of a signed notice.

A secret is shown once and kept sealed with a key made of SECRET_KEY, so that a copy of the database alone
signs nothing. Where SECRET_KEY was lost, so are the secrets: give the endpoint new ones.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

PREFIX = "whsec_"


class Unreadable(ValueError):
    """No secret of this endpoint can be read: it was sealed with another SECRET_KEY. Give it a new one."""


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


def headers(notice_id: str, at: int, body: bytes, in_force: Iterable[str]) -> dict[str, str]:
    """The headers of one try at `at` (seconds since 1970), with a signature for each secret in force."""
    signed = " ".join(f"v1,{signature(secret, notice_id, at, body)}" for secret in in_force)
    return {"webhook-id": notice_id, "webhook-timestamp": str(at), "webhook-signature": signed}


def signature(secret: str, notice_id: str, at: int, body: bytes) -> str:
    """base64(HMAC-SHA256(secret, "id.timestamp.body"))."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    text = f"{notice_id}.{at}.".encode() + body
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
