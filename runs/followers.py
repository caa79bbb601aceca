"""What other rooms do at a stop, in its own transaction; they register when they load.

A stop of one run calls each of them for that run. A chunk of a scope stop asks first which of its runs they
have anything to do with, in one query each, and calls them for those alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .access import Actor
from .evidence import Line
from .models import Run, StopRequest

# Also of a finished run. They return the lines of it, and touch no run or step.
Follower = Callable[[Run, StopRequest, Actor], list[Line]]
# What is done about the children of a run when a press joins the stop that is there (runs/children.py).
Joiner = Callable[[Run, StopRequest], None]
Concerned = Callable[[Sequence[str], StopRequest], Iterable[str]]
Many = Callable[[Mapping[str, StopRequest], StopRequest, Actor], Mapping[str, list[Line]]]


@dataclass(frozen=True)
class _Registered:
    call: Follower
    concerned: Concerned | None
    many: Many | None


_followers: list[_Registered] = []
_joiners: list[tuple[Joiner, Concerned | None]] = []


def follow(follower: Follower, concerned: Concerned | None = None, many: Many | None = None) -> None:
    """Have `follower` called, under the run's lock, for each stop that is recorded; registered once.

    In a chunk of a scope stop it is called for the runs that `concerned(run_ids, scope_stop)` names; or
    `many(stops by run id, scope_stop, actor)` is, once for all, and returns the lines by run id.
    """
    if all(one.call is not follower for one in _followers):
        _followers.append(_Registered(follower, concerned, many))


def join(joiner: Joiner, concerned: Concerned | None = None) -> None:
    """Have `joiner` called, under the run's lock, for each press that joins a stop; registered once."""
    if all(one is not joiner for one, _ in _joiners):
        _joiners.append((joiner, concerned))


def followed(run: Run, stop: StopRequest, actor: Actor) -> list[Line]:
    """What the others do at this stop, which may be one of a scope; the lines of it."""
    return [line for one in _followers for line in one.call(run, stop, actor)]


def joined(run: Run, stop: StopRequest) -> None:
    """What the others do when a press joins this stop."""
    for joiner, _ in _joiners:
        joiner(run, stop)


def followed_all(
    runs: Sequence[Run], stops: Mapping[str, StopRequest], scope_stop: StopRequest, actor: Actor
) -> dict[str, list[Line]]:
    """What the others do at these stops, by run id, of a chunk whose runs are all locked."""
    lines: dict[str, list[Line]] = defaultdict(list)
    for one in _followers if runs else ():
        if one.many is not None:
            for run_id, told in one.many(stops, scope_stop, actor).items():
                lines[run_id] += told
            continue
        for run in _those(runs, one.concerned, scope_stop):
            lines[run.pk] += one.call(run, stops[run.pk], actor)
    return lines


def joined_all(runs: Sequence[Run], stops: Mapping[str, StopRequest], scope_stop: StopRequest) -> None:
    """What the others do when a scope stop joins the stops of these runs."""
    for joiner, concerned in _joiners if runs else ():
        for run in _those(runs, concerned, scope_stop):
            joiner(run, stops[run.pk])


def _those(runs: Sequence[Run], concerned: Concerned | None, scope_stop: StopRequest) -> Sequence[Run]:
    if concerned is None:
        return runs
    ids = set(concerned([run.pk for run in runs], scope_stop))
    return [run for run in runs if run.pk in ids]
