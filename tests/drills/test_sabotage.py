"""Builds that break a promise: the drills that are there for it fail, and say where; the others still pass.

Written by hand from what each drill asserts. A build whose gate ignores the version opens permits after a
stop, which the second look then holds back: so the provider's ledger stays clean, and the lines tell. Where
the second look is gone too early, the ledger tells.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from dashboard.drills import engine
from dashboard.drills.engine import Bench, Result
from dashboard.drills.instance import Instance
from dashboard.drills.listed import BY_NAME
from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.processes import Processes

BUILDS = {
    "gate without version": "runs.guard.why_not=tests.drills.sabotage.ignore_the_version",
    "second look removed": "runs.gate.look=tests.drills.sabotage.look_no_more",
    "timeout called cancelled": "effects.close._unsettled=tests.drills.sabotage.call_it_settled",
    "resume that asks nothing": "effects.resume._why_not=tests.drills.sabotage.resume_anyway",
}
# Which drill sees it, and by which of its checks.
SEEN: dict[str, dict[str, str]] = {
    "gate without version": {
        "browser-mid-action": "Lines permit.opened",
        "stop-during-a-read": "Lines dispatch.refused",
        "stop-during-a-local-write": "Permits for the third file",
        "stop-after-a-request-timed-out": "Lines permit.opened",
    },
    "second look removed": {"worker-pauses-after-check": "Requests for stopped at the provider"},
    "timeout called cancelled": {
        "browser-mid-action": "Status of the run",
        "process-dies-after-request": "Status of the run",
        "stop-after-a-request-timed-out": "Status of the run",
    },
    "resume that asks nothing": {"resume-after-a-pause": "A resume while one of them is unknown"},
}
# Which are carried out each time; the long test carries out all that run on an instance that is given.
EACH_TIME = {
    "gate without version": [
        "stop-during-a-read",
        "stop-during-a-local-write",
        "cancel-between-claim-and-dispatch",
    ],
    "second look removed": ["worker-pauses-after-check", "stop-during-a-read"],
    "timeout called cancelled": ["stop-after-a-request-timed-out", "stop-during-an-approval-wait"],
    "resume that asks nothing": ["resume-after-a-pause", "cancel-between-claim-and-dispatch"],
}
ALL = [name for name, drill in BY_NAME.items() if not drill.private]
AT_ONCE = 4


class Builds:
    """A server for each build, and drills on them, several at once: mostly they wait."""

    def __init__(self, folder: Path, template: SqliteTemplate | PostgresqlTemplate) -> None:
        self.folder, self.template, self.ends = folder, template, ExitStack()
        self.started: list[Processes] = []
        self.ends.callback(self.end)
        self.threads = self.ends.enter_context(ThreadPoolExecutor(AT_ONCE))

    def begin(self, build: str) -> Bench:
        """Start the server of this build, with a workspace for drills."""
        folder = self.folder / build.replace(" ", "-")
        folder.mkdir()
        processes = Processes(folder, self.template.copy(folder).url)
        self.started.append(processes)
        launch = ["-m", "tests.kills.launcher", "--instead", BUILDS[build], "--"]
        up = ["manage.py", "up", "--no-demo", "--port", "0"]
        web = processes.start("web", [sys.executable, *launch, *up])
        url = web.wait_for(r"Allstop is ready at (\S+)").group(1)
        issuing = processes.start("token", [sys.executable, "-m", "dashboard.drilling.token", "issue"])
        assert issuing.popen.wait(60) == 0, issuing.said()
        return self.ends.enter_context(engine.bench(Instance(url, issuing.said().split()[-1])))

    def end(self) -> None:
        """All of them are told to go before one is waited for."""
        for processes in self.started:
            for process in processes.started:
                process.ask_to_end()
        for processes in self.started:
            processes.end()

    def carry_out(self, drills: dict[str, list[str]]) -> dict[tuple[str, str], Result]:
        """All of them; the results by build and drill."""
        benches = dict(zip(drills, self.threads.map(self.begin, drills), strict=True))
        at_work: dict[tuple[str, str], Future[Result]] = {
            (build, name): self.threads.submit(engine.carry_out, BY_NAME[name], benches[build])
            for build, names in drills.items()
            for name in names
        }
        return {key: future.result() for key, future in at_work.items()}


@pytest.fixture(scope="module")
def builds(
    database: Database,
    template: SqliteTemplate | PostgresqlTemplate,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Builds]:
    """`database`: it touches one, so the pass of either kind may take it."""
    made = Builds(tmp_path_factory.mktemp("sabotage"), template)
    with made.ends:
        yield made


def wrong(results: dict[tuple[str, str], Result]) -> list[str]:
    """What did not come out as the table says."""
    found = []
    for (build, name), result in results.items():
        seen_by = SEEN[build].get(name)
        broken = [
            check.what for check in [*result.findings.safety, *result.findings.evidence] if not check.ok
        ]
        expected = "failed" if seen_by else "passed"
        if result.result != expected or (seen_by and seen_by not in broken):
            found.append(f"{build}: {name} {result.result} ({result.findings.why}) {broken}")
    return found


@pytest.mark.only("sqlite")
def test_a_sabotaged_build_fails_the_drills_that_are_there_for_it(builds: Builds) -> None:
    results = builds.carry_out(EACH_TIME)
    assert wrong(results) == []
    assert {build for build, name in results if name in SEEN[build]} == set(BUILDS), "each is seen"
    assert {build for build, name in results if name not in SEEN[build]} == set(BUILDS), "and only by some"


@pytest.mark.long
@pytest.mark.parametrize("build", BUILDS)
def test_every_drill_on_a_sabotaged_build(
    builds: Builds, build: str, chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLSTOP_CHROMIUM", str(chromium))
    assert len(ALL) == 12
    assert wrong(builds.carry_out({build: ALL})) == []
