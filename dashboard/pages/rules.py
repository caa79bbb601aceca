"""The rules of a workspace: everybody in it reads them, admins change them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from dashboard import retention, words
from dashboard.pages.facts import name_actors
from dashboard.pages.shell import actor_of, address, build_shell, signed_in, workspace_of
from runs import rules
from runs.fields import Class
from runs.models import Workspace
from runs.rules import Retention, Rules, RulesChanged, Standing

SPARE = 2  # empty rows for new approval rules
MINUTE = 60
CLASSES = [(name, words.CLASS[name]) for name in get_args(Class) if name != "approval_wait"]
OUTPUTS = {
    "keep": "Keep its text with the run; everybody who reads the run can read it",
    "drop": "Drop its text; keep its size and digest",
}
SILENT = {
    "": "Record nothing; it stands under Needs you",
    "pause": "Record a stop of mode pause",
    "cancel": "Record a stop of mode cancel",
    "abandon": "Record a stop of mode abandon",
}
POLICIES = {
    "approve": "when people approve it",
    "automatic": "by itself, local files only",
    "never": "never",
}
AFTER_A_STOP = {"no": "no", "yes": "yes"}
COMPENSATION = ("c_kind", "c_policy", "c_approvals", "c_minutes", "c_after", "c_propose")
PROPOSE = {"people": "people and the run’s tokens", "drain": "also when a run comes to rest"}


@require_http_methods(["GET", "POST"])
@signed_in
def rules_page(request: HttpRequest) -> HttpResponse:
    """GET /rules : what is in force. POST: new ones, in the place of those that the form names."""
    workspace = workspace_of(request)
    if request.method != "POST":
        return _show(request, workspace, rules.standing(workspace.pk))
    try:
        wanted = Rules.model_validate(read(request.POST))
    except ValidationError as error:
        said = ["Nothing was changed.", *_sentences(error)]
        return _show(request, workspace, rules.standing(workspace.pk), said, 422)
    return _change(request, workspace, wanted)


def _change(request: HttpRequest, workspace: Workspace, wanted: Rules) -> HttpResponse:
    version = request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else -1
    try:
        put = rules.change_rules(
            actor=actor_of(request), workspace_id=workspace.pk, version=seen, rules=wanted
        )
    except RulesChanged as error:
        said = ["Nothing was changed: somebody else changed the rules meanwhile. This is what is in force."]
        return _show(request, workspace, error.standing, said, 409)
    messages.info(request, f"The rules are in force, as version {put.version}.")
    return redirect(address("rules", workspace))


def read(sent: QueryDict) -> dict[str, Any]:
    """The form's content as rules would hold it; a row that names nothing is no rule."""
    columns = [sent.getlist(name) for name in ("kind", "class", "amount", "approvals", "minutes")]
    rows = [_rule(*row) for row in zip(*columns, strict=False) if any(part.strip() for part in row[:3])]
    mending = [sent.getlist(name) for name in COMPENSATION]
    kinds = [_compensation(*row) for row in zip(*mending, strict=False) if row[0].strip()]
    return {
        "partial_output": sent.get("partial_output"),
        "silent_stop": sent.get("silent_stop") or None,
        "cleanup_classes": sent.getlist("cleanup_classes"),
        "release_by_two": "release_by_two" in sent,
        "forward_stops": "forward_stops" in sent,
        "approvals": rows,
        "compensations": kinds,
        "secret_fields": [
            name for line in sent.get("secret_fields", "").splitlines() if (name := line.strip())
        ],
        "retention": {name: _days(sent.get(f"keep_{name}", "")) for name in Retention.model_fields},
    }


def _days(text: str) -> int | None:
    """Empty keeps it for good; what is no number is none that a rule may hold."""
    return round(_number(text)) if text.strip() else None


def _rule(kind: str, op_class: str, amount: str, approvals: str, minutes: str) -> dict[str, Any]:
    named = {"kind": kind.strip(), "class": op_class or None, "amount": amount.strip()}
    return {**named, "approvals": round(_number(approvals)), "expires_s": round(_number(minutes) * MINUTE)}


def _compensation(
    kind: str, policy: str, approvals: str, minutes: str, after: str, propose: str
) -> dict[str, Any]:
    return {
        "kind": kind.strip(),
        "policy": policy,
        "approvals": round(_number(approvals)),
        "expires_s": round(_number(minutes) * MINUTE),
        "after_a_stop": after == "yes",
        "propose": propose,
    }


def _number(text: str) -> float:
    """A plain number; anything else is one that no rule may hold."""
    return float(text) if re.fullmatch(r"\s*[0-9]{1,6}(\.[0-9]{1,6})?\s*", text) else 0


def _sentences(error: ValidationError) -> Iterable[str]:
    for one in error.errors()[:5]:
        where, *rest = [str(part) for part in one["loc"]]
        row = f", row {int(rest[0]) + 1}" if rest and rest[0].isdigit() else ""
        yield f"{where.replace('_', ' ').capitalize()}{row}: {one['msg']}."


def _show(
    request: HttpRequest,
    workspace: Workspace,
    standing: Standing,
    said: Iterable[str] = (),
    status: int = 200,
) -> HttpResponse:
    shell = build_shell(request, "people", workspace)
    told: dict[str, Any] = {"shell": shell, "now": shell.now, "standing": standing, "said": list(said)}
    told |= {"may": "rules" in shell.may, "outputs": OUTPUTS, "silent": SILENT, "classes": CLASSES}
    told |= {"rows": [*map(_row, standing.rules.approvals), *[{} for _ in range(SPARE)]]}
    told |= {"mending": [*map(_row, standing.rules.compensations), *[{} for _ in range(SPARE)]]}
    told |= {"kept": retention.due(workspace.pk), "secret_fields": "\n".join(standing.rules.secret_fields)}
    told |= {"policies": POLICIES, "after": AFTER_A_STOP, "propose": PROPOSE}
    told["who"] = words.clean(name_actors([standing.changed_by]).get(standing.changed_by, ""))
    return render(request, "rules/page.html", told, status=status)


def _row(rule: rules.ApprovalRule | rules.CompensationRule) -> dict[str, Any]:
    return {**rule.model_dump(), "minutes": f"{rule.expires_s / MINUTE:.10g}"}
