"""/metrics: figures from the rows, names and labels that tell nobody's business, for those who may see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.db import DatabaseError
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from dashboard import metrics
from effects.models import Effect
from runs import fanout, releases, scopes
from runs.models import Permit, StopRequest
from runs.scopes import Target
from runs.stops import Wish, wished
from tests.wire import agent_of
from tests.worlds import World, a_compensation, a_run, a_step, an_effect, in_seconds, lapse

OPERATING = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
Figures = dict[str, float]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is kept from the scrape of another test."""
    metrics.rows.forget()
    yield
    metrics.rows.forget()


def scrape(client: Client | None = None, **headers: str) -> Figures:
    """Each sample as `name{label="value"}`."""
    metrics.rows.forget()
    answer = (client or Client()).get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found: Figures = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def of(figures: Figures, name: str) -> dict[str, float]:
    """Label value: figure, of one family with one label."""
    mine = {key: figure for key, figure in figures.items() if key.startswith(f"allstop_{name}{{")}
    return {key.partition('="')[2].removesuffix('"}'): figure for key, figure in mine.items()}


def test_open_stops_are_counted_by_the_stage_that_they_reached() -> None:
    world = World()
    draining, late, done = (world.run(key) for key in ("draining", "late", "done"))
    for run in (draining, late):
        world.opened(run, f"charge:{run.key}")
    for run in (draining, late, done):
        world.stop(run)
    world.stop_key("not there yet")
    StopRequest.objects.filter(run=late).update(timed_out_at=in_seconds(0))
    StopRequest.objects.filter(run=done).update(quiet_at=in_seconds(0))
    figures = scrape()
    assert of(figures, "stops_open") == {
        "waiting": 1,
        "recorded": 0,
        "draining": 1,
        "timed out": 1,
        "settling": 1,
        "standing": 0,
        "observing": 0,
    }
    assert figures["allstop_stops_timed_out"] == 1
    assert of(figures, "runs_stopping")["CANCELLING"] == 3
    StopRequest.objects.update(closed_at=in_seconds(0))
    assert sum(of(scrape(), "stops_open").values()) == 0


def test_a_stop_of_a_scope_is_recorded_until_it_is_fenced_and_stands_until_it_is_released() -> None:
    world = World()
    target = Target("workspace", world.workspace.pk)
    watching = scopes.request_scope_stop(actor=world.alice, wish=Wish(observe=True), target=target).stop
    assert of(scrape(), "stops_open")["observing"] == 1
    stop = scopes.request_scope_stop(actor=world.alice, wish=Wish(mode="pause"), target=target).stop
    watching.refresh_from_db()
    assert (watching.closed_at is None, stop.fenced_at is None) == (False, False)
    found = of(scrape(), "stops_open")
    assert (found["standing"], sum(found.values())) == (1, 1)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="checked")
    assert sum(of(scrape(), "stops_open").values()) == 0


def test_unknown_effects_are_counted_with_the_age_of_the_oldest() -> None:
    assert scrape()["allstop_effects_unknown_oldest_seconds"] == 0
    for ago in (-100, -300):
        an_effect(settlement="UNKNOWN", unknown_since=in_seconds(ago), next_check_at=in_seconds(5))
    figures = scrape()
    assert figures["allstop_effects_unknown"] == 2
    assert 300 <= figures["allstop_effects_unknown_oldest_seconds"] < 330
    waiting = {"effects": 0, "look-ups": 2, "retries": 0, "deliveries": 0, "notices": 0, "compensations": 0}
    assert of(figures, "queue_depth") == waiting


def test_approved_compensations_wait_for_our_executor_and_those_in_doubt_for_a_look_up() -> None:
    effect = an_effect(a_step(a_run("CANCELLED"), "SUCCEEDED"), "CONFIRMED")
    a_compensation(effect, "APPROVED", queued_at=in_seconds(0))
    a_compensation(None, "DISPATCHED", next_check_at=in_seconds(5))
    a_compensation(None, "UNKNOWN")
    waits = of(scrape(), "queue_depth")
    assert (waits["compensations"], waits["look-ups"]) == (1, 1)


def test_a_lease_that_nobody_swept_makes_the_lag() -> None:
    world = World()
    assert scrape()["allstop_sweep_lag_seconds"] == 0
    opened = world.opened(world.run())
    lapse(opened.permit)
    Permit.objects.update(lease_until=in_seconds(-90))
    assert 90 <= scrape()["allstop_sweep_lag_seconds"] < 120
    wish, ago = Wish(), in_seconds(-200)
    bulk = StopRequest.objects.create(
        workspace=world.workspace, number=99, scope="bulk", run_key="", **wished(world.alice, wish, ago)
    )
    assert 200 <= scrape()["allstop_sweep_lag_seconds"] < 230, "its list was never carried out"
    fanout.fence(bulk.pk)
    assert scrape()["allstop_sweep_lag_seconds"] < 120


@pytest.mark.django_db(transaction=True)
def test_verbs_and_refusals_are_counted_as_they_commit() -> None:
    world = World()
    before = scrape()
    run = world.run()
    world.stop(run)
    world.refused(run)
    after = scrape()

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more('allstop_verb_seconds_count{verb="stops.stop_run"}') == 1
    assert more('allstop_verb_seconds_count{verb="gate.dispatch"}') == 1
    assert more('allstop_refusals_total{boundary="dispatch",reason="stopped"}') == 1
    assert after['allstop_verb_seconds_bucket{le="+Inf",verb="stops.stop_run"}'] >= 1


def test_no_name_id_or_text_of_anybody_is_in_it() -> None:
    world = World()
    world.workspace.name = world.workspace.slug = "canary-workspace"
    world.workspace.save()
    run = world.run("canary-run", name="canary-name")
    world.stop(run, note="canary-note")
    agent_of(world.workspace).get("/runs/canary-path")
    metrics.rows.forget()
    text = Client().get("/metrics").content.decode()
    assert 'allstop_stops_open{stage="settling"}' in text
    assert "canary" not in text
    assert run.pk not in text
    assert world.workspace.pk not in text


def test_the_page_for_operators_names_every_figure_and_no_other() -> None:
    known = re.findall(r"^\| `(allstop_\w+)` \| (?:rows|process) \|", OPERATING.read_text(), re.M)
    metrics.rows.forget()
    served = re.findall(r"^# TYPE (allstop_\w+)", Client().get("/metrics").content.decode(), re.M)
    assert sorted(served) == sorted(known)


def test_a_scrape_costs_few_questions_and_the_next_one_none(django_assert_max_num_queries: Any) -> None:
    world = World()
    for n in range(5):
        world.stop(world.run(f"run-{n}"))
    metrics.rows.forget()
    with django_assert_max_num_queries(33):
        Client().get("/metrics")
    with django_assert_max_num_queries(0):
        Client().get("/metrics")


def test_it_counts_to_a_bound_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 2)
    for _ in range(4):
        an_effect(settlement="UNKNOWN", unknown_since=in_seconds(0))
    assert Effect.objects.count() == 4
    assert scrape()["allstop_effects_unknown"] == 2


def test_without_a_database_it_says_so_and_tells_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise DatabaseError("gone")

    assert scrape()["allstop_store_up"] == 1
    monkeypatch.setattr(metrics, "FIGURES", (broken,))
    figures = scrape()
    assert figures["allstop_store_up"] == 0
    assert "allstop_effects_unknown" not in figures
    assert of(figures, "crowd")["taken"] == 0


@pytest.mark.parametrize(
    ("shown", "status"),
    [("Bearer right", 200), ("bearer right", 200), ("Bearer wrong", 404), ("right", 404), ("", 404)],
)
def test_a_token_of_its_own_opens_it_and_nothing_else(settings: Settings, shown: str, status: int) -> None:
    settings.ALLSTOP_METRICS_TOKEN = "right"
    assert Client().get("/metrics", headers={"Authorization": shown}).status_code == status


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.1", {}, 404),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 404),
        ("127.0.0.1", {"Forwarded": "for=127.0.0.1"}, 404),
    ],
)
def test_without_a_token_only_this_machine_sees_it(
    address: str, headers: dict[str, str], status: int
) -> None:
    answer = Client(REMOTE_ADDR=address).get("/metrics", headers=headers)
    assert answer.status_code == status
    if status == 404:
        assert answer.content == Client().get("/nowhere").content


def test_behind_a_proxy_it_needs_a_token(settings: Settings) -> None:
    settings.ALLSTOP_BEHIND_PROXY = True
    assert Client().get("/metrics").status_code == 404


@pytest.mark.django_db(transaction=True)
async def test_a_socket_is_counted_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.asgi import application
    from runs.counts import SOCKETS

    def open_ones() -> float:
        return float(next(iter(SOCKETS.collect())).samples[0].value)

    monkeypatch.setattr("dashboard.live.verdict", lambda *args: 0)
    before = open_ones()
    headers = [(b"origin", b"http://localhost:8000")]
    socket = WebsocketCommunicator(application, "/live/", headers=headers)
    assert (await socket.connect())[0]
    assert open_ones() == before + 1
    await socket.disconnect()
    assert open_ones() == before
