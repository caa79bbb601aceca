"""A provider that sends webhooks: an account of a workspace, its secret, and signed calls to its address."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from effects import accounts, signing
from effects.accounts import New
from effects.models import Account, Inbound
from runs import access
from runs.models import Workspace
from runs.store import database_time

READS = {
    "key_path": "data.key",
    "verdict_path": "data.status",
    "happened": ["succeeded"],
    "did_not": ["failed"],
    "partly": ["in part"],
    "ref_path": "data.id",
    "items_path": "data.missing",
    "count_path": "data.objects",
    "job_path": "data.job",
}
_numbers = itertools.count(1)


def an_account(workspace: Workspace, name: str = "bank", **fields: Any) -> tuple[Account, str]:
    """An account and its first secret."""
    new = New(**{"reads": READS, **fields})
    put = accounts.put_account(actor=access.SET_UP, workspace_id=workspace.pk, name=name, new=new)
    return put.account, put.secret


@dataclass
class Teller:
    """Whoever holds a secret of an account, and sends to its address."""

    account: Account
    secret: str
    client: Client = field(default_factory=Client)

    def body(self, key: str, says: object = "succeeded", **data: Any) -> bytes:
        return json.dumps({"type": "charge", "data": {"key": key, "status": says, **data}}).encode()

    def headers(self, body: bytes, message_id: str = "", late_s: int = 0) -> dict[str, str]:
        at = int(database_time().timestamp()) - late_s
        return signing.headers(message_id or f"msg-{next(_numbers)}", at, body, [self.secret])

    def post(self, body: bytes, headers: dict[str, str] | None = None, to: str = "") -> Any:
        path = f"/hooks/{to or self.account.pk}"
        named = self.headers(body) if headers is None else headers
        return self.client.generic("POST", path, body, "application/json", headers=named)

    def tell(self, key: str, says: object = "succeeded", **data: Any) -> str:
        """Send one that is genuine; what became of it."""
        body = self.body(key, says, **data)
        headers = self.headers(body)
        assert self.post(body, headers).status_code == 200
        return str(self.inbound(headers).became)

    def inbound(self, headers: dict[str, str]) -> Inbound:
        return Inbound.objects.get(account=self.account, message_id=headers["webhook-id"])
