"""The unknowns desk: the list, one item beside it, and what people attached."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from dashboard.pages.shell import (
    Shell,
    actor_of,
    build_shell,
    is_region,
    person_of,
    signed_in,
    workspace_of,
)
from dashboard.pages.unknown_desk import Asked, Desk
from dashboard.pages.unknown_draft import Draft, taken_draft
from dashboard.pages.unknown_item import Item
from dashboard.pages.unknown_subject import Subject
from effects import unknowns
from effects.models import Attachment
from effects.unknowns import Unknown
from runs import access
from runs.models import Workspace

TEMPLATES = {"list": "unknowns/_list.html", "head": "unknowns/_head.html", "item": "unknowns/_state.html"}


@never_cache
@require_GET
@signed_in
def unknowns_page(request: HttpRequest) -> HttpResponse:
    """GET /unknowns : the list, and on a wide screen its first item; or a live region (?part=)."""
    return show(request, workspace_of(request))


@never_cache
@require_GET
@signed_in
def unknown_page(request: HttpRequest, subject_id: str) -> HttpResponse:
    """GET /unknowns/<id> : one item, unknown or known by now, beside the list; or a live region (?part=)."""
    found = unknowns.find(subject_id, actor_of(request))
    return show(request, found.run.workspace, found)


def show(
    request: HttpRequest,
    workspace: Workspace,
    found: Unknown | None = None,
    *,
    draft: Draft | None = None,
    status: int = 200,
) -> HttpResponse:
    """The page, or the region that was asked for. `draft`: a form that could not be recorded."""
    shell = build_shell(request, "unknowns", workspace)
    asked = Asked.read(workspace, person_of(request), request.GET)
    part = request.GET.get("part", "") if is_region(request) else ""
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "asked": asked, "region": bool(part)}
    told |= {"topic": f"workspace:{workspace.pk}:runs", "may_resolve": "resolve" in shell.may}
    beside = request.GET.get("beside") == "1"  # the region of the list's first item, not of a page of its own
    told |= {"item": found.id if found and not beside else ""}
    if part != "item":
        told["desk"] = Desk(asked, shell.now, shell.unknown, told["item"])
    if not part:
        told |= {"kinds": told["desk"].kinds, "people": told["desk"].people, "me": str(asked.user.pk)}
    if part not in ("list", "head"):
        told |= _item(request, shell, asked, found or _first(told), draft, alone=bool(told["item"]))
    return render(request, TEMPLATES.get(part, "unknowns/page.html"), told, status=status)


def _first(told: dict[str, Any]) -> Unknown | None:
    rows = told["desk"].rows
    return rows[0].s.u if rows else None


def _item(
    request: HttpRequest,
    shell: Shell,
    asked: Asked,
    found: Unknown | None,
    draft: Draft | None,
    *,
    alone: bool,
) -> dict[str, Any]:
    """The item, and the form with what somebody typed into it before."""
    if found is None:
        return {"d": None}
    item = Item(Subject(found, shell.now), actor_of(request), shell.may)
    if not is_region(request):
        draft = draft or taken_draft(request, found.id)
    return {
        "d": item,
        "draft": draft or Draft(seen=item.newest),
        "item_region": asked.address(found.id, part="item", beside="" if alone else "1"),
        "desk_href": asked.address(),
    }


@never_cache
@require_GET
@signed_in
def attachment(request: HttpRequest, attachment_id: str) -> HttpResponse:
    """GET /unknowns/attachments/<id> : a file that somebody attached, as a download and nothing else."""
    found = Attachment.objects.select_related("run").filter(pk=attachment_id, form="file").first()
    if found is None:
        raise Http404
    access.demand(actor_of(request), "read", found.run)
    answer = HttpResponse(bytes(found.content), content_type="application/octet-stream")
    answer["Content-Disposition"] = content_disposition_header(True, found.file_name or "attachment") or ""
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
