"""The files of a run: what its effects put where, and what is there now."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from dashboard.pages.shell import actor_of, page, signed_in
from effects.models import Effect, Provider
from effects.providers import workspace
from effects.providers.workspace import State
from runs import access
from runs.models import OperationClass, Run

EFFECTS_MAX = 50
SAYS = {
    "written": ("Written", "there as it was written"),
    "changed since": ("Written", "changed since it was written"),
    "gone since": ("Written", "no longer there"),
    "left behind": ("Not put in its place", "a staged copy is left behind"),
    "not written": ("Not written", "nothing of it is there"),
}


@dataclass(frozen=True)
class FileRow:
    """One file of the manifest, and both words on it: what the effect did, what is there now."""

    path: str
    size: int
    sha256: str
    did: str
    now: str


@dataclass(frozen=True)
class Change:
    """One effect that writes files. `why_not`: why there is no list."""

    effect: Effect
    rows: list[FileRow] = field(default_factory=list)
    why_not: str = ""

    @property
    def happened(self) -> int:
        return sum(row.did == "Written" for row in self.rows)


@require_GET
@signed_in
def files_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """GET /runs/<id>/files : the newest fifty effects that change files, inspected now."""
    run = access.find_run(actor_of(request), run_id)
    context = {"run": run, "changes": changes_of(run), "most": EFFECTS_MAX}
    return page(request, "run/files.html", current="runs", workspace=run.workspace, **context)


def changes_of(run: Run) -> list[Change]:
    """What the disk says of each; one query, and at most 200 files of each effect."""
    rows = Effect.objects.filter(run=run, op_class=OperationClass.WORKSPACE_CHANGE)
    newest = rows.select_related("kind").defer("body").order_by("-pk")[:EFFECTS_MAX]
    return [change_of(effect, run) for effect in newest]


def change_of(effect: Effect, run: Run) -> Change:
    """One effect of the run, with its kind: what it did to files, and what is there now."""
    effect.run = run
    if effect.kind is None or effect.kind.provider != Provider.WORKSPACE:
        return Change(effect, why_not="Its agent wrote these files itself; they can’t be seen from here.")
    try:
        states = workspace.states_of(effect)
    except OSError as error:
        return Change(effect, why_not=f"The folder could not be read: {error.strerror}.")
    return Change(effect, [_row(state) for state in states], "" if states else "No attempt to write began.")


def _row(state: State) -> FileRow:
    did, now = SAYS[state.state]
    return FileRow(state.path, state.size, state.sha256, did, now)
