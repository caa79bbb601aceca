"""Mallory finds nothing: what is not hers looks exactly like what does not exist."""

from __future__ import annotations

import pytest
from django.urls import URLPattern

from dashboard.pages.urls import urlpatterns
from runs.models import StopRequest
from runs.scopes import Target, request_scope_stop
from runs.stops import Wish
from tests.dashboard.scenes import browser
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)

OF_A_RUN = [pattern for pattern in urlpatterns if "run_id" in str(pattern.pattern)]
OF_A_STOP = [pattern for pattern in urlpatterns if "stop_id" in str(pattern.pattern)]
OF_A_WORKSPACE = [
    *("/gate", "/runs/", "/reviews", "/first-run", "/tokens", "/rules", "/stop", "/notices"),
    *("/", "/stops/", "/stops/new", "/policies/", "/coverage", "/runs/stop"),
    *("/stops/planned", "/stops/planned/new", "/unknowns", "/kinds/", "/kinds/bank.charge"),
    *("/measures", "/measures.csv", "/reports/", "/seals", "/audit", "/audit.jsonl"),
]
FOR_ALL = {"sign-in-link", "problem", "account_login", "account_logout", "theme"}


@pytest.fixture
def world() -> World:
    return World()


def address(pattern: URLPattern, run_id: str) -> str:
    return "/" + str(pattern.pattern).replace("<str:run_id>", run_id)


@pytest.mark.parametrize("pattern", OF_A_RUN, ids=lambda pattern: str(pattern.name))
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_foreign_run_answers_like_an_absent_one(world: World, pattern: URLPattern, method: str) -> None:
    run = world.run()
    mallory = browser(world.mallory)
    foreign = getattr(mallory, method)(address(pattern, run.pk))
    absent = getattr(mallory, method)(address(pattern, "run_absent"))
    assert foreign.status_code == absent.status_code
    assert foreign.status_code in (404, 405)
    assert foreign.content.replace(run.pk.encode(), b"") == absent.content.replace(b"run_absent", b"")
    assert world.run().cancel_version == 1


@pytest.mark.parametrize("pattern", OF_A_STOP, ids=lambda pattern: str(pattern.name))
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_foreign_stop_answers_like_an_absent_one(world: World, pattern: URLPattern, method: str) -> None:
    target = Target("workspace", world.workspace.pk)
    stop = request_scope_stop(actor=world.alice, wish=Wish(), target=target).stop
    mallory, path = browser(world.mallory), "/" + str(pattern.pattern)
    foreign = getattr(mallory, method)(path.replace("<str:stop_id>", stop.pk))
    absent = getattr(mallory, method)(path.replace("<str:stop_id>", "stp_absent"))
    assert foreign.status_code == absent.status_code
    assert foreign.status_code in (404, 405)
    assert foreign.content.replace(stop.pk.encode(), b"") == absent.content.replace(b"stp_absent", b"")
    assert StopRequest.objects.get(pk=stop.pk).released_at is None


@pytest.mark.parametrize("path", OF_A_WORKSPACE)
def test_a_foreign_workspace_answers_like_an_absent_one(world: World, path: str) -> None:
    mallory = browser(world.mallory)
    foreign = mallory.get(f"{path}?workspace={world.workspace.slug}")
    absent = mallory.get(f"{path}?workspace=absent")
    assert (foreign.status_code, absent.status_code) == (404, 404)
    assert foreign.content == absent.content


def test_a_foreign_demo_is_not_started_and_no_foreign_token_made(world: World) -> None:
    mallory = browser(world.mallory)
    for path in ("/first-run/start", "/tokens"):
        form = {"name": "mine", "scopes": ["stop:write"]}
        assert mallory.post(f"{path}?workspace={world.workspace.slug}", form).status_code == 404


def test_a_foreign_run_is_in_no_list(world: World) -> None:
    run = world.run(name="the books of Finance")
    html = browser(world.mallory).get(f"/runs/?q={run.pk}").content.decode()
    assert "the books of Finance" not in html
    assert "No runs match." in html


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda pattern: str(pattern.name))
def test_nobody_signed_out_sees_a_page(world: World, pattern: URLPattern) -> None:
    if pattern.name in FOR_ALL:
        return
    run = world.run()
    path = address(pattern, run.pk)
    answer = browser().get(path)
    assert answer.status_code in (302, 405)
    if answer.status_code == 302:
        assert answer["Location"].startswith("/sign-in?next=")
        assert browser().get(path, headers={"HX-Request": "true"}).status_code == 401
