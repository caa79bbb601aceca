"""A Ledger of two hundred runs, most of them Dana's, who only reads: rows for a bulk stop of mixed result."""

from __future__ import annotations

from typing import Any

from runs import stops
from runs.models import Membership, Role, Run, Session
from runs.stops import Wish
from tests.worlds import World, a_workspace

MINE, OVER, STOPPING, THEIRS = 120, 30, 10, 40


def ledger_of(world: World) -> dict[str, Any]:
    """Set-based, but for those that are stopping already."""
    workspace = a_workspace("Ledger")
    dana = world.dana.user
    for user, role in ((world.alice.user, Role.OPERATOR), (dana, Role.VIEWER)):
        assert user is not None
        Membership.objects.create(user=user, workspace=workspace, role=role)
    session = Session.objects.create(workspace=workspace, key="nightly")
    nightly: dict[str, Any] = {"session": session, "session_epoch": session.epoch}

    def rows(what: str, number: int, **fields: Any) -> list[Run]:
        made = (
            Run(workspace=workspace, key=f"{what}-{n}", name=f"{what}-{n}", parameters_digest="", **fields)
            for n in range(number)
        )
        return list(Run.objects.bulk_create(made))

    mine = {**nightly, "owner": dana}
    rows("mine", MINE, **mine)
    rows("over", OVER, status="COMPLETED", **mine)
    for run in rows("stopping", STOPPING, **mine):
        stops.request_stop(actor=world.alice, wish=Wish(mode="pause"), run_id=run.pk)
    rows("theirs", THEIRS, **nightly)
    rows("apart", 5, owner=dana)
    return {"ledger": workspace.slug}
