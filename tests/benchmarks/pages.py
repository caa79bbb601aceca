"""G14: pages of much beside pages of little, on one Daphne, beside a view that does nothing.

Each size has a workspace of its own, so that what a page counts grows with it. The three are asked in turns.
"""

from __future__ import annotations

import http.client
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from dashboard import reports
from effects.models import Effect
from runs.models import Evidence, EvidencePayload, Membership, Run, Step, User, Workspace
from runs.store import database_time, new_id

from .figures import Figure, percentile, timed
from .http import NOOP, _serve
from .memory import _session
from .world import World

LITTLE, MUCH = 10, 10_000
BODY = '{"worker":"w-1","detail":"as it was told"}'


@dataclass
class Case:
    """One page at two sizes; `most` times as long as with little is the goal."""

    name: str
    goal: str
    most: float
    make: Callable[[World, int], str]
    little: int = LITTLE
    much: int = MUCH


class Browser:
    """One keep-alive connection of a signed-in person; every answer is read to its end."""

    def __init__(self, port: int, session: str) -> None:
        self.open = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.headers = {"Cookie": f"sessionid={session}"}

    def get(self, path: str) -> int:
        self.open.request("GET", path, headers=self.headers)
        answer = self.open.getresponse()
        size = len(answer.read())
        assert answer.status == 200, (path, answer.status)
        return size


def measure(scale: int = 1) -> Iterator[Figure]:
    """Yields the figures of this database."""
    person = World.make().person
    assert person.user is not None
    paths = [(case, *_made(case, person.user)) for case in CASES]
    _analyse()
    with tempfile.TemporaryDirectory() as folder:
        server, port = _serve(Path(folder))
        try:
            browser = Browser(port, _session(person))
            for case, little, much in paths:
                yield _case(case, browser, little, much, 30 * scale)
        finally:
            server.terminate()
            server.wait(60)


def _made(case: Case, user: User) -> tuple[str, str]:
    """The address with little and that with much."""
    return _in_its_own(case, user, case.little), _in_its_own(case, user, case.much)


def _in_its_own(case: Case, user: User, size: int) -> str:
    world = World.make()
    Membership.objects.create(user=user, workspace=world.workspace, role="operator")
    return case.make(world, size)


def _analyse() -> None:
    """As the database's own upkeep does within minutes."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _case(case: Case, browser: Browser, little: str, much: str, n: int) -> Figure:
    took: dict[str, list[float]] = {path: [] for path in (NOOP, little, much)}
    sizes = {path: browser.get(path) for path in took}  # the first of each is warm-up
    for _ in range(n):
        for path, each in took.items():
            each.append(timed(lambda path=path: browser.get(path)))  # type: ignore[misc]
    noop, small, large = (statistics.median(each) * 1000 for each in took.values())
    ratio = large / small
    detail = {
        "noop_ms": round(noop, 2),
        "little_over_noop": round(small / noop, 1),
        "much_over_noop": round(large / noop, 1),
        "bytes": [sizes[little], sizes[much]],
    }
    return Figure(
        "pages",
        case.name,
        connection.vendor,
        large,
        "ms",
        n,
        baseline=small,
        ratio=ratio,
        p10=percentile(took[much], 0.1) * 1000,
        p90=percentile(took[much], 0.9) * 1000,
        goal=case.goal,
        met=ratio <= case.most,
        detail=detail,
    )


# What the pages show -------------------------------------------------------------------------------------


def _lines(run_id: str, n: int, kind: str, key: str = "") -> None:
    """So many lines with their bodies."""
    seqs = range(1, n + 1)
    lines = [
        Evidence(stream=run_id, seq=seq, kind=kind, actor="system", effect_key=key and f"{key}-{seq}")
        for seq in seqs
    ]
    _insert(Evidence, lines)
    _insert(EvidencePayload, [EvidencePayload(stream=run_id, seq=seq, body=BODY) for seq in seqs])


def _insert(model: type[Any], rows: list[Any]) -> None:
    """In parts, so that none is a transaction which stands idle for long on a busy machine."""
    for start in range(0, len(rows), 500):
        model.objects.bulk_create(rows[start : start + 500])


def _a_run(workspace: Workspace, status: str = "ACTIVE") -> Run:
    made: Run = Run.objects.create(
        workspace=workspace,
        key=new_id("key"),
        name="bench",
        parameters_digest="",
        status=status,
    )
    return made


def _effects(run: Run, n: int, settlement: str) -> None:
    """Each under a step of its own, with a line of its own."""
    unknown = settlement == "UNKNOWN"
    steps = [
        Step(run=run, key=f"step-{k}", name="pay", op_class="external_write",
             status="UNKNOWN" if unknown else "SUCCEEDED", ends_with_effect=True)
        for k in range(n)
    ]  # fmt: skip
    _insert(Step, steps)
    since, now = "unknown_since" if unknown else "settled_at", database_time()
    effects = [
        Effect(run=run, step=step, kind_name="bench.write", key=f"effect-{k}", op_class=step.op_class,
               title=f"Charge card {k}", amount=f"€{k}.00", settlement=settlement, ground="reported",
               body_digest="", plan_digest="", parameters_digest="", attempt=1,
               why_unknown="the answer was lost" if unknown else "", **{since: now})
        for k, step in enumerate(steps)
    ]  # fmt: skip
    _insert(Effect, effects)


def _run_page(world: World, n: int) -> str:
    run = _a_run(world.workspace)
    _lines(run.pk, n, "step.claimed")
    return f"/runs/{run.pk}/"


def _report(world: World, n: int) -> str:
    run = _a_run(world.workspace, "CANCELLED")
    _effects(run, n, "CONFIRMED")
    _lines(run.pk, n, "effect.confirmed", "effect")
    assert reports.issue(run.pk) is not None
    return f"/runs/{run.pk}/report"


def _run_list(world: World, n: int) -> str:
    world.runs(n)
    return f"/runs/?workspace={world.workspace.slug}"


def _unknowns(world: World, n: int) -> str:
    """Ten runs of them, or each in a run of its own where there are few."""
    for _ in range(10):
        run = _a_run(world.workspace, "UNKNOWN")
        _effects(run, n // 10, "UNKNOWN")
    return f"/unknowns?workspace={world.workspace.slug}"


def _unknowns_by_amount(world: World, n: int) -> str:
    return f"{_unknowns(world, n)}&sort=impact"


CASES = (
    Case("run page, 10,000 events / 10", "≤ 10× of 10", 10, _run_page),
    Case("report, 10,000 effects / 10", "≤ 10× of 10", 10, _report),
    Case("list of runs, 100,000 / 100", "≤ 2× of 100", 2, _run_list, 100, 100_000),
    Case("unknowns, 10,000 / 10", "≤ 2× of 10", 2, _unknowns),
    Case("unknowns by amount, 10,000 / 10", "≤ 10× of 10", 10, _unknowns_by_amount),
)
