"""Planned stops: the moment is shown in UTC before it is kept, whoever may stop there plans and withdraws."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard import plan_words
from runs import policies, schedules
from runs.access import Actor
from runs.models import Run, ScheduledStop, Session
from runs.policies import Match
from runs.presses import Wish
from runs.schedules import Moment, What, read_clock
from runs.store import Now, database_time
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_run, in_seconds

pytestmark = pytest.mark.django_db
NEW = "/stops/planned/new"
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


@pytest.fixture
def world() -> World:
    return World()


# Written by hand: what is said by the clock there, and the sentence that the page owes for it.
SENTENCES = {
    ("2026-01-15T12:00", "Europe/Berlin"): "",
    ("2026-03-29T02:30", "Europe/Berlin"): (
        "02:30 does not exist on 29 Mar 2026 in Europe/Berlin: the clocks go from 02:00 straight to 03:00."
        " That very moment is taken."
    ),
    ("2026-10-25T02:30", "Europe/Berlin"): (
        "02:30 exists twice on 25 Oct 2026 in Europe/Berlin: at 00:30 UTC, and again at 01:30 UTC, when the"
        " clocks were put back. The first of the two is taken."
    ),
    ("2026-10-04T02:15", "Australia/Lord_Howe"): (
        "02:15 does not exist on 4 Oct 2026 in Australia/Lord_Howe: the clocks go from 02:00 straight to"
        " 02:30. That very moment is taken."
    ),
    ("2011-12-30T12:00", "Pacific/Apia"): (
        "12:00 does not exist on 30 Dec 2011 in Pacific/Apia: the clocks go from 30 Dec 2011, 00:00 straight"
        " to 31 Dec 2011, 00:00. That very moment is taken."
    ),
}


@pytest.mark.parametrize(("said", "sentence"), SENTENCES.items(), ids=[" ".join(said) for said in SENTENCES])
def test_a_time_that_no_clock_shows_or_that_each_shows_twice_is_said_so(
    said: tuple[str, str], sentence: str
) -> None:
    assert plan_words.reading_words(read_clock(datetime.fromisoformat(said[0]), said[1])) == sentence


def last_sunday_of_march() -> datetime:
    """When the clocks of Berlin next skip from 02:00 to 03:00."""
    now = database_time()
    days = (datetime(year, 3, 31, 1, tzinfo=UTC) for year in (now.year, now.year + 1))
    return next(at for day in days if (at := day - timedelta(days=(day.weekday() + 1) % 7)) > now)


def filled(**more: str) -> dict[str, str]:
    day = in_seconds(30 * 86_400)
    usual = {"what": "workspace", "mode": "pause", "reason": "cost", "note": "before <b>audit</b>"}
    when = {"date": f"{day:%Y-%m-%d}", "time": "12:00", "zone": "UTC", "deadline_s": "60"}
    return {**usual, **when, "go": "show", **more}


def address(world: World, path: str = NEW) -> str:
    return f"{path}?workspace={world.workspace.slug}"


def said(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return text_of(answer.content.decode())


def planned(
    world: World, what: What | None = None, seconds: float = 60, by: Actor | None = None
) -> ScheduledStop:
    named: dict[str, Any] = {"actor": by or world.alice, "workspace_id": world.workspace.pk}
    when = Moment(in_seconds(seconds))
    return schedules.schedule(**named, what=what or What("workspace"), wish=Wish(), when=when)


def pressed(made: ScheduledStop) -> ScheduledStop:
    ScheduledStop.objects.filter(pk=made.pk).update(at=in_seconds(-1))
    assert schedules.press(made.pk) is not None
    return ScheduledStop.objects.get(pk=made.pk)


# planning -------------------------------------------------------------------------------------------------


def test_the_moment_is_shown_in_utc_first_and_kept_by_a_second_press(world: World) -> None:
    alice, skip = browser(world.alice, strict=True), last_sunday_of_march()
    form = alice.get(address(world)).content.decode()
    token = {"csrfmiddlewaretoken": form.partition('name="csrfmiddlewaretoken" value="')[2][:64]}
    sent = filled(date=f"{skip:%Y-%m-%d}", time="02:30", zone="Europe/Berlin")
    shown = alice.post(address(world), sent | token)
    page = text_of(shown.content.decode())
    assert f"02:30 does not exist on {skip:%-d %b %Y} in Europe/Berlin: the clocks go from 02:00" in page
    assert f"In UTC {skip:%-d %b %Y}, 01:00:00 UTC" in page
    assert not ScheduledStop.objects.exists()
    hidden = dict(FIELD.findall(shown.content.decode())) | {"note": sent["note"], "go": "keep"}
    for said_then in ("The stop is planned for", "This form was saved before"):
        answer = alice.post(address(world), hidden | token, follow=True)
        assert said_then in text_of(answer.content.decode())
    made = ScheduledStop.objects.get()
    schedules.withdraw(actor=world.bob, scheduled_id=made.pk)
    for said_then in ("The stop is planned for", "Nothing was changed: this stop was pressed"):
        answer = alice.post(address(world), hidden | token, follow=True)
        assert said_then in text_of(answer.content.decode()), "one that was withdrawn is no answer"
        ScheduledStop.objects.exclude(pk=made.pk).update(pressed_at=Now())
    assert ScheduledStop.objects.count() == 2
    assert (made.at, made.reading, made.zone, made.mode) == (skip, "skipped", "Europe/Berlin", "pause")
    assert (made.reason, made.note, made.actor) == ("cost", "before <b>audit</b>", world.alice.id)
    listed = said(alice, address(world, "/stops/planned"))
    assert f"{skip:%-d %b %Y}, 02:30 Europe/Berlin {skip:%-d %b %Y}, 01:00:00 UTC" in listed
    assert "02:30 does not exist" in listed


def test_what_was_shown_is_what_is_kept(world: World) -> None:
    alice = browser(world.alice)
    hidden = dict(FIELD.findall(alice.post(address(world), filled()).content.decode()))
    moved = alice.post(address(world), hidden | {"time": "13:00", "go": "keep"})
    assert "13:00:00 UTC" in text_of(moved.content.decode())
    assert not ScheduledStop.objects.exists()
    back = alice.post(address(world), hidden | {"go": "change"}).content.decode()
    assert (hidden["date"] in back, "Nothing is planned yet" in back) == (True, False)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"what": "planet"}, "Choose what is to be stopped."),
        ({"what": "run"}, "Which run? Give its key."),
        ({"what": "session", "session": "a\u200bb"}, "No session can have this key"),
        ({"what": "policy", "policy": "pol_absent"}, "Choose a policy."),
        ({"mode": "nonsense"}, "This could not be read: mode."),
        ({"date": "2027-02-30"}, "Give a date and a time"),
        ({"time": "12:00+01:00"}, "Give a date and a time"),
        ({"zone": "Mars/Base"}, "Choose a time zone from the list."),
        ({"date": "2001-01-01"}, "1 Jan 2001, 12:00:00 UTC, is over"),
        ({"date": "9998-01-01"}, "is more than a year ahead."),
    ],
)
def test_what_can_not_be_read_is_said_and_the_form_keeps_what_was_typed(
    world: World, wrong: dict[str, str], why: str
) -> None:
    answer = browser(world.alice).post(address(world), filled(**wrong))
    html = answer.content.decode()
    assert answer.status_code == 422
    assert why in text_of(html)
    assert "before &lt;b&gt;audit&lt;/b&gt;" in html
    assert not ScheduledStop.objects.exists()


def test_a_run_is_named_by_key_or_id_and_a_session_need_not_be_there_yet(world: World) -> None:
    run, alice = world.run("nightly"), browser(world.alice)
    for typed in ("nightly", run.pk):
        shown = text_of(alice.post(address(world), filled(what="run", run=typed)).content.decode())
        assert "Run “nightly”" in shown
    absent = text_of(alice.post(address(world), filled(what="run", run="later")).content.decode())
    assert "No run has this key yet." in absent
    shown_session = alice.post(address(world), filled(what="session", session="s-1"))
    assert "No run of it is at work now." in text_of(shown_session.content.decode())
    assert not Session.objects.exists()
    alice.post(address(world), dict(FIELD.findall(shown_session.content.decode())) | {"go": "keep"})
    assert ScheduledStop.objects.get().session == Session.objects.get(key="s-1")


def test_the_usual_zones_come_first_the_persons_own_before_those_of_others(world: World) -> None:
    for who, zone in ((world.alice, "Asia/Tokyo"), (world.bob, "Europe/Berlin")):
        ScheduledStop.objects.filter(pk=planned(world, by=who).pk).update(zone=zone)
    html = browser(world.alice).get(address(world)).content.decode()
    usual = html.partition('<optgroup label="Usual">')[2].partition("</optgroup>")[0]
    assert re.findall(r"<option( selected)?>([^<]+)", usual) == [
        *((" selected", "Asia/Tokyo"), ("", "Europe/Berlin"), ("", "UTC")),
    ]
    assert "<option>America/New_York</option>" in html


def test_a_session_that_ended_under_the_form_brings_it_back(world: World) -> None:
    answer = browser().post(address(world), filled(go="keep", time="13:37"))
    assert answer["Location"].startswith("/sign-in?next=%2Fstops%2Fplanned%2Fnew%3F")
    back = answer["Location"].partition("next=")[2].replace("%3F", "?").replace("%3D", "=")
    path = back.replace("%26", "&").replace("%2F", "/").replace("%253A", "%3A").replace("%25", "%")
    assert 'value="13:37"' in browser(world.alice).get(path).content.decode()
    assert not ScheduledStop.objects.exists()


def test_a_store_that_does_not_answer_is_said_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**kw: Any) -> None:
        raise OperationalError

    alice = browser(world.alice)
    hidden = dict(FIELD.findall(alice.post(address(world), filled()).content.decode()))
    monkeypatch.setattr(schedules, "schedule", away)
    answer = alice.post(address(world), hidden | {"go": "keep"})
    assert answer.status_code == 503
    assert "We do not know whether" in text_of(answer.content.decode())
    assert f'name="key" value="{hidden["key"]}"' in answer.content.decode()


# the list -------------------------------------------------------------------------------------------------


def test_the_list_says_what_each_press_will_meet(world: World) -> None:
    world.run("at-work")
    quiet = Session.objects.create(workspace=world.workspace, key="quiet")
    a_run("COMPLETED", world.workspace, key="asleep", session=quiet, session_epoch=quiet.epoch)
    world.stop(world.run("held"), mode="pause")
    for key in ("at-work", "asleep", "held", "never-came"):
        planned(world, What("run", run_key=key))
    planned(world, What("session", quiet.pk))
    match = Match(classes=("external_write",))
    named: dict[str, Any] = {"actor": world.alice, "workspace_id": world.workspace.pk, "match": match}
    planned(world, What("policy", policies.create_policy(name="writes", **named).pk))
    page = said(browser(world.dana), address(world, "/stops/planned"))
    assert "6 planned" in page
    for one in (
        *("This run has ended: completed.", "This run is stopped already: paus", "No run has this key yet."),
        *("No run of it is at work now.", "it is recorded as a pause."),
    ):
        assert page.count(one) == 1, one


def test_a_pressed_one_leads_to_its_stop_and_says_what_it_met(world: World) -> None:
    run = world.run("a")
    a_run("COMPLETED", world.workspace, key="b")
    of_runs = [What("run", run_key=key) for key in ("a", "b", "absent")]
    made = [pressed(planned(world, what)) for what in (*of_runs, What("workspace"))]
    html = browser(world.dana).get(address(world, "/stops/planned")).content.decode()
    for href in (f"/runs/{run.pk}/", f"/stops/{made[2].stop_id}/", f"/stops/{made[3].stop_id}/"):
        assert f'href="{href}">stop #' in html
    page = text_of(html)
    assert "The run had ended before. No work was left to refuse." in page
    assert "The run was not registered. The stop waits for it" in page
    assert "No stop is planned." in page
    assert "Allstop planned by Alice" in said(browser(world.dana), f"/stops/{made[3].stop_id}/")


def test_one_that_nobody_presses_is_called_overdue(world: World) -> None:
    due, overdue = planned(world), planned(world)
    ScheduledStop.objects.filter(pk=due.pk).update(at=in_seconds(-5))
    ScheduledStop.objects.filter(pk=overdue.pk).update(at=in_seconds(-300))
    html = browser(world.alice).get(address(world, "/stops/planned")).content.decode()
    assert "no worker runs. Stop by hand" in text_of(html)
    assert 'data-favicon="needs"' in html
    assert "It is pressed within seconds." in text_of(html)


def test_the_stops_page_shows_the_next_ones_and_leads_there(world: World) -> None:
    assert "Planned next" not in said(browser(world.dana), address(world, "/stops/"))
    for seconds in (400, 100, 300, 200):
        planned(world, What("run", run_key=f"in-{seconds}"), seconds)
    html = browser(world.dana).get(address(world, "/stops/")).content.decode()
    panel = html.partition('id="h-planned"')[2].partition("</section>")[0]
    assert re.findall(r"in-\d+", panel) == ["in-100", "in-200", "in-300"]
    assert f'href="{address(world, "/stops/planned")}"' in html


def test_both_pages_ask_as_often_for_many_as_for_few(world: World) -> None:
    dana, asked = browser(world.dana), []
    for number in (4, 200):
        for n in range(number):
            made = What("session", session_key=f"s-{number}-{n}") if n % 2 else What("run", run_key=f"{n}")
            if n < 4:
                pressed(planned(world, What("run", run_key=f"over-{number}-{n}")))
                planned(world, made)
        many: dict[str, Any] = {"scope": "run", "mode": "cancel", "at": in_seconds(60)}
        ScheduledStop.objects.bulk_create(
            ScheduledStop(workspace=world.workspace, run_key=f"{n}", actor=world.bob.id, **many)
            for n in range(number)
        )
        for path in ("/stops/planned", "/stops/"):
            with CaptureQueriesContext(connection) as queries:
                assert dana.get(address(world, path)).status_code == 200
            asked.append(len(queries))
    assert asked[:2] == asked[2:]
    assert max(asked) <= 24, asked


def test_the_list_pages_through_those_that_are_over(world: World) -> None:
    for n in range(27):
        one = ScheduledStop(workspace=world.workspace, scope="run", run_key=f"r-{n:02}", mode="cancel")
        one.at, one.actor, one.withdrawn_at = in_seconds(60), world.alice.id, in_seconds(0)
        one.save()
    html = browser(world.dana).get(address(world, "/stops/planned")).content.decode()
    assert html.count("<tr role=") == 26
    older = re.search(r'class="btn" href="([^"]+)">Older ones', html)
    assert older is not None
    assert re.findall(r"r-\d\d", said(browser(world.dana), older[1].replace("&amp;", "&"))) == [
        "r-01",
        "r-00",
    ]


# withdrawing, and who may ---------------------------------------------------------------------------------


def test_it_is_withdrawn_with_a_reason_and_never_after_its_press(world: World) -> None:
    made, bob = planned(world), browser(world.bob)
    path = f"/stops/planned/{made.pk}/withdraw"
    assert "Withdrawn, it is never pressed." in said(bob, path)
    assert bob.post(path, {"reason": " "}).status_code == 422
    page = text_of(bob.post(path, {"reason": "audit is off"}, follow=True).content.decode())
    assert "The planned stop is withdrawn. It will not be pressed." in page
    assert "by Bob: audit is off" in page
    again = bob.post(path, {"reason": "again"})
    assert (again.status_code, "pressed or withdrawn before" in again.content.decode()) == (409, True)
    late = pressed(planned(world))
    assert "a stop that was pressed is not withdrawn" in said(bob, f"/stops/planned/{late.pk}/withdraw")
    assert bob.post(f"/stops/planned/{late.pk}/withdraw", {"reason": "x"}).status_code == 409
    assert ScheduledStop.objects.get(pk=made.pk).withdrawn_why == "audit is off"


def test_a_viewer_reads_why_not_and_plans_only_for_a_run_of_their_own(world: World) -> None:
    made, dana = planned(world), browser(world.dana)
    path = f"/stops/planned/{made.pk}/withdraw"
    for page in (address(world, "/stops/planned"), address(world), path):
        html = dana.get(page).content.decode()
        assert "An operator of it plans stops, and withdraws them." in text_of(html)
        assert "Withdraw…" not in html
        assert 'id="plan-form"' not in html
    assert dana.post(address(world), filled()).status_code == 403
    assert dana.post(path, {"reason": "x"}).status_code == 403
    Run.objects.filter(pk=world.run("mine").pk).update(owner=world.dana.user)
    assert "You may plan stops of runs that you own" in said(dana, address(world))
    shown = dana.post(address(world), filled(what="run", run="mine"))
    dana.post(address(world), dict(FIELD.findall(shown.content.decode())) | {"go": "keep"})
    own = ScheduledStop.objects.get(run_key="mine")
    assert f"/stops/planned/{own.pk}/withdraw" in dana.get(address(world, "/stops/planned")).content.decode()
    assert dana.post(f"/stops/planned/{own.pk}/withdraw", {"reason": "x"}).status_code == 302
    assert dana.post(address(world), filled()).status_code == 403


def test_mallory_can_not_tell_one_from_one_that_is_not_there(world: World) -> None:
    made, mallory = planned(world), browser(world.mallory)
    for method in ("get", "post"):
        foreign, absent = (
            getattr(mallory, method)(f"/stops/planned/{pk}/withdraw") for pk in (made.pk, "sch_absent")
        )
        assert (foreign.status_code, absent.status_code) == (404, 404)
        assert foreign.content.replace(made.pk.encode(), b"") == absent.content.replace(b"sch_absent", b"")
    assert mallory.post(address(world), filled()).status_code == 404
    assert ScheduledStop.objects.get().withdrawn_at is None
