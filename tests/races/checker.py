"""The one question of every race: did something start that no stop knows of?"""

from __future__ import annotations

from dataclasses import dataclass

from runs.models import Evidence, InFlight, Permit, Policy, Run, StopRequest

ENDED = ("permit.reported", "permit.not_sent", "permit.lost")


@dataclass(frozen=True)
class Verdict:
    """`unlisted`: opened under a version that a stop ended, not in its list and not ended before it."""

    unlisted: int
    listed: int
    ended_before: int
    stops: int
    permits: int


def verdict(workspace_id: str) -> Verdict:
    """Over all runs of a workspace, each of which was stopped at most once."""
    stops = StopRequest.objects.filter(workspace_id=workspace_id, run__isnull=False, finished_before=False)
    ended = {stop.run_id: stop for stop in stops}
    permits = Permit.objects.filter(run__workspace_id=workspace_id)
    listed = set(InFlight.objects.filter(stop__in=stops).values_list("permit_id", flat=True))
    before = _ended_before(workspace_id)
    unlisted = known = over = 0
    for permit, run, version in permits.values_list("pk", "run_id", "seen_version"):
        if run not in ended:
            continue
        if permit in listed:
            known += 1
        elif permit in before:
            over += 1
        elif version <= (ended[run].version_before or version):
            unlisted += 1
    return Verdict(unlisted, known, over, len(ended), permits.count())


def _ended_before(workspace_id: str) -> set[str]:
    """The permits whose end stands before the fence in the evidence of their run."""
    runs = Run.objects.filter(workspace_id=workspace_id).values("pk")
    lines = Evidence.objects.filter(stream__in=runs)
    fences = dict(lines.filter(kind="stop.fenced").values_list("stream", "seq"))
    ends = lines.filter(kind__in=ENDED).values_list("stream", "permit_id", "seq")
    return {permit for stream, permit, seq in ends if seq < fences.get(stream, 0)}


def active_under_a_shut_gate(workspace_id: str) -> list[str]:
    """The keys of runs that could still start something, if only their own row were asked. Once every stop
    of the workspace is fenced there is none.
    """
    rules = Policy.objects.filter(workspace_id=workspace_id, gate="SHUT", reach="runs")
    shut = [rule.match["labels"] for rule in rules]
    runs = Run.objects.filter(workspace_id=workspace_id, status="ACTIVE").select_related(
        "workspace", "session"
    )
    return [
        run.key
        for run in runs.order_by("key")
        if run.workspace.gate == "SHUT"
        or (run.session is not None and run.session.gate == "SHUT")
        or any(labels.items() <= run.labels.items() for labels in shut)
    ]
