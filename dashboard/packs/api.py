"""The API of what is checked without us: packs, statements, public keys."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from ninja import Router

from dashboard.statements import Statement, told
from dashboard.statements.rotation import public_keys
from runs import access, cursors
from runs.access import NotFound
from runs.api import READ, Cursor, Limit
from runs.fields import Out
from runs.idempotency import reply, send
from runs.schemas import Page, ProblemOut
from runs.tokens import actor_of, spaces_of

from .streaming import pack_answer

router = Router(by_alias=True)
ZIP = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}


class HandoverOut(Out):
    """What the key before said of this one; both signed the text `statement`."""

    statement: str
    signature: str
    accepted: str


class KeyOut(Out):
    """A public key: 32 bytes in base64; `id` is the first 16 hex digits of their SHA-256."""

    id: str
    public: str
    since: datetime
    follows: str
    handover: HandoverOut | None


class KeysOut(Out):
    """The keys of this installation, oldest first; the last one is in use."""

    installation: str
    keys: list[KeyOut]


class StatementOut(Out):
    """A statement: `statement` is the text that was signed, to the byte; `unsigned` says why it was not."""

    id: str
    kind: str
    workspace_id: str
    report_id: str | None
    day: date | None
    part: int
    at: datetime
    statement: str
    signature: str
    public: str
    unsigned: str


class StatementsOut(Page):
    """A page of statements."""

    items: list[StatementOut]


@router.get(
    "/runs/{id:run_id}/pack",
    response={READ: ProblemOut},
    openapi_extra={"responses": {200: {"description": "OK", "content": ZIP}}},
)
def read_pack(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """The evidence pack of a run: a zip that checks itself, with `python3 -I verify.py`."""
    return pack_answer(access.find_run(actor_of(request), run_id))


@router.get("/keys", response={200: KeysOut, READ: ProblemOut})
def read_keys(request: HttpRequest) -> HttpResponse:
    """The public keys that statements of this installation are checked with."""
    return send(reply(200, public_keys()))


def readable(request: HttpRequest) -> QuerySet[Statement]:
    """The statements that the caller may read; a token of one run, those of its reports."""
    actor = actor_of(request)
    rows = Statement.objects.filter(workspace_id__in=spaces_of(actor))
    alone = actor.token.run_id if actor.token is not None else None
    return rows.filter(report__run=alone) if alone else rows


@router.get("/statements", response={200: StatementsOut, READ: ProblemOut})
def list_statements(
    request: HttpRequest, day: date | None = None, cursor: Cursor = "", limit: Limit = 50
) -> HttpResponse:
    """Statements of days and of issued reports, newest first; `day`: of that day alone."""
    rows = readable(request)
    found, after = cursors.page(rows.filter(day=day) if day else rows, cursor, limit)
    return send(reply(200, cursors.listed([statement_out(one) for one in found], after)))


@router.get("/statements/{id:statement_id}", response={200: StatementOut, READ: ProblemOut})
def read_statement(request: HttpRequest, statement_id: str) -> HttpResponse:
    """One statement, with what it takes to check it."""
    found = readable(request).filter(pk=statement_id).first()
    if found is None:
        raise NotFound("statement")
    return send(reply(200, statement_out(found)))


def statement_out(row: Statement) -> dict[str, Any]:
    """A statement on the wire."""
    signed = told(row)
    names = ("id", "kind", "workspace_id", "report_id", "day", "part", "at", "signature", "unsigned")
    given = {name: getattr(row, name) for name in names}
    return StatementOut(**given, statement=signed.text, public=signed.public).wire()
