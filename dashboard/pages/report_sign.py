"""Signing a report: a form is read, the verb called, and what came is said above the version."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from dashboard import words
from dashboard.pages.report import number_of
from dashboard.pages.shell import actor_of, signed_in
from dashboard.reports.signed import says
from dashboard.reports.signing import NOTE_MAX, NotSigned, Signed, sign_off
from runs import access


@never_cache
@require_POST
@signed_in
def sign(request: HttpRequest, run_id: str) -> HttpResponse:
    """POST /runs/<id>/report/sign : I have read version n, with this digest."""
    actor = actor_of(request)
    access.find_run(actor, run_id)
    version = number_of(request.POST.get("version", ""))
    told = sign_off(
        actor=actor,
        run_id=run_id,
        version=version,
        digest=request.POST.get("digest", ""),
        note=words.clean(request.POST.get("note", ""))[:NOTE_MAX],
    )
    if isinstance(told, NotSigned):
        messages.error(request, f"Nothing was signed. {told.sentence}")
    else:
        messages.info(request, _said(told))
    return redirect(f"{reverse('report', args=[run_id])}?version={version}#signatures")


def _said(told: Signed) -> str:
    row = told.row
    if told.again:
        return f"You had signed version {row.version} before, {words.moment_utc(row.at)}. Nothing was added."
    return f"Signed: {says(row.version, row.newest, row.open_items)}"
