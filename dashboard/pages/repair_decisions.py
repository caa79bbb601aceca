"""What people decide about a compensation beside yes and no: changes, none needed, another call."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from dashboard import repair_words
from dashboard.pages.hiding import hides
from dashboard.pages.repair_review import RepairDetail
from dashboard.pages.reviews import detail_of, find, signed_in_s
from dashboard.pages.shell import actor_of, build_shell, signed_in
from effects import compensate
from effects.compensate import NotDone
from effects.compensation import RESTORE_FILES
from effects.models import Compensation
from runs import access

FIELDS = ("title", "target", "amount")
CHANGED = (
    "The call is changed as you wrote it. Every approval of the old one is void, and you may not approve."
)
SAID = {
    "changes": "Your wish is recorded. Every approval is void until the call is changed or approved anew.",
    "not-needed": "Recorded: nothing has to be done. Nothing is sent.",
}
SECRETS = (
    "This body holds values that pages hide, so it can’t be edited here. Reject it, and propose another call."
)


def find_repair(request: HttpRequest, review_id: str) -> RepairDetail:
    """The review of a compensation, for members of its workspace; NotFound for all else."""
    review = find(request, review_id)
    shell = build_shell(request, "reviews", review.workspace)
    detail = detail_of(review, actor_of(request), shell.now, signed_in_s(request))
    if not isinstance(detail, RepairDetail):
        raise access.NotFound("review")
    return detail


@require_POST
@signed_in
def ask_for_changes(request: HttpRequest, review_id: str) -> HttpResponse:
    """POST /reviews/<id>/changes : what should be changed; every approval is void."""
    found, wish = find_repair(request, review_id), _text(request, "reason")
    told = compensate.ask_for_changes(actor=actor_of(request), compensation_id=found.repair.pk, wish=wish)
    return _say(request, review_id, told, "changes")


@require_POST
@signed_in
def not_needed(request: HttpRequest, review_id: str) -> HttpResponse:
    """POST /reviews/<id>/not-needed : with a reason; of a proposed one, or of one that failed."""
    found, reason = find_repair(request, review_id), _text(request, "reason")
    told = compensate.not_needed(actor=actor_of(request), compensation_id=found.repair.pk, reason=reason)
    return _say(request, review_id, told, "not-needed")


def _say(request: HttpRequest, review_id: str, told: Compensation | NotDone, what: str) -> HttpResponse:
    if isinstance(told, NotDone):
        messages.error(request, f"Nothing was decided. {told.sentence}")
    else:
        messages.info(request, SAID[what])
    return redirect("review", review_id)


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
def edit_page(request: HttpRequest, review_id: str) -> HttpResponse:
    """/reviews/<id>/edit : the call in a form, bound to the digest that was shown; the kind stays."""
    detail = find_repair(request, review_id)
    if request.method != "POST":
        return _show(request, detail, _stored(detail.repair))
    draft = {name: _text(request, name) for name in (*FIELDS, "body", "digest")}
    given: dict[str, Any] = {name: draft[name].strip() for name in FIELDS}
    told = compensate.edit(
        actor=actor_of(request),
        compensation_id=detail.repair.pk,
        digest=draft["digest"],
        **given,
        **_body(detail.repair, draft["body"]),
    )
    if isinstance(told, NotDone):
        fresh = find_repair(request, review_id)
        return _show(request, fresh, draft, 409 if told.reason == "changed" else 422, told)
    messages.info(request, CHANGED)
    return redirect("review", review_id)


def _stored(compensation: Compensation) -> dict[str, str]:
    text = text_of(bytes(compensation.body))
    return {name: getattr(compensation, name) for name in FIELDS} | {"body": text or ""}


def text_of(body: bytes) -> str | None:
    """A body that a form may hold; None for bytes that are no text, or that hold what pages hide."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or hides(text) else text


def _body(compensation: Compensation, text: str) -> dict[str, Any]:
    """The body that a form sends: a browser's line ends as they were stored; none where it was not shown."""
    stored = bytes(compensation.body)
    if text_of(stored) is None or compensation.kind_name == RESTORE_FILES:
        return {}
    return {"body": (text if b"\r\n" in stored else text.replace("\r\n", "\n")).encode()}


def _show(
    request: HttpRequest,
    detail: RepairDetail,
    draft: dict[str, str],
    status: int = 200,
    refused: NotDone | None = None,
) -> HttpResponse:
    shell = build_shell(request, "reviews", detail.review.workspace)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "d": detail, "draft": draft, "refused": refused}
    told |= {"may": bool({"resolve", "approve"} & shell.may), "new_action": repair_words.NEW_ACTION}
    shown = text_of(bytes(detail.repair.body)) is not None
    told |= {"body_shown": shown and detail.repair.kind_name != RESTORE_FILES, "secrets": SECRETS}
    told["files"] = detail.repair.kind_name == RESTORE_FILES
    return render(request, "reviews/edit.html", told, status=status)


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").replace("\0", "")
