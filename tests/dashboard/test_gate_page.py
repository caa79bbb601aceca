"""A workspace whose gate is shut says so on each of its pages; after a restore, what is missing too."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest

from runs import access, scopes
from runs.models import Press, Restore, StopRequest, Workspace
from runs.presses import Wish
from runs.store import database_time
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db(transaction=True)
PAGES = ("/runs/", "/first-run", "/people", "/tokens", "/stop", "/stops/", "/reviews")


@pytest.fixture
def world() -> World:
    return World()


def gate_of(world: World) -> str:
    return Workspace.objects.get(pk=world.workspace.pk).gate


def test_every_page_says_by_whom_and_since_when_the_gate_is_shut(world: World) -> None:
    run = world.run()
    browser(world.alice).post("/gate/shut", {"key": "k-1", "reason": "cost", "note": "prices"})
    stop = StopRequest.objects.get(scope="workspace")
    assert (gate_of(world), stop.mode) == ("SHUT", "pause")
    for path in (*PAGES, f"/runs/{run.pk}/", f"/runs/{run.pk}/report", f"/stops/{stop.pk}/"):
        html = browser(world.bob).get(path).content.decode()
        assert re.search(r"The gate is shut\. Since \d.* UTC, by Alice \(stop #1\)", text_of(html)), path
        assert f'href="/stops/{stop.pk}/release">Release…' in html, path
        assert "The gate is shut" not in text_of(browser(world.mallory).get(path).content.decode()), path
    assert f'href="/stops/{stop.pk}/">Look at it' in browser(world.alice).get("/runs/").content.decode()


def test_a_run_that_the_stop_did_not_reach_yet_is_not_called_free_to_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bob = world.run(), browser(world.bob)
    monkeypatch.setattr(scopes, "_fence", lambda stop_id: False)
    browser(world.alice).post("/gate/shut", {"key": "k-1"})
    page = text_of(bob.get(f"/runs/{run.pk}/").content.decode())
    assert "Every gate refuses it" in page
    assert "It may start no new work under it." in page
    report = text_of(bob.get(f"/runs/{run.pk}/report").content.decode())
    assert "The gate of its workspace was shut at" in report
    assert "run of this workspace may start new work" in report, "the banner"
    assert report.count("may start new work") == 1


def test_a_form_of_before_still_presses_and_a_second_press_joins(world: World) -> None:
    browser(world.alice).post("/gate/shut", {"key": "k-1"})
    path = f"/gate/shut?workspace={world.workspace.slug}"
    answer = browser(world.bob).post(path, {"key": "", "reason": "<b>", "note": "n" * 9000}, follow=True)
    assert "Your request was added to it." in text_of(answer.content.decode())
    assert (StopRequest.objects.count(), Press.objects.count()) == (1, 2)
    assert browser(world.mallory).post(path, {}).status_code == 404
    assert browser(world.dana).post(path, {}).status_code == 403


def test_a_press_without_a_sign_in_comes_back_with_its_key_for_the_same_workspace(world: World) -> None:
    path = f"/gate/shut?workspace={world.workspace.slug}"
    first = browser().post(path, {"key": "k-7"})["Location"]
    back = unquote(first.removeprefix("/sign-in?next="))
    assert back.startswith(f"/gate?workspace={world.workspace.slug}&key=k-7&mode=pause")
    assert "NOT recorded yet" in browser().get(first).content.decode()
    form = browser(world.alice).get(back, follow=True).content.decode()
    assert 'name="key" value="k-7"' in form
    assert 'value="pause" required checked' in form


def test_after_a_restore_an_admin_opens_and_pages_say_what_is_missing(world: World) -> None:
    run = world.run()
    restorer, wish = access.Actor("system:restore", via="restore"), Wish(mode="pause", reason="restore")
    now = database_time()
    stop = scopes.shut_gate(world.workspace, world.workspace, restorer, wish, now)
    StopRequest.objects.filter(pk=stop.pk).update(fenced_at=now)
    taken_at = datetime(2026, 11, 29, 12, tzinfo=UTC)
    Restore.objects.create(taken_at=taken_at, restored_at=database_time(), digest="d")
    bob, erin = browser(world.bob), browser(an_admin(world))
    missing = "Restored from a backup taken 29 Nov 2026, 12:00:00 UTC; what was recorded between"
    for path in ("/runs/", f"/stops/{stop.pk}/", f"/runs/{run.pk}/", f"/runs/{run.pk}/report"):
        assert missing in text_of(bob.get(path).content.decode()), path
    refused = bob.get(f"/stops/{stop.pk}/release").content.decode()
    assert "After a restore an admin of this workspace opens it." in refused
    assert bob.post(f"/stops/{stop.pk}/release", {"reason": "right"}).status_code == 403
    said = text_of(erin.get(f"/stops/{stop.pk}/").content.decode())
    assert "Stops that were acknowledged after the backup are lost" in said
    erin.post(f"/stops/{stop.pk}/release", {"reason": "all is there"})
    assert (gate_of(world), fresh(stop).released_at is not None) == ("OPEN", True)
    for path in (f"/runs/{run.pk}/", f"/runs/{run.pk}/report"):
        assert missing in text_of(bob.get(path).content.decode()), path
    later = world.run("later")
    for path in (f"/runs/{later.pk}/", f"/runs/{later.pk}/report"):
        assert missing not in text_of(bob.get(path).content.decode()), path
