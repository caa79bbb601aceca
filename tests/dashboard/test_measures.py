"""The seven measures against figures computed by hand, and never a row of another workspace."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from dashboard import measure_words, measures, metrics, reports
from dashboard.measure_rows import Window
from dashboard.measures import Measure, percentile
from dashboard.pages.measure_charts import chart_of
from dashboard.pages.measures import safe
from effects.models import Report
from runs.evidence import Line, record
from runs.models import InFlight, Run, StopPart, StopRequest
from runs.store import database_time
from tests.dashboard.scenes import browser, text_of
from tests.worlds import (
    World,
    a_compensation,
    a_delivery,
    a_permit,
    a_run,
    a_step,
    a_workspace,
    an_effect,
    number,
)

pytestmark = pytest.mark.django_db
HOUR = 3_600


class Seeded:
    """Rows at moments counted back from one now: `ago` seconds before it."""

    def __init__(self, workspace: Any = None, *, drill: bool = False) -> None:
        self.now, self.drill = database_time(), drill
        self.workspace = workspace or a_workspace()

    def at(self, ago: float) -> datetime:
        return self.now - timedelta(seconds=ago)

    def run(self, status: str = "CANCELLED") -> Run:
        return a_run(status, self.workspace, drill=self.drill)

    def stop(self, run: Run | None, ago: float, **more: Any) -> StopRequest:
        named = {
            "workspace": self.workspace,
            "number": number(),
            "run": run,
            "run_key": run.key if run else "",
        }
        asked = {"mode": "cancel", "actor": "system", "via": "api", "version_before": 1, "version_after": 2}
        moments = {"recorded_at": self.at(ago), "gate_at": self.at(ago), "fenced_at": self.at(ago)}
        return StopRequest.objects.create(**{**named, **asked, **moments, **more})

    def carried(self, seconds: float, ago: float = 600) -> None:
        """A stop of a list that reached one run after so long."""
        arrived = self.at(ago + seconds)
        bulk = self.stop(None, ago + seconds, scope="bulk", gate_at=None, arrived_at=arrived)
        self.stop(self.run(), ago, scope_stop=bulk, arrived_at=arrived)

    def pressed(self, seconds: float, ago: float = 600, **more: Any) -> StopRequest:
        """A stop whose press had arrived so long before its gate."""
        run = more.pop("run") if "run" in more else self.run()
        return self.stop(run, ago, arrived_at=self.at(ago + seconds), **more)

    def in_flight(self, settles_after: float | None, ago: float = 50 * HOUR, **more: Any) -> Run:
        """An effect on the list of a stop `ago`, that settled so long after it."""
        run = self.run()
        permit = a_permit(a_step(run, "SUCCEEDED"), "REPORTED", effect_key=f"key-{number()}")
        settled = None if settles_after is None else self.at(ago - settles_after)
        state = "UNKNOWN" if settles_after is None else "CONFIRMED"
        told = {"key": permit.effect_key, "settled_at": settled, "dispatched_at": self.at(ago), **more}
        an_effect(permit.step, state, permit, **told)
        InFlight.objects.create(stop=self.stop(run, ago), permit=permit, state_then="OPEN")
        return run

    def effect(self, state: str = "CONFIRMED", **more: Any) -> Any:
        return an_effect(a_step(self.run(), "SUCCEEDED"), state, **more)

    def compensation(self, state: str, ago: float = 600, **more: Any) -> None:
        a_compensation(self.effect(), state, dispatched_at=self.at(ago), **more)

    def report(self, *, effects: int = 1, bare: int = 0) -> None:
        """An issued version: so many effects have a line of their settlement, so many have none."""
        run = self.run()
        for place in range(effects + bare):
            effect = an_effect(a_step(run, "SUCCEEDED"), "CONFIRMED", declared_at=self.at(900))
            if place < effects:
                record(run, Line("effect.confirmed", "system", effect_key=effect.key))
        told = {"outcome": "completed", "final": True, "upto_seq": effects, "body": "{}", "digest": ""}
        Report.objects.create(run=run, version=1, issued_at=self.at(600), **told)

    def read(self, which: int, **more: Any) -> Measure:
        window = measures.last_days(14, self.now, workspace_id=self.workspace.pk, **more)
        return measures.read(window, which)[0]


def values(measure: Measure) -> dict[str, Any]:
    return {one.name: one.value for one in measure.figures}


# --- Each measure by hand ---------------------------------------------------------------------------------


def test_a_percentile_is_one_of_the_values_by_nearest_rank() -> None:
    assert [percentile([4, 1, 3, 2], share) for share in (0.5, 0.95)] == [2, 4]
    assert percentile(range(1, 101), 0.95) == 95
    assert (percentile([], 0.5), percentile([7], 0.95)) == (None, 7)


def test_1_every_stop_is_timed_from_the_arrival_of_its_press_to_its_own_gate() -> None:
    seeded = Seeded()
    for seconds in (0.1, 0.2, 0.4):
        seeded.pressed(seconds)
    seeded.carried(0.3)  # to a run of a list: from the press on the list
    seeded.pressed(2.0, scope="session", run=None)
    found = seeded.read(1)
    assert (found.n, values(found)) == (5, {"p50": pytest.approx(0.3), "p95": pytest.approx(2.0)})
    assert measure_words.headline(found) == [("0.30 s", "p50"), ("2.00 s", "p95")]
    assert measure_words.met(found) is False


def test_1_of_old_rows_and_of_what_waited_for_its_run_no_time_is_told() -> None:
    seeded = Seeded()
    for _ in range(9):
        seeded.stop(seeded.run(), 60)
    waits = {"ends_at": seeded.at(-HOUR), "arrived_at": seeded.at(5_000), "recorded_at": seeded.at(5_000)}
    seeded.stop(seeded.run(), 10, **waits)
    seeded.pressed(0.5)
    scope = seeded.pressed(0.6, scope="session", run=None)
    seeded.stop(seeded.run(), 5, scope_stop=scope, arrived_at=seeded.at(600))  # its scope's gate was first
    found = seeded.read(1)
    assert (found.n, found.beside) == (2, {"waited": 1, "not kept": 9})
    assert measure_words.headline(found) == [("", "not enough data (n = 2)")]
    assert measure_words.beside(found) == (
        "n = 2 stops. 1 more waited for a run that came later."
        " Of 9 more no arrival is kept: older than that, or nobody pressed."
    )
    assert measure_words.met(found) is None


def lines_of(run: Run, *told: tuple[str, dict[str, Any]]) -> None:
    record(run, *(Line(kind, "system", **fields) for kind, fields in told))


def test_2_a_permit_behind_a_stop_is_found_by_version_and_line_and_one_before_it_is_not() -> None:
    seeded = Seeded()
    clean, leaks = seeded.run(), seeded.run()
    ordinary, cleanup = a_permit(a_step(leaks)), a_permit(a_step(leaks), guard="cleanup")
    before, after = a_permit(a_step(clean)), a_permit(a_step(clean))
    opened = {"carried_version": 1, "effect_key": "charge:9"}
    held = ("stop.acknowledged", {"carried_version": 1, "current_version": 2})
    lines_of(
        clean,
        ("permit.opened", {**opened, "permit_id": before.pk}),
        held,
        ("permit.opened", {**opened, "permit_id": after.pk, "carried_version": 3}),
    )
    lines_of(
        leaks,
        held,
        ("permit.opened", {**opened, "permit_id": ordinary.pk}),
        ("permit.opened", {**opened, "permit_id": cleanup.pk}),
    )
    for run in (clean, leaks):
        seeded.stop(run, 60)
    seeded.now = database_time()
    found = seeded.read(2)
    assert (found.n, values(found)) == (2, {"found": 1})
    assert [(one.run_id, one.line) for one in found.samples if one.state == "found"] == [(leaks.pk, 2)]
    assert measure_words.headline(found) == [("1", "in 2 stops")], "a breach is told of any number"
    assert measure_words.met(found) is False


def test_2_a_breach_behind_a_stop_that_is_older_than_the_window_is_found_all_the_same() -> None:
    seeded = Seeded()
    run = seeded.run()
    seeded.stop(run, 90 * 86_400)
    opened = {"carried_version": 1, "permit_id": a_permit(a_step(run)).pk}
    lines_of(run, ("stop.acknowledged", {"current_version": 2}), ("permit.opened", opened))
    seeded.now = database_time()
    found = seeded.read(2)
    assert (found.n, values(found)) == (0, {"found": 1})


def test_3_effects_are_reconciled_within_three_times_and_counted_once() -> None:
    seeded = Seeded()
    for settles_after in (60, 299, 301, 3_500, 4_000, 90_000, None):
        seeded.in_flight(settles_after)
    seeded.in_flight(-5)  # had settled before: not active
    run = seeded.in_flight(120)
    twice = InFlight.objects.get(stop__run=run)
    InFlight.objects.create(stop=seeded.stop(run, HOUR), permit=twice.permit, state_then="LOST")
    seeded.in_flight(None, ago=600)
    found = seeded.read(3)
    assert (found.n, values(found)) == (9, {"in 5 min": 3, "in 1 h": 5, "in 24 h": 6})
    assert found.beside == {"in 5 min": 0, "in 1 h": 1, "in 24 h": 1}
    assert measure_words.headline(found) == [("5", "of 9 in 1 h")]
    assert measure_words.met(found) is False


def test_4_only_counted_keys_of_what_was_stopped_or_retried() -> None:
    seeded = Seeded()
    for counted in (1, 1, 2, None):
        told: dict[str, Any] = {"counted": counted, "checks": 1, "dispatched_at": seeded.at(60)}
        seeded.effect(attempt=2, **told)
    seeded.effect(attempt=1, counted=3, checks=1, dispatched_at=seeded.at(60))  # neither stopped nor retried
    stopped = seeded.effect(attempt=1, counted=1, checks=1, dispatched_at=seeded.at(60))
    seeded.stop(stopped.run, 30)
    found = seeded.read(4)
    assert (found.n, values(found), found.beside) == (4, {"twice": 1}, {"uncounted": 1})
    assert measure_words.headline(found) == [("1", "of 4 keys")], "a duplicate is told of any number"


def test_5_compensations_by_what_they_came_to() -> None:
    seeded = Seeded()
    for state in ("VERIFIED", "VERIFIED", "VERIFIED", "FAILED", "UNKNOWN", "ACCEPTED_UNKNOWN", "DISPATCHED"):
        seeded.compensation(state)
    seeded.compensation("NOT_NEEDED", settled_at=seeded.at(60))  # it failed, and was closed
    seeded.compensation("NOT_NEEDED")  # taken back, never sent
    a_compensation(seeded.effect(), "APPROVED")
    found = seeded.read(5)
    assert (found.n, values(found)) == (7, {"verified": 3, "failed": 2, "unknown": 2})
    assert found.beside == {"checking": 1}
    assert measure_words.headline(found) == [("3", "of 7 verified")]


def test_6_closed_ones_by_their_length_open_ones_by_their_age_accepted_ones_apart() -> None:
    seeded = Seeded()
    for minutes in (1, 2, 3, 4):
        settled: dict[str, Any] = {
            "unknown_since": seeded.at(900),
            "settled_at": seeded.at(900 - minutes * 60),
        }
        seeded.effect(**settled)
    a_delivery(seeded.run(), "HANDED_OVER", unknown_since=seeded.at(900), settled_at=seeded.at(300))
    accepted: dict[str, Any] = {"unknown_since": seeded.at(9_000), "settled_at": seeded.at(60)}
    seeded.effect("ACCEPTED_UNKNOWN", **accepted)
    seeded.effect("UNKNOWN", unknown_since=seeded.at(20 * 86_400))
    a_compensation(seeded.effect(), "UNKNOWN", unknown_since=seeded.at(30))
    seeded.effect("UNKNOWN", unknown_since=seeded.at(40), settled_at=seeded.at(400))  # contradicted
    found = seeded.read(6)
    assert (found.n, found.beside) == (5, {"open": 3, "accepted": 1})
    assert values(found) == {"p50": 180, "p95": 600, "oldest open": 20 * 86_400}
    assert [one.state for one in found.samples[:4]] == ["open", "open", "open", "accepted"]
    assert found.samples[0].seconds == 20 * 86_400, "the oldest is read first, and so never cut off"


def test_7_reports_need_a_line_for_every_effect() -> None:
    seeded = Seeded()
    for _ in range(4):
        seeded.report(effects=2)
    seeded.report(effects=2, bare=1)
    seeded.report(effects=0)
    found = seeded.read(7)
    assert (found.n, values(found), found.beside) == (5, {"whole": 4}, {"without effects": 1})
    assert measure_words.headline(found) == [("4", "of 5 have it")]
    assert measure_words.met(found) is False


# --- Of nothing, of two, of drills, of others -------------------------------------------------------------


def fill(seeded: Seeded, times: int = 1) -> None:
    """Something for each of the seven."""
    for _ in range(times):
        seeded.carried(0.5)
        seeded.in_flight(60, counted=1, checks=1)
        seeded.compensation("VERIFIED")
        seeded.effect(unknown_since=seeded.at(900), settled_at=seeded.at(600))
        seeded.report()


@pytest.mark.parametrize("times", [0, 2])
def test_of_too_few_no_share_and_no_percentile_is_told(times: int) -> None:
    seeded = Seeded()
    fill(seeded, times)
    for which in (1, 3, 4, 5, 6, 7):
        found = seeded.read(which)
        assert found.n == times
        assert measure_words.headline(found) == [("", f"not enough data (n = {times})")]
        assert measure_words.met(found) is None
    stops = seeded.read(2)
    assert stops.n == 2 * times
    assert measure_words.headline(stops) == [("", f"not enough data (n = {2 * times})")]


def test_drills_are_left_out_unless_asked_for() -> None:
    seeded = Seeded(drill=True)
    fill(seeded)
    assert [seeded.read(which).n for which in range(1, 8)] == [0] * 7
    assert [seeded.read(which, drills=True).n for which in range(1, 8)] == [1, 2, 1, 1, 1, 1, 1]


def test_rows_of_another_workspace_and_of_other_days_are_never_counted() -> None:
    mine, other = Seeded(), Seeded()
    fill(other, 2)
    other.effect("UNKNOWN", unknown_since=other.at(60))
    mine.in_flight(60, ago=15 * 86_400)
    mine.compensation("FAILED", ago=15 * 86_400)
    found = [mine.read(which) for which in range(1, 8)]
    assert [(one.n, one.samples) for one in found] == [(0, [])] * 7
    assert other.read(6).beside["open"] == 1


def test_a_day_without_data_is_a_gap_and_today_is_partial() -> None:
    seeded = Seeded()
    seeded.compensation("VERIFIED", ago=0)
    seeded.compensation("FAILED", ago=3 * 86_400)
    days = seeded.read(5).days
    assert [day.n for day in days] == [0] * 10 + [1, 0, 0, 1]
    assert [day.partial for day in days] == [False] * 13 + [True]
    chart = chart_of(seeded.read(5))
    assert chart is not None
    assert (len(chart.gaps), len(chart.hatched), [box.css for box in chart.boxes]) == (
        12,
        1,
        ["ch-c"],
    )


def test_no_line_is_drawn_across_a_gap() -> None:
    seeded = Seeded()
    for day in (0, 3, 4):
        ended = day * 86_400
        seeded.effect(unknown_since=seeded.at(ended + 60), settled_at=seeded.at(ended))
    chart = chart_of(seeded.read(6))
    assert chart is not None
    assert [len(points.split()) for _, points in chart.lines] == [2, 2]
    assert len(chart.dots) == 2


def test_the_questions_are_as_many_for_a_hundred_rows_as_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded, counted = Seeded(), []
    for times in (1, 6):
        fill(seeded, times)
        with CaptureQueriesContext(connection) as asked:
            measures.read(Window(until=seeded.now, workspace_id=seeded.workspace.pk))
        counted.append(len(asked))
    assert counted[0] == counted[1] <= 15
    monkeypatch.setattr("dashboard.measure_rows.MOST", 2)
    monkeypatch.setattr("dashboard.measures.MOST", 2)
    bounded = [seeded.read(which) for which in (1, 3, 4, 5, 7)]
    assert [(one.n, one.capped) for one in bounded] == [(2, True)] * 5
    assert "The newest 2 of at least as many." in measure_words.beside(bounded[0])


# --- Page and CSV -----------------------------------------------------------------------------------------


def table(world: World, query: str = "") -> list[dict[str, str]]:
    answer = browser(world.dana).get(f"/measures.csv?workspace={world.workspace.slug}{query}")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="allstop-finance')
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_page_and_csv_tell_the_same_figures() -> None:
    world = World()
    seeded = Seeded(world.workspace)
    fill(seeded, 5)
    page = browser(world.dana).get(f"/measures?workspace={world.workspace.slug}").content.decode()
    said, told = text_of(page), table(world)
    totals = {
        (row["measure"], row["figure"]): (row["value"], row["of"]) for row in told if row["day"] == "all"
    }
    for which in range(1, 8):
        measure = seeded.read(which)
        for figure in measure.figures:
            value = "" if figure.value is None else str(figure.value)
            assert totals[str(which), figure.name] == (value, "" if figure.of is None else str(figure.of))
        assert measure_words.beside(measure) in said.replace("&#x27;", "'")
    assert "5 of 5 in 1 h" in said
    assert "0 in 10 stops" in said
    gaps = [row for row in told if row["day"] not in ("", "all") and row["n"] == "0"]
    assert gaps
    assert {row["value"] for row in gaps} == {""}, "a gap is not a zero"


def test_the_list_behind_a_measure_is_an_attachment_that_no_spreadsheet_calculates() -> None:
    world = World()
    seeded = Seeded(world.workspace)
    seeded.effect(unknown_since=seeded.at(90), settled_at=seeded.at(60), key='=HYPERLINK("http://x")')
    (row,) = table(world, "&measure=6")
    assert row["what"] == '\'=HYPERLINK("http://x")'
    assert row["seconds"] == "30.0"
    assert [safe(text) for text in ("+1", "-1", "@x", "\tx", "1", None)] == [
        "'+1",
        "'-1",
        "'@x",
        "'\tx",
        "1",
        "",
    ]


def test_the_box_for_drills_counts_them_and_says_so() -> None:
    world = World()
    fill(Seeded(world.workspace, drill=True), 5)
    page, client = f"/measures?workspace={world.workspace.slug}", browser(world.dana)
    without, counted = (text_of(client.get(f"{page}{more}").content.decode()) for more in ("", "&drills=1"))
    assert "Drills are left out" in without
    assert "5 of 5 verified" not in without
    assert "Drills are counted" in counted
    assert "5 of 5 verified" in counted


def test_mallory_sees_neither_the_page_nor_the_figures() -> None:
    world = World()
    for path in ("/measures", "/measures.csv"):
        foreign = browser(world.mallory).get(f"{path}?workspace={world.workspace.slug}")
        absent = browser(world.mallory).get(f"{path}?workspace=absent")
        assert (foreign.status_code, absent.status_code) == (404, 404)
        assert foreign.content == absent.content


# --- Prometheus -------------------------------------------------------------------------------------------


@pytest.fixture
def scraped() -> Iterator[Callable[[], dict[str, float]]]:
    """Reads /metrics anew: `name{label="value"}` and its figure."""

    def scrape() -> dict[str, float]:
        metrics.rows.forget()
        families = text_string_to_metric_families(Client().get("/metrics").content.decode())
        samples = (sample for family in families for sample in family.samples)
        return {
            f"{one.name.removeprefix('allstop_')} {' '.join(one.labels.values())}".strip(): one.value
            for one in samples
        }

    yield scrape
    metrics.rows.forget()


def test_prometheus_tells_the_figures_of_the_page(scraped: Callable[[], dict[str, float]]) -> None:
    seeded = Seeded()
    fill(seeded, 5)
    fill(Seeded(drill=True), 2)
    seeded.effect("UNKNOWN", unknown_since=seeded.at(4_000))
    found, page = scraped(), [seeded.read(which) for which in range(1, 8)]
    assert found["stop_ack_seconds 0.95"] == page[0].value("p95")
    assert found["stops_acknowledged"] == page[0].n == 5
    assert found["post_quiesce_dispatches_total"] == page[1].count("found") == 0
    assert found["effects_reconciled_ratio 1h"] == 1
    assert found["effects_reconciled_numerator 5min"] == page[2].count("in 5 min") == 5
    assert found["effects_reconciled_denominator"] == page[2].n == 5
    assert (found["duplicate_effects_total"], found["duplicate_effects_counted"]) == (0, page[3].n)
    assert found["compensations_sent verified"] == page[4].count("verified") == 5
    assert 4_000 <= found["unknown_age_seconds"] < 4_030
    assert (found["unknown_closed_seconds 0.5"], found["unknown_closed"]) == (300, 5)
    assert (found["reports_with_evidence_total"], found["reports_issued"]) == (5, 5)


def test_of_too_few_prometheus_gets_the_counts_and_neither_ratio_nor_quantile(
    scraped: Callable[[], dict[str, float]],
) -> None:
    fill(Seeded(), 2)
    found = scraped()
    assert found["effects_reconciled_denominator"] == 2
    assert not [name for name in found if name.startswith(("effects_reconciled_ratio", "stop_ack_seconds"))]
    assert not [name for name in found if name.startswith("unknown_closed_seconds")]


# --- One world, five tellers ------------------------------------------------------------------------------

# By hand, of the five runs of `five_runs`: n and the figures of each measure.
BY_HAND: dict[int, tuple[int, dict[str, float]]] = {
    1: (5, {"p50": 0.3, "p95": 0.5}),
    2: (5, {"found": 1}),
    3: (5, {"in 5 min": 2, "in 1 h": 4, "in 24 h": 5}),
    4: (5, {"twice": 1}),
    5: (5, {"verified": 3, "failed": 1, "unknown": 1}),
    6: (5, {"p50": 120, "p95": 600, "oldest open": 7_200}),
    7: (5, {"whole": 4}),
}


def five_runs(seeded: Seeded) -> StopRequest:
    """Five runs under one stop of a list, each with a little of everything; one of them went wrong."""
    ago, arrived = 26 * HOUR, seeded.at(26 * HOUR)
    bulk = seeded.stop(None, ago, scope="bulk", gate_at=None, arrived_at=arrived)
    settled_after = (60, 300, 301, 3_600, 3_601)
    unknown_for = (60, 60, 120, 300, 600)
    repairs = ("VERIFIED", "VERIFIED", "VERIFIED", "FAILED", "UNKNOWN")
    for place in range(5):
        run = seeded.run()
        gate = arrived + timedelta(seconds=(0.1, 0.2, 0.3, 0.4, 0.5)[place])
        told: dict[str, Any] = {"scope_stop": bulk, "arrived_at": arrived, "gate_at": gate}
        stop = seeded.stop(run, ago, **told)
        StopPart.objects.create(stop=bulk, run=run, run_stop=stop, result="recorded")
        permit = a_permit(a_step(run, "SUCCEEDED"), "REPORTED", effect_key=f"k-{place}")
        settled = gate + timedelta(seconds=settled_after[place])
        sent = {"dispatched_at": gate, "declared_at": seeded.at(30 * HOUR), "settled_at": settled}
        since = settled - timedelta(seconds=unknown_for[place])
        counts = {"counted": 2 if place == 4 else 1, "checks": 1, "unknown_since": since}
        effect = an_effect(permit.step, "CONFIRMED", permit, key=permit.effect_key, **sent, **counts)
        InFlight.objects.create(stop=stop, permit=permit, state_then="OPEN")
        mended: dict[str, Any] = {"dispatched_at": gate}
        if repairs[place] == "UNKNOWN":
            mended["unknown_since"] = seeded.at(7_200)
        a_compensation(effect, repairs[place], **mended)
        behind = [("permit.opened", {"carried_version": 1, "permit_id": permit.pk})] if place == 4 else []
        known = [("effect.confirmed", {"effect_key": effect.key})] if place != 4 else []
        lines_of(run, ("stop.acknowledged", {"current_version": 2}), *behind, *known)
        final: dict[str, Any] = {"outcome": "completed", "final": True, "upto_seq": 9, "body": "{}"}
        Report.objects.create(run=run, version=1, digest="", issued_at=seeded.at(60), **final)
    return bulk


def close_to(figures: dict[str, float]) -> dict[str, Any]:
    """Ages move while a test asks; lengths and counts don't."""
    return {
        name: pytest.approx(value, abs=60 if "oldest" in name else 0.001) for name, value in figures.items()
    }


def test_page_csv_prometheus_and_reports_tell_what_was_computed_by_hand(
    scraped: Callable[[], dict[str, float]],
) -> None:
    world = World()
    seeded = Seeded(world.workspace)
    bulk = five_runs(seeded)
    fill(Seeded(drill=True), 3)  # nobody counts them
    client, address = browser(world.dana), f"/measures?workspace={world.workspace.slug}"
    # CSV
    totals: dict[int, dict[str, float]] = {}
    for row in table(world):
        if row["day"] == "all":
            totals.setdefault(int(row["measure"]), {})[row["figure"]] = float(row["value"])
            assert int(row["n"]) == BY_HAND[int(row["measure"])][0]
    assert totals == {which: close_to(figures) for which, (_, figures) in BY_HAND.items()}
    # the report of the stop, as JSON, and its page
    told = client.get(f"/stops/{bulk.pk}/report.json").json()["measures"]
    found = {row["number"]: (row["n"], {one["name"]: one["value"] for one in row["figures"]}) for row in told}
    assert found == {which: (n, close_to(figures)) for which, (n, figures) in BY_HAND.items()}
    page = plain(client.get(f"/stops/{bulk.pk}/report").content.decode())
    assert [row["says"] for row in told if row["says"] not in page] == []
    # the page
    said = plain(client.get(address).content.decode())
    for words_of_it in (
        "0.30 s p50 0.50 s p95",
        "1 in 5 stops",
        "4 of 5 in 1 h",
        "1 of 5 keys",
        "3 of 5 verified",
        "2 min 00 s p50 10 min 00 s p95 2 h 0 min oldest open",
        "4 of 5 have it",
    ):
        assert words_of_it in said
    # Prometheus
    metric = scraped()
    assert metric["stop_ack_seconds 0.5"] == pytest.approx(0.3)
    assert metric["stop_ack_seconds 0.95"] == pytest.approx(0.5)
    assert metric["post_quiesce_dispatches_total"] == 1
    assert [metric[f"effects_reconciled_numerator {limit}"] for limit in ("5min", "1h", "24h")] == [2, 4, 5]
    assert (metric["duplicate_effects_total"], metric["duplicate_effects_counted"]) == (1, 5)
    assert [metric[f"compensations_sent {name}"] for name in ("verified", "failed", "unknown")] == [3, 1, 1]
    assert metric["unknown_age_seconds"] == pytest.approx(7_200, abs=60)
    assert (metric["reports_with_evidence_total"], metric["reports_issued"]) == (4, 5)


def test_the_report_of_a_run_tells_the_same_of_that_run_alone() -> None:
    world = World()
    bulk = five_runs(Seeded(world.workspace))
    run = Run.objects.get(pk=StopPart.objects.filter(stop=bulk).order_by("pk").last().run_id)  # type: ignore[union-attr]
    found = {row.number: row for row in reports.build(run.pk).measures}
    assert [row.n for row in found.values()] == [1, 1, 1, 1, 1, 1, 1]
    assert [found[which].says for which in range(1, 8)] == [
        f"#{StopRequest.objects.get(run=run).number}: 0.50 s. n = 1 stop.",
        "1 found; 1 stop of runs took effect. Observed by our gates.",
        "in 5 min: 0 of 1; in 1 h: 0 of 1; in 24 h: 1 of 1.",
        "1 of 1 key.",
        "Of 1: 0 verified, 0 failed, 1 unknown.",
        "10 min 00 s. Oldest open: 2 h 0 min. Closed: n = 1. Open now: 1.",
        "0 of 1 effects have a line of their settlement.",
    ]


def plain(html_text: str) -> str:
    return " ".join(html.unescape(text_of(html_text)).split())
