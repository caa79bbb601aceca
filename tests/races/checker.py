"""The one question of every race: did something start that no stop knows of?"""

from __future__ import annotations

from dataclasses import dataclass

from runs.models import Evidence, InFlight, Permit, StopRequest

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
    """Over all runs of a workspace. A violation is counted once for each stop that does not know of it."""
    stops = list(
        StopRequest.objects.filter(workspace_id=workspace_id, run__isnull=False, finished_before=False)
    )
    ended = {stop.run_id: stop for stop in stops}
    rows = Permit.objects.filter(run_id__in=ended).values_list("pk", "run_id", "seen_version")
    listed = set(InFlight.objects.filter(stop__in=stops).values_list("stop_id", "permit_id"))
    before = _ended_before(stops)
    unlisted = known = over = 0
    for permit, run, version in rows:
        stop = ended[run]
        if (stop.pk, permit) in listed:
            known += 1
        elif (stop.pk, permit) in before:
            over += 1
        elif version <= (stop.version_before or version):
            unlisted += 1
    permits = Permit.objects.filter(run__workspace_id=workspace_id).count()
    return Verdict(unlisted, known, over, len(stops), permits)


def _ended_before(stops: list[StopRequest]) -> set[tuple[str, str]]:
    """(stop, permit) where the permit's end stands before the fence in the evidence of the run."""
    lines = Evidence.objects.filter(stream__in=[stop.run_id for stop in stops])
    fences = dict(lines.filter(kind="stop.fenced").values_list("stop_id", "seq"))
    of_run = {stop.run_id: stop.pk for stop in stops}
    ends = lines.filter(kind__in=ENDED).values_list("stream", "permit_id", "seq")
    return {(of_run[stream], permit) for stream, permit, seq in ends if seq < fences.get(of_run[stream], 0)}
