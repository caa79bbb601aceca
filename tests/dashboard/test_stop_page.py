"""Stop, pressed on a page: recorded and said so, or said loudly that it is not."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
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


def test_a_script_whose_session_ended_is_led_to_the_same_sign_in(world: World) -> None:
    answer = ask(browser(), world.run(), key="the-key")
    assert answer.status_code == 401
    assert answer.json()["recorded"] is False
    assert "key%3Dthe-key" in answer.json()["sign_in"]


def test_a_store_that_does_not_answer_is_said_as_loudly_as_a_page_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> None:
        raise OperationalError("the database is gone")

    run, alice = world.run(), browser(world.alice)
    monkeypatch.setattr(stops, "request_stop", fails)
    page = press(alice, run)
    assert page.status_code == 503
    assert 'role="alert"><b>Your stop was NOT recorded.</b>' in page.content.decode()
    answer = ask(alice, run)
    assert (answer.status_code, answer.json()["recorded"]) == (503, False)


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
