"""The audit: who did what in a workspace, and who was refused; for its admins. The installation's own, for
those who run it. Its chain can be checked here, and taken away to be checked elsewhere."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from dashboard import verify
from dashboard.packs.lines import lines_answer
from dashboard.pages.audit_list import GROUPS, Asked, AuditList
from dashboard.pages.shell import actor_of, page, person_of, signed_in, workspace_of
from runs import access, everywhere
from runs.access import NotFound, demand_workspace
from runs.audit import INSTALLATION
from runs.evidence import last_line
from runs.models import Evidence, Membership, Token, Workspace

CHECKED = 100_000  # lines that a page goes through; beyond that the command does
NAMED = 200


def home_of(request: HttpRequest) -> Workspace | None:
    """Whose audit is asked for, None for the installation's. Raises NotFound, NotAllowed, Http404."""
    actor = actor_of(request)
    wants = request.GET.get("stream")
    alone = not request.GET.get("workspace") and not access.workspaces_of(person_of(request))
    if wants == INSTALLATION or (wants is None and alone):
        if not everywhere.runs_it_all(actor):
            raise NotFound("stream")
        return None
    workspace = workspace_of(request)
    demand_workspace(actor, "admin", workspace.pk)
    return workspace


@never_cache
@require_GET
@signed_in
def audit_page(request: HttpRequest) -> HttpResponse:
    """GET /audit?workspace=<slug>|stream=installation&kind=&who=&since=&until=&before=&verify=1"""
    asked = Asked.read(home_of(request), request.GET)
    told: dict[str, Any] = {"asked": asked, "groups": {key: label for key, (label, _) in GROUPS.items()}}
    told |= {"list": AuditList(asked), "people": who_can_be_asked_for(asked.workspace)}
    told["runs_it_all"] = everywhere.runs_it_all(actor_of(request))
    if request.GET.get("verify"):
        told["chain"] = Chain(asked.stream)
    return page(request, "audit/page.html", current="audit", workspace=asked.workspace, **told)


@never_cache
@require_GET
@signed_in
def audit_jsonl(request: HttpRequest) -> HttpResponseBase:
    """GET /audit.jsonl : the whole stream; a chain with holes could not be followed."""
    workspace = home_of(request)
    name = workspace.slug if workspace else INSTALLATION
    return lines_answer(workspace.pk if workspace else INSTALLATION, f"{name}-audit.jsonl")


def who_can_be_asked_for(workspace: Workspace | None) -> list[tuple[str, str]]:
    """Actor ids and names: the members, and tokens, newest first; of others a link on their lines."""
    if workspace is None:
        return []
    members = Membership.objects.filter(workspace=workspace).select_related("user").order_by("user__name")
    tokens = Token.objects.filter(workspace=workspace).order_by("-pk")[:NAMED]
    named = [(f"user:{member.user_id}", str(member.user)) for member in members[:NAMED]]
    return named + [(f"token:{token.pk}", f"token “{token.name}”, …{token.pk[-6:]}") for token in tokens]


class Chain:
    """What checking the chain of a stream came to."""

    def __init__(self, stream: str) -> None:
        self.stream, self.lines = stream, last_line(stream)
        self.too_long = self.lines > CHECKED
        if self.too_long:
            return
        self.verdict = verify.verify(stream)
        self.lines = self.verdict.lines
        sealed = Evidence.objects.filter(stream=stream, seq=self.verdict.sealed_upto)
        self.upto = sealed.values_list("at", flat=True).first()

    @property
    def entries(self) -> str:
        """12 431 entries."""
        return f"{self.lines:,} entr{'y' if self.lines == 1 else 'ies'}".replace(",", "\u202f")
