"""The people of a workspace: all members read the list, admins add, change and remove."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from dashboard import words
from dashboard.pages.shell import actor_of, address, build_shell, person_of, signed_in, workspace_of
from runs import access, people
from runs.models import Membership, Role, Workspace
from runs.people import MayNotCome

SHOWN = 200
ROLES: dict[str, str] = {
    Role.VIEWER: "reads runs, evidence and reports",
    Role.OPERATOR: "also stops runs, and starts the demo",
    Role.REVIEWER: "as an operator, and decides what needs a second person",
    Role.ADMIN: "as a reviewer, and manages people, tokens and kinds",
}


@dataclass(frozen=True)
class Typed:
    """What the form held when it could not be done, and why."""

    email: str
    name: str
    role: str
    error: str


class People:
    """The members that match `q`, by name. `admins`: how many there are in all."""

    def __init__(self, workspace: Workspace, q: str) -> None:
        self.q = q.replace("\0", "")[:200]
        mine = Membership.objects.filter(workspace=workspace).select_related("user")
        found = mine.filter(Q(user__name__icontains=self.q) | Q(user__email__icontains=self.q))
        self.rows = list(found.order_by("user__name", "user__email")[:SHOWN])
        self.total = found.count()


@never_cache
@require_http_methods(["GET", "POST"])
@signed_in
@sensitive_variables()
def people_page(request: HttpRequest) -> HttpResponse:
    """GET /people : the list. POST: a new member; a first password stands in this answer only."""
    workspace = workspace_of(request)
    told: dict[str, Any] = {}
    status = 200
    if request.method == "POST":
        access.demand_workspace(actor_of(request), "admin", workspace.pk)
        told, status = add(request, workspace)
    shell = build_shell(request, "people", workspace)
    told |= {"shell": shell, "now": shell.now, "roles": ROLES}
    told["may_erase"] = person_of(request).is_superuser
    told["list"] = People(workspace, request.GET.get("q", ""))
    return render(request, "people/page.html", told, status=status)


def add(request: HttpRequest, workspace: Workspace) -> tuple[dict[str, Any], int]:
    """What the page tells of a new member, or of why there is none."""
    email, name = request.POST.get("email", "")[:254], words.clean(request.POST.get("name", ""))[:120]
    role = request.POST.get("role", "")
    try:
        added = people.add_member(
            actor=actor_of(request), workspace_id=workspace.pk, email=email, role=role, name=name
        )
    except MayNotCome as error:
        return {"typed": Typed(words.clean(email), name, role, str(error))}, 422
    return {"added": added}, 201


@require_POST
@signed_in
def role_page(request: HttpRequest, user_id: str) -> HttpResponse:
    """POST /people/<id>/role : another role, by an admin."""
    workspace = workspace_of(request)
    wanted = request.POST.get("role", "")
    try:
        member = people.change_role(
            actor=actor_of(request), workspace_id=workspace.pk, user_id=number(user_id), role=wanted
        )
        messages.info(request, f"{words.clean(member.user)} is {member.role} from now on.")
    except MayNotCome as error:
        messages.error(request, f"Nothing was changed. {error}")
    return redirect(address("people", workspace))


@require_http_methods(["GET", "POST"])
@signed_in
def remove_page(request: HttpRequest, user_id: str) -> HttpResponse:
    """/people/<id>/remove : GET says what it would mean, POST removes; for admins."""
    workspace = workspace_of(request)
    access.demand_workspace(actor_of(request), "admin", workspace.pk)
    member = Membership.objects.filter(workspace=workspace, user_id=number(user_id)).first()
    if member is None:
        raise Http404
    if request.method == "POST":
        return remove(request, workspace, member)
    shell = build_shell(request, "people", workspace)
    return render(request, "people/remove.html", {"shell": shell, "now": shell.now, "member": member})


def remove(request: HttpRequest, workspace: Workspace, member: Membership) -> HttpResponse:
    """One verb, and where it leads: the list, or for somebody who left, the front door."""
    actor = actor_of(request)
    try:
        people.remove_member(actor=actor, workspace_id=workspace.pk, user_id=member.user_id)
        messages.info(request, f"{words.clean(member.user)} is no member any more.")
    except MayNotCome as error:
        messages.error(request, f"Nothing was changed. {error}")
    left = actor.user is not None and not access.can_read_workspace(actor.user, workspace.pk)
    return redirect("home" if left else address("people", workspace))


def number(user_id: str) -> int:
    """A person's number from the address; one that nobody has for anything else."""
    return int(user_id) if user_id.isascii() and user_id.isdigit() and len(user_id) < 16 else 0
