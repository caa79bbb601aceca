"""A person's own password: changed at will, and at the first sign-in in place of the one handed over."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from dashboard.pages.link import BY_LINK
from dashboard.pages.shell import person_of, signed_in
from runs.models import User


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
@signed_in(first_password=True)
def password_page(request: HttpRequest) -> HttpResponse:
    """/password : GET the form, POST the new password. It ends every other sign-in of this person."""
    person = person_of(request)
    knows_none = person.password_once or BY_LINK in request.session
    shown = SetPasswordForm if knows_none else PasswordChangeForm
    form = shown(person, request.POST or None)
    if request.method == "POST" and form.is_valid():
        keep(form.save(commit=False))
        update_session_auth_hash(request, person)
        request.session.pop(BY_LINK, None)
        messages.info(request, "Your password is changed. Any other sign-in of yours has ended.")
        return redirect(onward(request))
    status = 422 if request.method == "POST" else 200
    return render(request, "account/password.html", {"form": form, "next": onward(request)}, status=status)


def keep(person: User) -> None:
    """Write the new hash; the password is the person's own from now on."""
    person.password_once = False
    person.save(update_fields=["password", "password_once"])


def onward(request: HttpRequest) -> str:
    """Where the person was going."""
    wanted = request.GET.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    return wanted if safe else "/"
