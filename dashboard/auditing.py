"""What people do at the doors: who was refused, who signed in or not, who took something away with them.

Only marks are left (`runs.audit.note`), after the answer is known; none holds what somebody typed.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import Http404, HttpRequest, HttpResponseBase

from runs import access, audit
from runs.models import Run, StopRequest, User
from runs.problems import Problem
from runs.tokens import address_of, is_stop

# Kinds of files, by what an answer says of itself. Every page that lets somebody take one away says so.
FORMS = {
    "text/csv": "CSV",
    "application/pdf": "PDF",
    "application/zip": "pack",
    "application/x-ndjson": "JSONL",
    "application/json": "JSON",
}
PUBLIC = frozenset({"seal-keys"})  # what anybody may have
REFUSALS = frozenset({"not-allowed", "not-found", "people-only", "same-person", "token-refused"})


# refused ------------------------------------------------------------------------------------------


def refused_page(request: HttpRequest, error: Exception) -> None:
    """A signed-in person was answered 403, or 404.

    A 404 goes to the person's own workspaces, whatever was asked for: nothing here depends on whether it
    exists in another one, neither what is kept nor how long that takes.
    """
    absent = isinstance(error, access.NotFound | Http404)
    stream = "" if absent else getattr(error, "workspace_id", "")
    _refused(request, access.person(_person(request)), 404 if absent else 403, stream)


def refused_call(request: HttpRequest, problem: Problem) -> None:
    """A call of the API was refused for who made it."""
    if problem.name not in REFUSALS:
        return
    actor = getattr(request, "auth", None)
    if isinstance(actor, access.Actor):
        stream = actor.token.workspace_id if actor.token is not None else ""
        _refused(request, actor, problem.status, stream)
    elif problem.name == "token-refused":
        told: dict[str, Any] = {"address": address_of(request)}
        audit.note("token.refused", audit.NOBODY, stream=audit.INSTALLATION, wait=_waits(request), **told)


def _refused(request: HttpRequest, actor: access.Actor, answer: int, stream: str) -> None:
    person = actor.user.pk if actor.user is not None and not stream else None
    told: dict[str, Any] = {"answer": answer, "at": _at(request), "method": request.method, "via": actor.via}
    wait = _waits(request)
    audit.note("access.refused", actor.id, stream=stream, person=person, wait=wait, **told)


def _at(request: HttpRequest) -> str:
    """What was asked, by its name: an address may hold what somebody typed."""
    match = request.resolver_match
    return (match.url_name or match.view_name or "") if match else ""


def _waits(request: HttpRequest) -> bool:
    """Whoever presses Stop is told no at once, and so is everybody behind them."""
    return not (is_stop(request) or (request.method == "POST" and "stop" in request.path))


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


# taken away ---------------------------------------------------------------------------------------


def left(request: HttpRequest, answer: HttpResponseBase) -> None:
    """After an answer: a file that somebody took with them is an export."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    is_file = "Content-Disposition" in answer.headers or kind in ("text/csv", "application/pdf")
    if answer.status_code != 200 or request.method != "GET" or not is_file or _at(request) in PUBLIC:
        return
    of = dict(request.resolver_match.kwargs) if request.resolver_match else {}
    told: dict[str, Any] = {"what": _at(request), "form": FORMS.get(kind, "file"), **of}
    actor = getattr(request, "auth", None)
    if not isinstance(actor, access.Actor):
        actor = access.person(_person(request))
    stream = _workspace_of(request, of)
    person = actor.user.pk if actor.user is not None and not stream else None
    audit.note("export.made", actor.id, stream=stream, person=person, **told)


def _workspace_of(request: HttpRequest, of: dict[str, Any]) -> str:
    """The workspace whose things were taken, which the person may read: it was answered."""
    if request.GET.get("stream") == audit.INSTALLATION:
        return audit.INSTALLATION
    for name, rows in (("run_id", Run.objects), ("stop_id", StopRequest.objects)):
        if name in of:
            return rows.filter(pk=of[name]).values_list("workspace_id", flat=True).first() or ""
    if "statement_id" in of or "attachment_id" in of:
        return _of_paper(of)
    if not isinstance(request.user, User):
        return ""
    slug, mine = request.GET.get("workspace"), access.workspaces_of(request.user)
    return next((space.pk for space in mine if slug in (None, space.slug)), "")


def _of_paper(of: dict[str, Any]) -> str:
    from dashboard.statements import Statement
    from effects.models import Attachment

    if "statement_id" in of:
        statements = Statement.objects.filter(pk=of["statement_id"])
        return statements.values_list("workspace_id", flat=True).first() or ""
    papers = Attachment.objects.filter(pk=of["attachment_id"])
    return papers.values_list("run__workspace_id", flat=True).first() or ""


# signing in ---------------------------------------------------------------------------------------


def listen() -> None:
    """From now on sign-ins leave their mark, whichever way a person comes in."""
    user_logged_in.connect(_signed_in, dispatch_uid="allstop.audit")
    user_login_failed.connect(_failed, dispatch_uid="allstop.audit")
    user_logged_out.connect(_signed_out, dispatch_uid="allstop.audit")


def _signed_in(request: HttpRequest | None, user: User, **_: Any) -> None:
    audit.note("person.signed_in", f"user:{user.pk}", person=user.pk, **_where(request))


def _signed_out(request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if user is not None:
        audit.note("person.signed_out", f"user:{user.pk}", person=user.pk)


def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """The address that was typed is asked for and forgotten: some people type their password there."""
    typed = str(credentials.get("email") or credentials.get("username") or "")[:254]
    known = User.objects.filter(email=typed.strip().lower()).values_list("pk", flat=True).first()
    audit.note("person.sign_in_failed", audit.NOBODY, person=known, **_where(request))


def _where(request: HttpRequest | None) -> dict[str, Any]:
    address = address_of(request) if request is not None else ""
    return {"address": address} if address else {}
