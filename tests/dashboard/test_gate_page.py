"""The gate's page: shut with one press, released with a reason, and said on every page meanwhile."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from django.db import OperationalError
from django.test import Client

from effects.drain import drain_run
from runs import access, gates, scopes
from runs.models import Press, Restore, StopRequest, Workspace
from runs.presses import Wish
from runs.store import database_time
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db(transaction=True)
PAGES = ("/runs/", "/first-run", "/people", "/tokens", "/stop", "/gate", "/reviews")


@pytest.fixture
def world() -> World:
    return World()


def shut(client: Client, **fields: str) -> str:
    """The sentence that the press is answered with."""
    answer = client.post(
        "/gate/shut", {"key": "k-1", "reason": "cost", "note": "prices", **fields}, follow=True
    )
    assert answer.redirect_chain[0][0].startswith("/gate?workspace=")
    return text_of(answer.content.decode())


def gate_of(world: World) -> str:
    return Workspace.objects.get(pk=world.workspace.pk).gate


def test_alice_shuts_the_gate_and_every_page_says_who_and_when(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run)
    before = text_of(alice.get("/gate").content.decode())
    assert "1 run that may start new work now is refused at every gate, at once." in before
    assert "1 action is in flight and may still complete." in before
    assert "Stop #1 recorded. No run of Finance may start new work" in shut(alice)
    assert gate_of(world) == "SHUT"
    for path in (*PAGES, f"/runs/{run.pk}/", f"/runs/{run.pk}/report", f"/runs/{run.pk}/evidence"):
        said = text_of(browser(world.bob).get(path).content.decode())
        assert re.search(r"The gate is shut\. Since \d.* UTC, by Alice \(stop #1\)", said), path
        assert "The gate is shut" not in text_of(browser(world.mallory).get(path).content.decode()), path
    assert "A reviewer or an admin of this workspace releases it." in text_of(
        alice.get("/gate").content.decode()
    )


def test_bob_releases_it_with_a_reason_and_is_told_what_that_does_not_do(world: World) -> None:
    run, bob = world.run(), browser(world.bob)
    held = world.run("held")
    world.stop(held, mode="pause")
    drain_run(held.pk)
    shut(browser(world.alice))
    stop = StopRequest.objects.get(scope="workspace")
    page = text_of(bob.get("/gate").content.decode())
    assert "Releasing starts nothing. 1 paused run stays paused until resumed one by one." in page
    assert "New runs may be admitted." in page
    assert "1 run was active when it shut and stays refused: pause and resume it to let it go on." in page
    blank = bob.post("/gate/release", {"stop": stop.pk, "reason": " "})
    assert (blank.status_code, gate_of(world)) == (422, "SHUT")
    assert "a release needs a reason" in blank.content.decode()
    other = bob.post("/gate/release", {"stop": "stp_0", "reason": "right"}, follow=True)
    assert "Another stop holds this gate by now" in text_of(other.content.decode())
    released = bob.post("/gate/release", {"stop": stop.pk, "reason": "right again"}, follow=True)
    assert "The gate is open. Nothing was started by this" in text_of(released.content.decode())
    assert (gate_of(world), fresh(stop).closed_because) == ("OPEN", "released")
    assert "Every gate refuses it" in text_of(bob.get(f"/runs/{run.pk}/").content.decode())
    report = text_of(bob.get(f"/runs/{run.pk}/report").content.decode())
    assert "The gate of its workspace was shut at" in report
    assert "may start new work" not in report


def test_a_second_press_joins_and_nothing_that_can_not_be_read_refuses_one(world: World) -> None:
    shut(browser(world.alice))
    said = shut(browser(world.bob), key="", reason="<b>", note="n" * 9000, deadline_s="-1")
    assert "The gate is shut already, by stop #1. Your request was added to it." in said
    assert (StopRequest.objects.count(), Press.objects.count()) == (1, 2)


def test_roles_decide_and_a_foreign_workspace_is_not_there(world: World) -> None:
    dana, mallory, alice = browser(world.dana), browser(world.mallory), browser(world.alice)
    assert dana.post("/gate/shut", {}).status_code == 403
    foreign = mallory.post(f"/gate/shut?workspace={world.workspace.slug}", {})
    assert (foreign.status_code, gate_of(world)) == (404, "OPEN")
    shut(alice)
    assert alice.post("/gate/release", {"reason": "mine"}).status_code == 403
    theirs = mallory.post(f"/gate/release?workspace={world.workspace.slug}", {"reason": "mine"})
    assert (theirs.status_code, gate_of(world)) == (404, "SHUT")


def test_a_press_without_a_sign_in_comes_back_with_its_key_for_the_same_workspace(world: World) -> None:
    path = f"/gate/shut?workspace={world.workspace.slug}"
    first = browser().post(path, {"key": "k-7"})["Location"]
    back = unquote(first.removeprefix("/sign-in?next="))
    assert back == f"/gate?key=k-7&workspace={world.workspace.slug}"
    assert "NOT recorded yet" in browser().get(first).content.decode()
    form = browser(world.alice).get(back).content.decode()
    assert 'name="key" value="k-7"' in form
    assert f'action="{path}"' in form


def test_a_press_that_the_store_does_not_answer_says_loudly_that_it_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(gates, "shut", away)
    path = f"/gate/shut?workspace={world.workspace.slug}"
    answer = browser(world.alice).post(path, {"key": "k-7", "note": "prices"})
    assert answer.status_code == 503
    html = answer.content.decode()
    assert "Your stop was NOT recorded." in html
    assert f'action="{path}"' in html, "the same workspace, not the person's first"
    assert 'name="key" value="k-7"' in html
    assert StopRequest.objects.count() == 0


def test_after_a_restore_an_admin_opens_and_pages_say_what_is_missing(world: World) -> None:
    run = world.run()
    restorer, wish = access.Actor("system:restore", via="restore"), Wish(mode="pause", reason="restore")
    scopes.shut_gate(world.workspace, world.workspace, restorer, wish, database_time())
    taken_at = datetime(2026, 11, 29, 12, tzinfo=UTC)
    Restore.objects.create(taken_at=taken_at, restored_at=database_time(), digest="d")
    bob, erin = browser(world.bob), browser(an_admin(world))
    missing = "Restored from a backup taken 29 Nov 2026, 12:00:00 UTC; what was recorded between"
    for path in ("/runs/", "/gate", f"/runs/{run.pk}/", f"/runs/{run.pk}/report"):
        assert missing in text_of(bob.get(path).content.decode()), path
    assert bob.post("/gate/release", {"reason": "right"}).status_code == 403
    assert "Stops that were acknowledged after the backup are lost" in text_of(
        erin.get("/gate").content.decode()
    )
    erin.post("/gate/release", {"reason": "all is there"})
    assert gate_of(world) == "OPEN"
    for path in (f"/runs/{run.pk}/", f"/runs/{run.pk}/report"):
        assert missing in text_of(bob.get(path).content.decode()), path
    later = world.run("later")
    for path in (f"/runs/{later.pk}/", f"/runs/{later.pk}/report"):
        assert missing not in text_of(bob.get(path).content.decode()), path
