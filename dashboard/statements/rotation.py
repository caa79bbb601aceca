"""rotate(): a new key, to which the one in use hands over. Old public keys are kept.

Both sign the same text: the old one that it is followed, the new one that it follows. One signature alone
would prove less: anybody can say of themselves that our key follows theirs.
"""

from __future__ import annotations

from typing import Any

from runs import keyring
from runs.store import database_time, verb

from .models import SealKey
from .signing import Signer, signer, text_of


def rotate() -> SealKey:
    """Hand over to a new key and put it into its file. A try that was cut off is gone on with.

    First the new key's file beside the old one, then its row, then the change of files: what is signed in
    between is signed by the old key, which is known. Raises KeyUnreadable, OSError.
    """
    path = keyring.folder() / keyring.SEAL
    beside = path.with_name(f"{keyring.SEAL}.next")
    old = signer()
    keyring.make(beside)
    try:
        new = Signer(keyring.parsed(beside.name, beside.read_text("ascii")))
    except ValueError:
        raise keyring.KeyUnreadable(f"{beside.name} is no key of {keyring.SIZE} bytes in hex") from None
    row = _hand_over(old, new)
    beside.replace(path)
    return row


@verb
def _hand_over(old: Signer, new: Signer) -> SealKey:
    known = SealKey.objects.filter(pk=new.id).first()
    if known is not None:
        return known
    told: dict[str, Any] = {"at": database_time().isoformat(), "streams": [], "public": old.public}
    text = text_of("handover", old.id, {**told, "next": new.id, "next_public": new.public})
    return SealKey.objects.create(
        id=new.id,
        public=new.public,
        follows=old.id,
        handover=text,
        signature=old.sign(text),
        accepted=new.sign(text),
    )


def public_keys() -> dict[str, Any]:
    """The public keys of this installation, oldest first, as they are published and put into packs."""
    keys = list(SealKey.objects.order_by("since", "id"))
    return {"installation": f"ins_{keys[0].pk}" if keys else "", "keys": [_told(key) for key in keys]}


def _told(key: SealKey) -> dict[str, Any]:
    handed = {"statement": key.handover, "signature": key.signature, "accepted": key.accepted}
    return {
        "id": key.pk,
        "public": key.public,
        "since": key.since.isoformat(),
        "follows": key.follows,
        "handover": handed if key.handover else None,
    }
