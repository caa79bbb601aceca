"""Reviews: what waits for people before it is sent, and the page on which one is decided."""

from __future__ import annotations

import time
from datetime import datetime
from typing import cast
from urllib.parse import urlencode

from allauth.account.authentication import get_authentication_records
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from dashboard import repair_words, words
from dashboard.pages import halts
from dashboard.pages.repair_review import RepairDetail
from dashboard.pages.review_facts import Detail, Lists, compensation_of, with_compensations
from dashboard.pages.shell import actor_of, build_shell, is_region, person_of, signed_in, workspace_of
from effects import approvals
from effects.approvals import Decided, NotDecided
from effects.models import Review
from effects.review_tables import Subject
from runs import access, redaction
from runs.evidence import topics_of

SAID: dict[str, str] = {
    "approved": "Your approval is recorded. {left} more needed before it may be sent.",
    "granted": "Approved. Its step is queued; the gate looks again before anything is sent.",
    "kept": "Approved. The run is held, so this starts nothing. It is looked at again at its resume.",
    "rejected": "Rejected. It is not sent, and whoever asked is told why.",
    "revoked": "Your approval is taken back.",
}
QUEUED = "Approved, and queued: the gate looks once more before it is sent."

# A one-time link shows who holds the machine, not who the person is: it does not count as a fresh sign-in.
CHOOSE_ONE = "Nothing was decided. You have no password yet: choose one under Password, then approve."


@require_GET
@signed_in
def reviews_page(request: HttpRequest) -> HttpResponse:
    """GET /reviews : what waits for you, what waits for others, what was decided last; or that region."""
    workspace = workspace_of(request)
    shell = build_shell(request, "reviews", workspace)
    lists = Lists(workspace, person_of(request), may_approve="approve" in shell.may)
    told = {"shell": shell, "now": shell.now, "lists": lists, "region": is_region(request)}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "halts": halts.in_force(workspace.pk)}
    return render(request, "reviews/_list.html" if is_region(request) else "reviews/page.html", told)


@never_cache
@require_GET
@signed_in
def review_page(request: HttpRequest, review_id: str) -> HttpResponse:
    """GET /reviews/<id> : what would be sent, who said what, and what you may do; or its live region."""
    review = find(request, review_id)
    shell = build_shell(request, "reviews", review.workspace)
    detail = detail_of(review, actor_of(request), shell.now, signed_in_s(request))
    told = {"shell": shell, "now": shell.now, "d": detail, "topic": topics_of(review.run)[0]}
    told["new_action"] = repair_words.NEW_ACTION
    told |= {"may": "approve" in shell.may, "region": is_region(request)}
    told["comment"] = words.clean(request.GET.get("comment", ""))[: approvals.TEXT_MAX]
    return render(request, "reviews/_review.html" if is_region(request) else "reviews/review.html", told)


def detail_of(review: Review, actor: access.Actor, now: datetime, ago: float | None) -> Detail:
    """What the page of this review tells: of an effect before it is sent, or of a compensation."""
    compensation = compensation_of(review)
    if compensation is None:
        return Detail(review, actor, now, ago)
    return RepairDetail(review, compensation, actor, now, ago)


def find(request: HttpRequest, review_id: str) -> Review:
    """The review with what it is about, for members of its workspace; NotFound for everybody else."""
    rows = Review.objects.select_related("effect__kind", "run__owner", "workspace").filter(pk=review_id)
    review = rows.first()
    if review is None:
        raise access.NotFound("review")
    access.demand(actor_of(request), "read", review.run)
    return cast(Review, with_compensations([review])[0])


@require_POST
@signed_in
def approve(request: HttpRequest, review_id: str) -> HttpResponse:
    """POST /reviews/<id>/approve : with the digest that was shown. An old sign-in asks for the password."""
    comment = request.POST.get("comment", "").replace("\0", "")
    told = approvals.approve(
        actor=actor_of(request),
        review_id=review_id,
        digest=request.POST.get("digest", ""),
        signed_in_s=signed_in_s(request),
        comment=comment,
    )
    if isinstance(told, NotDecided) and told.reason == "sign-in":
        if not person_of(request).has_usable_password():
            messages.error(request, CHOOSE_ONE)
            return redirect("review", review_id)
        back = with_comment(review_id, comment)
        return redirect(f"{reverse('account_reauthenticate')}?{urlencode({'next': back})}")
    return say(request, told, comment)


@require_POST
@signed_in
def reject(request: HttpRequest, review_id: str) -> HttpResponse:
    """POST /reviews/<id>/reject : with a reason."""
    reason = request.POST.get("reason", "").replace("\0", "")
    return say(request, approvals.reject(actor=actor_of(request), review_id=review_id, reason=reason))


@require_POST
@signed_in
def revoke(request: HttpRequest, review_id: str) -> HttpResponse:
    """POST /reviews/<id>/revoke : one's own approval."""
    reason = request.POST.get("reason", "").replace("\0", "")
    return say(request, approvals.revoke(actor=actor_of(request), review_id=review_id, reason=reason))


def with_comment(review_id: str, comment: str) -> str:
    """The review's page, with a comment that was written and not used: no secret, addresses are logged."""
    kept = urlencode({"comment": redaction.text(comment)[: approvals.TEXT_MAX]}) if comment else ""
    return f"{reverse('review', args=[review_id])}{'?' if kept else ''}{kept}"


def say(request: HttpRequest, told: Decided | NotDecided, draft: str = "") -> HttpResponse:
    """What it came to, in words, on the review's page; where nothing was decided the draft is kept."""
    if isinstance(told, NotDecided):
        messages.error(request, f"Nothing was decided. {told.sentence}")
        return redirect(with_comment(told.review.pk, draft))
    messages.info(request, said(told))
    return redirect("review", told.review.pk)


def said(told: Decided) -> str:
    """One sentence: what was decided, and what that starts."""
    if told.answer == "granted" and told.started and told.review.subject == Subject.COMPENSATION:
        return QUEUED
    kept = told.answer == "granted" and not told.started
    left = told.review.needed - told.review.approvals.filter(state="GIVEN").count()
    return SAID["kept" if kept else told.answer].format(left=left)


def signed_in_s(request: HttpRequest) -> float | None:
    """How many seconds ago this session last asked for the password; None when it never did."""
    records = get_authentication_records(request, person_of(request))
    moments = [float(record["at"]) for record in records if record.get("at")]
    return max(0.0, time.time() - max(moments)) if moments else None
