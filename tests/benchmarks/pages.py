"""G14: pages of much beside pages of little, on one Daphne, beside a view that does nothing.

Each size has a workspace of its own, so that what a page counts grows with it. The three are asked in turns.
"""

from __future__ import annotations

import http.client
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from dashboard import reports
from dashboard.reports.pdf import pdf
from effects.models import Effect, Report
from runs.evidence import last_line
from runs.models import Evidence, EvidencePayload, Membership, Run, Step, User, Workspace
from runs.store import database_time, new_id
from tests.dashboard.test_measures_at_size import many

from .figures import Figure, percentile, timed
from .http import NOOP, _serve
from .memory import _session
from .world import World

LITTLE, MUCH = 10, 10_000
PDF = "pdf, 1,000 effects"
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


def measure(scale: int = 1, case: str = "", times: int = 30) -> Iterator[Figure]:
    """Yields the figures of this database: of the cases whose names hold `case`, each asked so many times."""
    if case in PDF:
        yield _pdf(max(3, times * scale // 3))
    person = World.make().person
    assert person.user is not None
    paths = [(one, *_made(one, person.user)) for one in CASES if case in one.name]
    if not paths:
        return
    _analyse()
    with tempfile.TemporaryDirectory() as folder:
        server, port = _serve(Path(folder))
        try:
            browser = Browser(port, _session(person))
            for one, little, much in paths:
                yield _case(one, browser, little, much, times * scale)
        finally:
            server.terminate()
            server.wait(60)


def _made(case: Case, user: User) -> tuple[str, str]:
    """The address with little and that with much."""
    return _in_its_own(case, user, case.little), _in_its_own(case, user, case.much)


def _in_its_own(case: Case, user: User, size: int) -> str:
    world = World.make()
    Membership.objects.create(user=user, workspace=world.workspace, role="admin")
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


def _pdf(n: int) -> Figure:
    """A report set in type, as CPU seconds of this process and the typesetter; by the clock in the detail."""
    run = _stopped(World.make(), 1_000)
    spent, took = [], []
    for _ in range(n):
        began = _cpu()
        took.append(timed(lambda: pdf(reports.load(run.pk, 1))))
        spent.append(_cpu() - began)
    figure = statistics.median(spent)
    return Figure(
        "pages", PDF, connection.vendor, figure, "s CPU", n, p10=percentile(spent, 0.1),
        p90=percentile(spent, 0.9), goal="≤ 2 s", met=figure <= 2,
        detail={"clock_s": round(statistics.median(took), 2)},
    )  # fmt: skip


def _cpu() -> float:
    """Seconds of this process and of the children that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


# What the pages show -------------------------------------------------------------------------------------


def _lines(run_id: str, n: int, kind: str, key: str = "", after: int = 0) -> None:
    """So many lines with their bodies."""
    seqs = range(after + 1, after + n + 1)
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


def _stopped(world: World, n: int) -> Run:
    """A run that was stopped, with so many effects and its report."""
    run = _a_run(world.workspace, "CANCELLED")
    _effects(run, n, "CONFIRMED")
    _lines(run.pk, n, "effect.confirmed", "effect")
    assert reports.issue(run.pk) is not None
    return run


def _report(world: World, n: int) -> str:
    return f"/runs/{_stopped(world, n).pk}/report"


def _report_list(world: World, n: int) -> str:
    runs = [Run(workspace=world.workspace, key=new_id("key"), name="bench", parameters_digest="",
                status="CANCELLED") for _ in range(n)]  # fmt: skip
    _insert(Run, runs)
    told: dict[str, Any] = {"version": 1, "outcome": "completed", "final": True, "upto_seq": 1}
    _insert(Report, [Report(run=run, body="{}", digest="", **told) for run in runs])
    return f"/reports/?workspace={world.workspace.slug}"


def _audit(world: World, n: int) -> str:
    """After the lines that the workspace has."""
    _lines(world.workspace.pk, n, "policy.changed", after=last_line(world.workspace.pk))
    return f"/audit?workspace={world.workspace.slug}"


def _measures(world: World, n: int) -> str:
    many(world.workspace, n)
    return f"/measures?workspace={world.workspace.slug}"


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
    Case("reports list, 10,000 / 100", "≤ 2× of 100", 2, _report_list, 100, 10_000),
    Case("audit, 10,000 / 100", "≤ 2× of 100", 2, _audit, 100, 10_000),
    Case("measures, 10,000 / 100", "≤ 10× of 100", 10, _measures, 100, 10_000),
    Case("unknowns by amount, 10,000 / 10", "≤ 10× of 10", 10, _unknowns_by_amount),
)
