"""What every page shares: who looks, at which workspace, at which server time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from importlib.metadata import PackageNotFoundError, version
from typing import Any, overload
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from dashboard import auditing
from dashboard.pages.banner import Banner, banner_of
from effects import review_lists, unknowns
from runs import access
from runs.models import STANDING, Membership, StopRequest, User, Workspace
from runs.store import database_time

NAMED = 99  # so far a number in the menu counts


@dataclass(frozen=True)
class NavItem:
    """One entry of the main navigation; `says` what its number counts."""

    word: str
    href: str
    current: bool
    number: int = 0

    @property
    def says(self) -> str:
        return {"Stops": "in force", "Unknowns": "open"}.get(self.word, "waiting for you")


@dataclass(frozen=True)
class Shell:
    """The frame. `may`: the person's rights in the workspace that is shown; `unknown` counts to NAMED."""

    now: datetime
    who: str
    workspace: Workspace | None
    workspaces: list[Workspace]
    may: frozenset[str]
    nav: list[NavItem]
    release: str
    banner: Banner | None = None
    unknown: int = 0

    @property
    def may_stop(self) -> bool:
        return "stop" in self.may

    @property
    def may_resume(self) -> bool:
        return "resume" in self.may

    @property
    def is_admin(self) -> bool:
        return "admin" in self.may


def release() -> str:
    """The installed version; a checkout that was never installed says so."""
    try:
        return version("allstop")
    except PackageNotFoundError:
        return "from a checkout"


def person_of(request: HttpRequest) -> User:
    """The signed-in person; `signed_in` has seen to it that there is one."""
    assert isinstance(request.user, User)
    return request.user


def actor_of(request: HttpRequest) -> access.Actor:
    """The person as an actor of verbs."""
    return access.person(person_of(request), request.META.get("REMOTE_ADDR", ""))


def build_shell(request: HttpRequest, current: str, workspace: Workspace | None) -> Shell:
    """The frame of a page of `workspace` (None: the first one the person belongs to)."""
    user = person_of(request)
    mine = Membership.objects.filter(user=user).select_related("workspace").order_by("workspace__name")
    members = sorted(mine, key=lambda member: member.workspace.slug == access.DRILLS)
    spaces = [member.workspace for member in members]
    shown = workspace or (spaces[0] if spaces else None)
    role = next((m.role for m in members if shown and m.workspace_id == shown.pk), None)
    may = access.ROLE_MAY[role] if role else frozenset[str]()
    unknown = unknowns.count(shown.pk, most=NAMED) if shown else 0
    return Shell(
        now=database_time(),
        who=str(user),
        workspace=shown,
        workspaces=spaces,
        may=may,
        nav=_nav(current, shown, unknown, _reviews(user, shown, may), "admin" in may or user.is_superuser),
        release=release(),
        banner=banner_of(shown, may),
        unknown=unknown,
    )


def _nav(
    current: str, workspace: Workspace | None, unknown: int, waiting: int, audits: bool
) -> list[NavItem]:
    """`waiting`: how many reviews wait for this person; who proposed something follows it there too."""
    entries = [("home", "Overview", 0), ("runs", "Runs", 0), ("stops", "Stops", _standing(workspace))]
    entries += [("unknowns", "Unknowns", unknown)]
    entries += [("reviews", "Reviews", waiting)]
    entries += [("reports", "Reports", 0)]
    entries += [("first-run", "First run", 0), ("people", "People", 0), ("tokens", "Tokens", 0)]
    entries += [("measures", "Measures", 0), ("notices", "Notices", 0), ("drills", "Drills", 0)]
    entries += [("audit", "Audit", 0)] if audits else []
    return [NavItem(word, address(name, workspace), name == current, n) for name, word, n in entries]


def _standing(workspace: Workspace | None) -> int:
    """How many stops stand in it, as far as a menu counts; an index holds just those."""
    if workspace is None:
        return 0
    rows = StopRequest.objects.filter(workspace=workspace, scope__in=STANDING, run__isnull=True)
    return rows.filter(released_at__isnull=True, closed_at__isnull=True)[:NAMED].count()


def _reviews(user: User, workspace: Workspace | None, may: frozenset[str]) -> int:
    """None wait for those who may not review."""
    return review_lists.count_for(user, workspace.pk) if workspace and "approve" in may else 0


def address(name: str, workspace: Workspace | None) -> str:
    """The address of a workspace's page, which names the workspace."""
    return reverse(name, query={"workspace": workspace.slug} if workspace else None)


def page(
    request: HttpRequest, template: str, *, current: str, workspace: Workspace | None = None, **context: Any
) -> HttpResponse:
    """Render a page inside the frame."""
    shell = build_shell(request, current, workspace)
    return render(request, template, {"shell": shell, "now": shell.now, **context})


def workspace_of(request: HttpRequest) -> Workspace:
    """The workspace that the query names, else the person's first; a foreign one does not exist."""
    mine = access.workspaces_of(person_of(request))
    slug = request.GET.get("workspace")
    found = next((space for space in mine if slug in (None, space.slug)), None)
    if found is None:
        raise Http404
    return found


View = Callable[..., HttpResponseBase]


@overload
def signed_in(view: View) -> View: ...
@overload
def signed_in(*, first_password: bool) -> Callable[[View], View]: ...
def signed_in(view: View | None = None, *, first_password: bool = False) -> Any:
    """For people only. A region or script is told 401; a page leads to the sign-in and back.

    Who was given a password chooses their own first; `first_password`: this view is where.
    """
    if view is None:
        return partial(signed_in, first_password=first_password)
    inner = view

    @wraps(inner)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user
        if isinstance(user, User) and (first_password or not user.password_once):
            return checked(inner)(request, *args, **kwargs)
        if request.headers.get("HX-Request") or wants_json(request):
            return JsonResponse({"detail": "Sign in first."}, status=401)
        where = "password" if user.is_authenticated else "account_login"
        return redirect(f"{reverse(where)}?{urlencode({'next': request.get_full_path()})}")

    return guarded


def checked(view: View) -> View:
    """What a person may not know of does not exist (404); what the role forbids is forbidden (403)."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            answer = view(request, *args, **kwargs)
        except (access.NotFound, Http404) as absent:
            auditing.refused_page(request, absent)
            raise Http404 from absent
        except (access.NotAllowed, PermissionDenied) as denied:
            auditing.refused_page(request, denied)
            raise PermissionDenied from denied
        auditing.left(request, answer)
        return answer

    return guarded


def sign_in_url(path: str) -> str:
    """The sign-in that comes back to `path`."""
    return f"{reverse('account_login')}?{urlencode({'next': path})}"


def wants_json(request: HttpRequest) -> bool:
    """Whether a script asks, and not a person."""
    return request.headers.get("Accept", "").startswith("application/json")


def is_region(request: HttpRequest) -> bool:
    """Whether a live region fetches itself: it gets its fragment, not the page around it."""
    return request.headers.get("HX-Request") == "true"
