"""sign(): a statement's canonical JSON under the installation's Ed25519 key (RFC 8032)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runs import keyring
from runs.evidence import canonical

from .models import SealKey, Statement

FORMAT = "allstop.statement/1"


@dataclass(frozen=True)
class Signed:
    """A statement: its text, and who signed it; `key` is "" and `unsigned` says why where nobody did."""

    text: str
    key: str = ""
    public: str = ""
    signature: str = ""
    unsigned: str = ""

    @property
    def envelope(self) -> dict[str, str]:
        """As it leaves the installation: the text is inside as it was signed, to the byte."""
        told = {"statement": self.text, "signature": self.signature, "public": self.public}
        return told | ({"unsigned": self.unsigned} if self.unsigned else {})


class Signer:
    """A private key that can sign."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        raw = self._key.public_key().public_bytes_raw()
        self.id, self.public = key_id(raw), base64.b64encode(raw).decode()

    def sign(self, text: str) -> str:
        """The signature of its UTF-8 bytes, in base64."""
        return base64.b64encode(self._key.sign(text.encode())).decode()


def key_id(public: bytes) -> str:
    """The first 16 hex digits of the SHA-256 of a public key's 32 bytes."""
    return hashlib.sha256(public).hexdigest()[:16]


def signer() -> Signer:
    """The key in use, known by a row from now on. Raises KeyUnreadable."""
    found = Signer(keyring.read(keyring.SEAL))
    SealKey.objects.bulk_create([SealKey(id=found.id, public=found.public)], ignore_conflicts=True)
    return found


def introduce() -> None:
    """Have the public key in use be known, before anybody asks for the list of them."""
    with suppress(keyring.KeyUnreadable):
        signer()


def installation() -> str:
    """What this installation calls itself in statements: by its first key. "" before it had one."""
    first = SealKey.objects.order_by("since", "id").first()
    return f"ins_{first.pk}" if first else ""


def sign(kind: str, told: Mapping[str, Any]) -> Signed:
    """A statement of this kind that says `told`, or the same unsigned where the key can't be read."""
    try:
        key = signer()
    except keyring.KeyUnreadable as error:
        text = text_of(kind, "", told)
        return Signed(text, unsigned=f"not signed: {error}"[:200])
    text = text_of(kind, key.id, told)
    return Signed(text, key.id, key.public, key.sign(text))


def text_of(kind: str, key: str, told: Mapping[str, Any]) -> str:
    head = {"format": FORMAT, "kind": kind, "installation": installation(), "key": key}
    return canonical({**told, **head})


def told(statement: Statement) -> Signed:
    """A kept statement, with the public key that it is checked with."""
    key = SealKey.objects.filter(pk=statement.key).first() if statement.key else None
    public = key.public if key else ""
    return Signed(statement.body, statement.key, public, statement.signature, statement.unsigned)
