"""Seals and keys: what somebody needs to check evidence without us, and the packs to take away."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_GET

from dashboard.packs.streaming import pack_answer
from dashboard.packs.writing import VERIFIER
from dashboard.pages.shell import actor_of, page, person_of, signed_in, workspace_of
from dashboard.statements import SealKey, Statement, StatementKind, told
from dashboard.statements.rotation import public_keys
from runs import access, keyring

SHOWN = 30


@cache
def verifier_digest() -> str:
    """The SHA-256 of verify.py, as packs of this release hold it."""
    return hashlib.sha256(VERIFIER.read_bytes()).hexdigest()


def unreadable() -> str:
    """Why nothing can be signed now; "" when it can."""
    try:
        keyring.read(keyring.SEAL)
    except keyring.KeyUnreadable as error:
        return str(error)
    return ""


@require_GET
@signed_in
def seals_page(request: HttpRequest) -> HttpResponse:
    """GET /seals?workspace=<slug>&before=<id> : public keys, and the statements of days, newest first."""
    workspace = workspace_of(request)
    rows = Statement.objects.filter(workspace=workspace, kind=StatementKind.DAILY).order_by("-id")
    if before := request.GET.get("before"):
        rows = rows.filter(pk__lt=before[:40])
    found = list(rows.defer("body")[: SHOWN + 1])
    shown: dict[str, Any] = {"days": found[:SHOWN], "older": found[SHOWN - 1].pk if found[SHOWN:] else ""}
    shown |= {"keys": list(SealKey.objects.order_by("-since", "-id")), "unreadable": unreadable()}
    shown |= {"installation": public_keys()["installation"], "verifier": verifier_digest()}
    return page(request, "seals/page.html", current="seals", workspace=workspace, **shown)


def download(value: Any, name: str) -> HttpResponse:
    body = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    answer = HttpResponse(body, content_type="application/json; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@require_GET
@signed_in
def keys_json(request: HttpRequest) -> HttpResponse:
    """GET /seals/keys.json : the public keys as a file, for --key of the verifier."""
    return download(public_keys(), "keys.json")


@require_GET
@signed_in
def statement_json(request: HttpRequest, statement_id: str) -> HttpResponse:
    """GET /seals/<id>.json : a statement as a file, for --statement of the verifier."""
    row = Statement.objects.filter(pk=statement_id).first()
    if row is None or not access.can_read_workspace(person_of(request), row.workspace_id):
        raise Http404
    return download(told(row).envelope, f"{row.pk}.json")


@require_GET
@signed_in
def run_pack(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """GET /runs/<id>/pack.zip : the evidence pack of a run."""
    return pack_answer(access.find_run(actor_of(request), run_id))
