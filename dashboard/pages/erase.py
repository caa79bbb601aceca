"""Erasing a person: for superusers, after a second look and a fresh sign-in."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import erasing
from dashboard.pages.people import number
from dashboard.pages.reviews import signed_in_s
from dashboard.pages.shell import actor_of, build_shell, person_of, signed_in, workspace_of
from effects.approvals import FRESH_S
from runs import access
from runs.models import User, Workspace


@require_http_methods(["GET", "POST"])
@signed_in
def erase_page(request: HttpRequest, user_id: str) -> HttpResponse:
    """/people/<id>/erase : GET says what would go, POST erases whom the typed address names."""
    person = User.objects.filter(pk=number(user_id)).first()
    if person is None or not User.objects.filter(pk=request.user.pk or 0, is_superuser=True).exists():
        raise Http404
    if request.method == "POST":
        return _erase(request, person)
    return _show(request, person)


def _erase(request: HttpRequest, person: User) -> HttpResponse:
    signed_in_for = signed_in_s(request)
    if signed_in_for is None or signed_in_for > FRESH_S:
        return redirect(f"{reverse('account_reauthenticate')}?{urlencode({'next': request.path})}")
    if request.POST.get("address", "").strip().lower() != person.email:
        return _show(request, person, "Nothing was changed: that is not their address.", 422)
    try:
        erasing.erase(actor=actor_of(request), user_id=person.pk)
    except erasing.CannotErase as error:
        return _show(request, person, str(type(error).__doc__), 422)
    messages.info(request, "They are a person who was erased.")
    return redirect("people" if _workspace(request) else "home")


def _workspace(request: HttpRequest) -> Workspace | None:
    """Whoever runs the installation may be a member of nothing."""
    return workspace_of(request) if access.workspaces_of(person_of(request)) else None


def _show(request: HttpRequest, person: User, said: str = "", status: int = 200) -> HttpResponse:
    shell = build_shell(request, "people", _workspace(request))
    told = {"shell": shell, "now": shell.now, "person": person, "said": said}
    told |= {"found": erasing.preview(person), "erased": erasing.is_erased(person)}
    told["short"] = 0 < len(person.name) < erasing.SHORTEST
    return render(request, "people/erase.html", told, status=status)
