"""Stop, pressed on a page: recorded and said so, or said loudly that it is not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client

from runs import stops
from runs.models import Press, Run, StopRequest
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)
JSON = {"Accept": "application/json"}


@pytest.fixture
def world() -> World:
    return World()


def press(client: Client, run: Run, key: str = "k-1", **more: Any) -> Any:
    return client.post(f"/runs/{run.pk}/stop", {"key": key, "reason": "cost", "deadline_s": "300", **more})


def ask(client: Client, run: Run, key: str = "k-1", **more: Any) -> Any:
    return client.post(f"/runs/{run.pk}/stop", {"key": key, **more}, headers=JSON)


def test_alice_stops_a_run_with_a_plain_form(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    answer = press(alice, run, note="wrong prices")
    assert answer.status_code == 302
    assert answer["Location"] == f"/runs/{run.pk}/"
    said = text_of(alice.get(answer["Location"]).content.decode())
    assert "Stop #1 recorded" in said
    assert "New work is refused from version 2." in said
    stop = StopRequest.objects.get()
    assert (stop.reason, stop.note, stop.deadline_s, stop.actor) == (
        "cost",
        "wrong prices",
        300,
        world.alice.id,
    )


def test_the_same_press_again_is_the_same_stop_and_the_same_press(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    assert [ask(alice, run).status_code for _ in range(3)] == [201, 200, 200]
    assert StopRequest.objects.count() == 1
    assert Press.objects.count() == 1
    assert Run.objects.get().cancel_version == 2


def test_a_second_person_joins_and_is_told_who_was_first(world: World) -> None:
    run = world.run()
    press(browser(world.alice), run)
    answer = ask(browser(world.bob), run, key="k-2").json()
    assert answer["recorded"] is True
    assert answer["sentence"].startswith("Already stopping since")
    assert "(#1, Alice)" in answer["sentence"]
    assert Press.objects.count() == 2


def test_what_can_not_be_read_is_left_out_and_named_never_refused(world: World) -> None:
    run = world.run()
    answer = ask(
        browser(world.alice), run, key="k" * 900, reason="<b>", deadline_s="-1", note="n" * 5000, mode="x"
    )
    assert answer.status_code == 201
    assert "reason, deadline_s and note after 2000 characters" in answer.json()["sentence"]
    assert StopRequest.objects.get().deadline_s == 60


def test_a_press_without_any_field_is_recorded(world: World) -> None:
    run = world.run()
    assert browser(world.alice).post(f"/runs/{run.pk}/stop").status_code == 302
    assert StopRequest.objects.count() == 1


def test_a_stop_of_a_finished_run_says_that_it_had_finished(world: World) -> None:
    from effects.ends import complete

    run = world.run()
    complete(actor=world.agent, run_id=run.pk, seen=1)
    answer = ask(browser(world.alice), run)
    assert answer.status_code == 200
    assert "had already finished, completed" in answer.json()["sentence"]
    assert Run.objects.get().cancel_version == 1


def test_dana_who_only_reads_gets_no_button_and_no_stop(world: World) -> None:
    run, dana = world.run(), browser(world.dana)
    page = dana.get(f"/runs/{run.pk}/").content.decode()
    assert "Stop run…" not in page
    assert "stop-dlg" not in page
    assert dana.get(f"/runs/{run.pk}/stop").status_code == 403
    assert "Your stop was NOT recorded." in press(dana, run).content.decode()
    answer = ask(dana, run)
    assert (answer.status_code, answer.json()["recorded"]) == (403, False)
    assert StopRequest.objects.count() == 0


def test_the_owner_of_a_run_may_stop_it_whatever_the_role(world: World) -> None:
    run = world.run()
    Run.objects.filter(pk=run.pk).update(owner=world.dana.user)
    dana = browser(world.dana)
    assert "Stop run…" in dana.get(f"/runs/{run.pk}/").content.decode()
    assert ask(dana, run).status_code == 201


def test_a_session_that_ended_under_the_dialog_comes_back_with_the_same_key(world: World) -> None:
    run, nobody = world.run(), browser()
    answer = press(nobody, run, key="the-key", note="wrong prices")
    assert answer.status_code == 302
    sign_in = nobody.get(answer["Location"]).content.decode()
    assert "Your stop is NOT recorded yet." in sign_in
    assert StopRequest.objects.count() == 0
    assert world.alice.user is not None
    who = {"login": world.alice.user.email, "password": "a long password"}
    back = nobody.post(answer["Location"], who, follow=True)
    html = back.content.decode()
    assert "Your stop is NOT recorded yet." in html
    assert 'name="key" value="the-key"' in html
    assert "wrong prices</textarea>" in html
    assert '<option value="300" selected>' in html
    assert press(nobody, run, key="the-key").status_code == 302
    assert Press.objects.get().key == "the-key"


def test_a_script_whose_session_ended_comes_back_to_the_run_with_the_dialog_open(world: World) -> None:
    run, nobody = world.run(), browser()
    answer = ask(nobody, run, key="the-key", note="wrong prices", deadline_s="300")
    assert answer.status_code == 401
    assert answer.json()["recorded"] is False
    sign_in = answer.json()["sign_in"]
    assert "Your stop is NOT recorded yet." in nobody.get(sign_in).content.decode()
    assert world.alice.user is not None
    who = {"login": world.alice.user.email, "password": "a long password"}
    html = nobody.post(sign_in, who, follow=True).content.decode()
    dialog = html.partition("<dialog")[2].partition("</dialog>")[0]
    assert "data-open" in dialog
    assert 'role="alert"><b>Your stop is NOT recorded yet.</b>' in dialog
    assert 'name="key" value="the-key"' in dialog
    assert "wrong prices</textarea>" in dialog
    assert '<option value="300" selected>' in dialog
    assert StopRequest.objects.count() == 0
    assert "data-open" not in nobody.get(f"/runs/{run.pk}/").content.decode()


def test_a_form_that_came_back_to_a_run_that_is_stopping_by_now_is_told_so(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.stop(run, by=world.bob)
    said = text_of(alice.get(f"/runs/{run.pk}/?key=the-key", follow=True).content.decode())
    assert "Your stop is NOT recorded yet." in said
    assert "Stop #1 was recorded" in said
    assert "by Bob, in mode cancel. A stronger press replaces it." in said


@pytest.mark.parametrize("path", ["", "stop"])
def test_a_form_that_came_back_but_was_recorded_after_all_says_nothing_else(world: World, path: str) -> None:
    run, alice = world.run(), browser(world.alice)
    press(alice, run, key="the-key")
    answer = alice.get(f"/runs/{run.pk}/{path}?key=the-key", follow=True)
    html = answer.content.decode()
    assert answer.redirect_chain[-1][0] == f"/runs/{run.pk}/"
    assert "NOT recorded" not in html
    assert "Stop #1 recorded by Alice" in html


def test_a_sign_in_on_the_way_to_something_else_speaks_of_no_stop(world: World) -> None:
    for path in ("/stop", "/runs/", f"/runs/{world.run().pk}/stop"):
        assert "NOT recorded" not in browser().get(path, follow=True).content.decode()


def test_signing_in_leaves_no_message_behind(world: World) -> None:
    assert world.alice.user is not None
    who = {"login": world.alice.user.email, "password": "a long password"}
    html = browser().post("/sign-in?next=/runs/", who, follow=True).content.decode()
    assert "Successfully" not in html
    assert 'class="note"' not in html


def again_in(html: str) -> dict[str, str]:
    """The form that a page offers to send once more."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="(.*?)">', html))


def test_a_store_that_does_not_answer_is_said_as_loudly_as_a_page_can_and_the_same_form_is_offered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> None:
        raise OperationalError("the database is gone")

    run, alice = world.run(), browser(world.alice)
    with monkeypatch.context() as patch:
        patch.setattr(stops, "request_stop", fails)
        page = press(alice, run, note="wrong prices")
        answer = ask(alice, run)
    assert page.status_code == 503
    html = page.content.decode()
    assert 'role="alert"><b>Your stop was NOT recorded.</b>' in html
    assert "Try again: the same key is used, there will be one stop." in html
    assert (answer.status_code, answer.json()["recorded"]) == (503, False)
    form = again_in(html)
    assert (form["key"], form["note"], form["deadline_s"]) == ("k-1", "wrong prices", "300")
    assert alice.post(f"/runs/{run.pk}/stop", form).status_code == 302
    assert Press.objects.get().key == "k-1"


def test_a_commit_whose_answer_was_lost_is_called_unknown_and_the_same_key_finds_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, alice = world.run(), browser(world.alice)
    commit = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

    def commit_and_lose(self: BaseDatabaseWrapper) -> None:
        commit(self)
        raise OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "_commit", commit_and_lose)
        page = press(alice, run)
        answer = ask(alice, run)
    html = page.content.decode()
    assert page.status_code == 503
    assert (
        "<b>We do not know whether your stop was recorded.</b>"
        " Try again: the same key is used, there will be one stop." in html
    )
    assert "NOT recorded" not in html
    assert (answer.status_code, answer.json()["recorded"]) == (503, None)
    assert alice.post(f"/runs/{run.pk}/stop", again_in(html)).status_code == 302
    assert StopRequest.objects.count() == Press.objects.count() == 1


@pytest.mark.parametrize("way", [ask, press])
def test_the_answer_needs_nothing_from_a_store_that_dies_after_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    run, alice, real, gone = world.run(), browser(world.alice), stops.request_stop, []

    def then_it_dies(**asked: Any) -> Any:
        answer = real(**asked)
        gone.append(True)
        return answer

    def statement(execute: Any, *rest: Any) -> Any:
        if gone:
            raise OperationalError("the database is gone")
        return execute(*rest)

    monkeypatch.setattr(stops, "request_stop", then_it_dies)
    with connection.execute_wrapper(statement):
        answer = way(alice, run)
    assert answer.status_code == (201 if way is ask else 302)


def test_the_form_asks_in_the_order_in_which_one_decides(world: World) -> None:
    run = world.run()
    for path in ("", "stop"):
        html = browser(world.alice).get(f"/runs/{run.pk}/{path}").content.decode()
        form = text_of(html.partition('id="stop-form"')[2].partition("</form>")[0])
        heads = ["1 What", "2 How", "3 What this means now", "4 Deadline", "5 Why"]
        places = [form.index(head) for head in heads]
        assert places == sorted(places)


def test_a_form_from_elsewhere_records_nothing_and_says_so(world: World) -> None:
    run = world.run()
    strict = browser(world.alice, strict=True)
    page = press(strict, run)
    assert page.status_code == 403
    assert "Your stop was NOT recorded." in page.content.decode()
    assert ask(strict, run).json()["recorded"] is False
    assert StopRequest.objects.count() == 0


def test_reading_the_form_stops_nothing(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    for path in ("stop", "stop?key=k-1&reason=cost", "stop/preview"):
        assert alice.get(f"/runs/{run.pk}/{path}").status_code == 200
    assert StopRequest.objects.count() == 0


def test_the_preview_names_what_a_stop_would_meet(world: World) -> None:
    run = world.run(ungateable=["web_search"])
    world.report(world.opened(run, "charge:1"))
    world.opened(run, "charge:2")
    world.claimed(run, "later")
    said = text_of(browser(world.alice).get(f"/runs/{run.pk}/stop/preview").content.decode())
    assert "1 queued step will be refused." in said
    assert "1 action is in flight, charge:2, since" in said
    assert "It may still complete." in said
    assert "1 effect already happened; stopping does not undo it." in said
    assert "1 tool runs at the provider and cannot be refused by us." in said


def test_a_run_key_in_the_address_is_never_obeyed_as_markup(world: World) -> None:
    run = world.run()
    html = browser(world.alice).get(f"/runs/{run.pk}/stop", {"key": '"><script>x'}).content.decode()
    assert "<script>x" not in html
