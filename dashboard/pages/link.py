"""A one-time link: opening it shows whom it lets in; the button lets them in. Looking uses nothing up."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from dashboard import words
from dashboard.pages.errors import failed
from runs import links

BY_LINK = "came_by_link"  # in the session: this person may choose a password without the old one
BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


@never_cache
@require_http_methods(["GET", "POST"])
@sensitive_variables("text")
def link_page(request: HttpRequest, text: str) -> HttpResponse:
    """/sign-in/link/<text> : GET asks, so that whatever fetches links ahead signs nobody in; POST does it."""
    if request.method != "POST":
        person = links.person_of_link(text)
        if person is None:
            return over(request)
        return render(request, "account/link.html", {"who": words.clean(person)})
    person = links.use_link(text=text, address=request.META.get("REMOTE_ADDR", ""))
    if person is None:
        return over(request)
    login(request, person, BACKEND)
    request.session[BY_LINK] = True
    return redirect("home")


def over(request: HttpRequest) -> HttpResponse:
    """The same page for a link that was used, is too old, was changed or never was one."""
    return failed(
        request,
        410,
        "This link is over",
        "It works once, and within ten minutes. Whoever runs this installation can make another: "
        "manage.py signin EMAIL.",
        say="A link that lets you in should not lie about.",
        href="/sign-in",
        link="Sign in with a password",
    )
