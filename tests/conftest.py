"""Fixtures of all rooms: servers, databases, processes, a browser; and which pass a test belongs to.

`manage.py test` runs pytest four times. The pass `sqlite` takes every test without a browser. The pass
`postgresql` takes those again that touch a database, at the same time as long as neither needs the machine
for itself. The passes `browser` and `accessible` run apart, because Playwright keeps an event loop running in
its thread. A plain `pytest` is all but the second pass in one.
"""

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connections

from tests import browsers, flush, patience, servers, tally, tools, turns
from tests.databases import Database, PostgresqlTemplate, SqliteTemplate
from tests.processes import Processes
from tests.tools import Missing, absent

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PASS = os.environ.get("ALLSTOP_TEST_PASS", "")
HERE = Path(__file__).parent
BROWSERS = {"browser", "accessible"}
PROCESSES = {"database", "empty", "processes", "cluster", "valkey", "site", "browser"}
TOUCHES = {"db", "transactional_db", "django_db_setup", "database", "empty", "postgresql_server"}


# --- Which test runs when -------------------------------------------------------------------------------


def only(item: pytest.Item) -> str:
    marker = item.get_closest_marker("only")
    return str(marker.args[0]) if marker else ""


def is_browser(item: pytest.Item) -> bool:
    return item.get_closest_marker("browser") is not None


def needs_the_machine(item: pytest.Item) -> int:
    """0: one thread or a few; 1: it starts or kills processes, and waits more than they work; 2: it drills,
    or lets many threads race; 3: a browser. Only what is 2 has the machine for itself.
    """
    if is_browser(item):
        return 3
    if any(item.get_closest_marker(name) for name in ("race", "long")) or tally.suite_of(item) == "drills":
        return 2
    starts = PROCESSES & set(getattr(item, "fixturenames", ()))
    return 1 if starts or item.get_closest_marker("kill") else 0


def of_browser(item: pytest.Item) -> str:
    """The pass of a browser's test: the audit of all pages takes as long as all else."""
    return "accessible" if item.path.stem == "test_accessible" else "browser"


def touches_database(item: pytest.Item) -> bool:
    names = set(getattr(item, "fixturenames", ()))
    return bool(names & TOUCHES) or item.get_closest_marker("django_db") is not None


def is_asked_for(item: pytest.Item) -> bool:
    """A long test runs only when the expression of -m names it."""
    return item.get_closest_marker("long") is None or "long" in item.config.getoption("markexpr", "")


def belongs(item: pytest.Item) -> bool:
    if not is_asked_for(item) or only(item) not in ("", servers.kind()):
        return False
    if PASS in BROWSERS or is_browser(item):
        return is_browser(item) and PASS in ("", of_browser(item))
    return servers.kind() == "sqlite" or touches_database(item)


def pytest_configure() -> None:
    """Told to end, end as after Ctrl-C: fixtures stop their servers."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if turns.shared():
        tally.begin(tally.TOGETHER)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The passes with a browser need not read all other tests to leave them out."""
    elsewhere = collection_path.parent == HERE and collection_path.name not in ("browser", "__init__.py")
    return True if PASS in BROWSERS and elsewhere else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    for item in items:
        if HERE / "browser" in item.path.parents:
            item.add_marker("browser")
        elif is_browser(item):
            raise pytest.UsageError(f"{item.nodeid}: tests with a browser stand in tests/browser")
    tally.remember(items)
    taken = [item for item in items if belongs(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(taken)])
    items[:] = taken
    yield  # pytest-django brings them into its own order
    items.sort(key=needs_the_machine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if needs_the_machine(item) == 2:
        turns.alone(tally.end, partial(tally.begin, tally.ALONE))
    with patience.limited(item):
        return (yield)


def pytest_collection_finish() -> None:
    """Garbage need not be looked for in thousands of tests again and again, or after each query."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    tally.add(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tally.write(terminalreporter.stats)


# --- Servers and databases ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[servers.Server]:
    try:
        server = servers.start_postgresql(tools.quick_folder(4_000))
    except Missing as missing:
        absent(str(missing))
    yield server
    server.stop()


@pytest.fixture
def valkey() -> Iterator[servers.Server]:
    """A Valkey of this test's own: it may be frozen and killed."""
    try:
        server = servers.start_valkey()
    except Missing as missing:
        absent(str(missing))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """On SQLite the test database is there when Django asks for it; its folder goes with this process."""
    return servers.kind() == "sqlite"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(template: SqliteTemplate | PostgresqlTemplate) -> None:
    """Django's test database is a copy of the one that is migrated for real processes."""
    wanted = connections["default"].settings_dict["TEST"]
    if isinstance(template, SqliteTemplate):
        shutil.copy(template.file, wanted["NAME"])
    else:
        wanted["TEMPLATE"] = template.name
    flush.install()


@pytest.fixture(scope="session")
def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SqliteTemplate | PostgresqlTemplate:
    folder = tmp_path_factory.mktemp("template")
    if servers.kind() == "sqlite":
        return SqliteTemplate.make(folder)
    server: servers.Server = request.getfixturevalue("postgresql_server")
    return PostgresqlTemplate.make(server.url, folder)


@pytest.fixture
def database(template: SqliteTemplate | PostgresqlTemplate, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of this pass's kind for real processes; a test that asks for it runs on both."""
    made = template.copy(tmp_path)
    yield made
    template.drop(made)


@pytest.fixture
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database of this pass's kind without tables."""
    if servers.kind() == "sqlite":
        return Database("sqlite", f"sqlite:///{tmp_path}/empty.sqlite3")
    server: servers.Server = request.getfixturevalue("postgresql_server")
    return PostgresqlTemplate(server.url, "template0").copy(tmp_path)


@pytest.fixture
def processes(database: Database, tmp_path: Path) -> Iterator[Processes]:
    """Starts web servers with embedded workers on `database`."""
    made = Processes(tmp_path, database.url)
    yield made
    made.end()


@pytest.fixture
def cluster(database: Database, valkey: servers.Server, tmp_path: Path) -> Iterator[Processes]:
    """Starts web, worker and beat as processes of their own, on `database` and a Valkey."""
    made = Processes(tmp_path, database.url, valkey.url)
    yield made
    made.end()


# --- Browser --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium() -> Path:
    try:
        return browsers.chromium()
    except Missing as missing:
        absent(str(missing))


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator["Browser"]:
    """One Chromium for the session; open a context a test."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()
