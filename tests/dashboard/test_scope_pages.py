"""Stops of scopes on pages: the dialog's “What”, the form, the list, one stop, its release, a new switch."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from effects.models import Effect, Kind
from runs import policies, releases, rules, scopes, stops
from runs.access import Actor
from runs.models import Policy, Press, Run, RunStatus, Session, StopPart, StopRequest, Workspace
from runs.policies import Match
from runs.rules import Rules
from runs.scopes import Target
from runs.stops import Wish
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World, a_kind, a_step, an_effect, fresh, in_seconds

pytestmark = pytest.mark.django_db(transaction=True)
JSON = {"Accept": "application/json"}


@pytest.fixture
def world() -> World:
    return World()


def said(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.content
    return text_of(answer.content.decode())


def form_of(kind: str, row: Any) -> str:
    return f"/stop/scope?scope={kind}&id={row.pk}"


def press(client: Client, path: str, **fields: str) -> str:
    """The page that a press leads to."""
    return text_of(client.post(path, {"key": "k-1", **fields}, follow=True).content.decode())


def stop_scope(world: World, target: Target, by: Actor | None = None, **wish: Any) -> StopRequest:
    return scopes.request_scope_stop(actor=by or world.alice, wish=Wish(**wish), target=target).stop


def whole(world: World) -> Target:
    return Target("workspace", world.workspace.pk)


# the form and the press -----------------------------------------------------------------------------------


def test_the_form_of_a_workspace_says_by_class_what_a_stop_would_meet(world: World) -> None:
    flying, queued, other = world.run("a"), world.run("b", session="nightly"), world.run("c")
    world.opened(flying, "charge:1")
    world.report(world.opened(queued, "mail:1"), provider_ref="m-1")
    world.stop(other, mode="pause")
    Run.objects.filter(pk=queued.pk).update(ungateable=["web_search"])
    page = said(browser(world.alice), form_of("workspace", world.workspace))
    assert "Stop workspace “Finance”?" in page
    assert "Pause: 2 runs will be paused. 1 more is stopping already." in page
    assert "Cancel: 3 runs (1 of them held already) will be refused new work and asked to end." in page
    assert re.search(r"1 action is in flight: charge:1, since \d\d:\d\d:\d\d\. It may still complete", page)
    assert "1 effect in flight has no compensation declared." in page
    assert "1 effect already happened; stopping does not undo it." in page
    assert "Not covered: 1 run has tools at the provider" in page
    assert "No new run of it is admitted until the stop is released." in page


def test_the_form_of_a_workspace_says_by_kind_what_can_be_compensated_and_what_cannot(world: World) -> None:
    run = world.run()
    for name, reversible, many in (
        ("bank.charge", "payment", 1),
        ("mail.send", "mail_sent", 2),
        ("own.x", "", 1),
    ):
        kind = a_kind(world.workspace, name, reversible=reversible)
        for n in range(many):
            an_effect(a_step(run), "CONFIRMED", kind=kind, key=f"{name}:{n}")
    for kind in Kind.objects.all():
        Effect.objects.filter(kind=kind).update(kind_name=kind.name)
    an_effect(a_step(run), "UNKNOWN", kind=Kind.objects.get(name="mail.send"))  # of which nobody knows
    page = said(browser(world.alice), form_of("workspace", world.workspace))
    mails = "2 effects of mail.send: it can’t be called back, because it lies in the mailboxes of others"
    money = "1 effect of bank.charge: it can be compensated by a refund"
    unsaid = "1 effect of own.x: its kind does not say whether it can be called back"
    assert page.index(mails) < page.index(money) < page.index(unsaid)
    assert "That would be a new action, which people decide on." in page


def test_alice_stops_a_workspace_and_the_page_of_the_stop_says_so(world: World) -> None:
    runs = [world.run(f"r-{n}") for n in range(3)]
    alice = browser(world.alice)
    page = press(alice, form_of("workspace", world.workspace), mode="cancel", reason="cost", note="prices")
    assert re.search(
        r"Stop #1 of workspace “Finance” recorded \d\d:\d\d:\d\d\.\d{3} UTC\. Its gate is shut", page
    )
    assert "3 recorded" in page
    assert "Alice" in page
    assert "Cost: prices" in page
    assert {fresh(run).status for run in runs} <= {"CANCELLING", "CANCELLED"}
    under = said(alice, f"/runs/{runs[0].pk}/")
    assert re.search("Under stop #1 of workspace “Finance” ?. Its own stop is a part of it.", under)


def test_a_press_in_the_dialog_of_a_run_reaches_its_session(world: World) -> None:
    mine, beside, apart = world.run("a", session="nightly"), world.run("b", session="nightly"), world.run("c")
    session, alice = Session.objects.get(), browser(world.alice)
    form = alice.get(f"/runs/{mine.pk}/").content.decode()
    assert f'value="session:{session.pk}"' in form
    assert f'value="workspace:{world.workspace.pk}"' in form
    preview = said(alice, f"/runs/{mine.pk}/stop/preview?what=session:{session.pk}")
    assert "2 runs will be paused" in preview
    sent = {"key": "k-1", "what": f"session:{session.pk}", "mode": "pause"}
    answer = alice.post(f"/runs/{mine.pk}/stop", sent, headers=JSON)
    assert answer.status_code == 201
    told = answer.json()
    assert told["sentence"].startswith("Stop #1 of session “nightly” recorded")
    assert told["href"] == f"/stops/{StopRequest.objects.get(scope='session').pk}/"
    assert [fresh(run).status != "ACTIVE" for run in (mine, beside, apart)] == [True, True, False]
    again = alice.post(f"/runs/{mine.pk}/stop", sent, headers=JSON)
    assert (again.status_code, StopRequest.objects.filter(scope="session").count()) == (200, 1)


def test_one_step_is_stopped_and_its_run_goes_on(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    step = world.claimed(run, "pay")
    preview = said(alice, f"/runs/{run.pk}/stop/preview?what=step&step={step.pk}")
    assert "Nothing more of “pay” is let through. The run goes on." in preview
    page = press(alice, f"/runs/{run.pk}/stop", what="step", step=step.pk)
    assert "of step “pay” recorded" in page
    assert fresh(run).status == "ACTIVE"
    listed = said(alice, "/stops/")
    assert "#1 step “pay”" in listed
    assert "Nothing more of this step is let through" in said(
        alice, f"/stops/{StopRequest.objects.get().pk}/"
    )


def test_what_nobody_can_read_means_the_run_that_was_looked_at(world: World) -> None:
    run, other = world.run("a"), world.run("b")
    browser(world.alice).post(f"/runs/{run.pk}/stop", {"key": "k-1", "what": "everything"})
    assert (fresh(run).cancel_version, fresh(other).cancel_version) == (2, 1)


def test_a_second_press_joins_a_stronger_one_replaces_and_unreadable_fields_are_named(world: World) -> None:
    path = form_of("workspace", world.workspace)
    press(browser(world.alice), path, mode="pause")
    joined = press(browser(world.bob), path, mode="pause", review="soon", ends="never")
    assert re.search(r"Workspace “Finance” is stopped already, since \d\d:\d\d:\d\d \(#1, Alice\)\.", joined)
    assert "Left out, because it could not be read: review and ends" in joined
    offered = browser(world.bob).get(path).content.decode()
    assert 'value="pause"' not in offered
    assert "Cancel: Your press will replace stop #1." in text_of(offered)
    assert "It replaces stop #1 (pause, Alice)." in press(browser(world.bob), path, mode="cancel", key="k-2")


def test_a_press_without_a_sign_in_comes_back_with_its_key_for_the_same_scope(world: World) -> None:
    path = form_of("workspace", world.workspace)
    first = browser().post(path, {"key": "k-7", "observe": "on"})["Location"]
    back = unquote(first.removeprefix("/sign-in?next="))
    assert back.startswith(f"/stop/scope?scope=workspace&id={world.workspace.pk}&key=k-7")
    assert "NOT recorded yet" in browser().get(first).content.decode()
    form = browser(world.alice).get(back).content.decode()
    assert 'name="key" value="k-7"' in form
    assert 'name="observe" value="on" checked' in form


def test_a_press_that_the_store_does_not_answer_says_loudly_that_it_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(scopes, "request_scope_stop", away)
    path = form_of("workspace", world.workspace)
    answer = browser(world.alice).post(path, {"key": "k-7", "note": "prices"})
    html = answer.content.decode()
    assert answer.status_code == 503
    assert "Your stop was NOT recorded." in html
    assert f'action="{path.replace("&", "&amp;")}"' in html
    assert 'name="key" value="k-7"' in html
    assert StopRequest.objects.count() == 0


def test_roles_decide_and_a_foreign_scope_is_not_there(world: World) -> None:
    path, dana, mallory = form_of("workspace", world.workspace), browser(world.dana), browser(world.mallory)
    assert (dana.get(path).status_code, dana.post(path, {}).status_code) == (403, 403)
    assert (mallory.get(path).status_code, mallory.post(path, {}).status_code) == (404, 404)
    stop = stop_scope(world, whole(world))
    for address in ("", "release", "review"):
        assert mallory.get(f"/stops/{stop.pk}/{address}").status_code == 404
        assert mallory.post(f"/stops/{stop.pk}/{address}", {"reason": "mine"}).status_code in (404, 405)
    assert browser(world.alice).post(f"/stops/{stop.pk}/release", {"reason": "mine"}).status_code == 403
    assert dana.post(f"/stops/{stop.pk}/review", {"review": "7"}).status_code == 403
    assert fresh(world_workspace(world)).gate == "SHUT"


def world_workspace(world: World) -> Any:
    return Workspace.objects.get(pk=world.workspace.pk)


# the list -------------------------------------------------------------------------------------------------


def test_the_list_tells_standing_active_and_past_stops_apart(world: World) -> None:
    bob = browser(world.bob)
    assert "No stop is in force." in said(bob, "/stops/")
    run, beside = world.run("a", session="nightly"), world.run("b", name="Books of May")
    standing = stop_scope(world, Target("session", Session.objects.get().pk), mode="pause", note="prices")
    StopRequest.objects.filter(pk=standing.pk).update(review_at=in_seconds(-60))
    world.refused(run)
    world.refused(run, "charge:8")
    world.stop(beside)
    page = said(bob, "/stops/")
    assert "Stops 1 in force" in page
    assert re.search(r"#1 session “nightly” pause In force Alice Other: prices", page)
    assert "refused 2 last 0 s ago" in page
    assert "overdue: nobody looked at it again" in page
    assert re.search(r"Active 1 not closed.*#3 run “Books of May” cancel", page)
    assert "No stop is over yet." in page
    releases.release(actor=world.bob, stop_id=standing.pk, reason="right again")
    page = said(bob, "/stops/")
    assert re.search(r"History .*#1 session “nightly” pause Released", page)


def test_a_stop_that_observes_counts_what_it_would_have_refused_until_it_is_enforced(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    page = press(alice, form_of("workspace", world.workspace), observe="on")
    assert "It only observes: nothing is refused" in page
    stop = StopRequest.objects.get()
    world.opened(run)
    assert "would have refused" in said(alice, "/stops/")
    detail = said(alice, f"/stops/{stop.pk}/")
    assert re.search(r"Would have refused \d", detail)
    assert "Enforce…" in detail
    page = press(alice, form_of("workspace", world.workspace), mode="pause", key="k-2")
    assert "Stop #2 of workspace “Finance” recorded" in page
    assert "Enforced by stop #2 ." in said(alice, f"/stops/{stop.pk}/")


def test_the_list_says_when_the_store_cannot_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("gone")

    alice = browser(world.alice)
    monkeypatch.setattr("dashboard.pages.stops.workspace_of", away)
    answer = alice.get("/stops/")
    assert answer.status_code == 503
    assert "We cannot confirm the state. Gates fail closed" in text_of(answer.content.decode())


def test_a_page_freshly_loaded_holds_exactly_the_region_that_would_be_fetched(world: World) -> None:
    world.run("a")
    stop, bob = stop_scope(world, whole(world), mode="pause"), browser(world.bob)
    for path in ("/stops/", f"/stops/{stop.pk}/"):
        title, _, region = (
            bob.get(path, headers={"HX-Request": "true"}).content.decode().partition("</title>")
        )
        page = bob.get(path).content.decode()
        moving = r"\d\d:\d\d:\d\d(\.\d{3})?|\d+ s ago"
        assert re.sub(moving, "", region.strip()) in re.sub(moving, "", page), path
        assert f"{title.strip()}</title>" in page


# release, review ------------------------------------------------------------------------------------------


def test_bob_releases_a_workspace_with_a_reason_and_nothing_is_started(world: World) -> None:
    runs = [world.run(f"r-{n}") for n in range(2)]
    stop, bob = stop_scope(world, whole(world), mode="pause"), browser(world.bob)
    page = said(bob, f"/stops/{stop.pk}/release")
    assert "Releasing starts nothing. 2 paused runs stay paused until resumed one by one." in page
    assert "New runs may be admitted." in page
    blank = bob.post(f"/stops/{stop.pk}/release", {"reason": " "})
    assert (blank.status_code, world_workspace(world).gate) == (422, "SHUT")
    assert "a release needs a reason" in blank.content.decode()
    page = press(bob, f"/stops/{stop.pk}/release", reason="right again")
    assert "Stop #1 is released. Nothing was started by this" in page
    assert world_workspace(world).gate == "OPEN"
    assert {fresh(run).status for run in runs} <= {RunStatus.PAUSING, RunStatus.PAUSED}
    assert "holds nothing any more" in said(bob, f"/stops/{stop.pk}/release")


def test_a_stop_that_is_still_being_fenced_is_not_released_and_says_how_far_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("a")
    monkeypatch.setattr(scopes, "_fence", lambda stop_id: False)
    stop, bob = stop_scope(world, whole(world), mode="pause"), browser(world.bob)
    assert "It is still being fenced" in said(bob, f"/stops/{stop.pk}/release")
    early = bob.post(f"/stops/{stop.pk}/release", {"reason": "right"})
    assert (early.status_code, world_workspace(world).gate) == (409, "SHUT")
    assert "0 of 1 runs had their turn" in text_of(early.content.decode())
    page = said(bob, f"/stops/{stop.pk}/")
    assert "Establishing" in page
    assert "We are establishing what was in flight. 0 of 1 run so far." in page
    assert "Establish 0 of 1 runs what was in flight" in page


def test_where_the_rules_ask_for_it_a_second_person_grants_the_release(world: World) -> None:
    erin = an_admin(world)
    rules.change_rules(
        actor=erin, workspace_id=world.workspace.pk, version=0, rules=Rules(release_by_two=True)
    )
    stop = stop_scope(world, whole(world), mode="pause")
    bob, carol = browser(world.bob), browser(world.carol)
    assert "The rules ask for two people." in said(bob, f"/stops/{stop.pk}/release")
    asked = press(bob, f"/stops/{stop.pk}/release", reason="right again")
    assert "Your wish to release stop #1 is recorded." in asked
    assert "Bob asked to release it" in asked
    assert "You asked for it" in said(bob, f"/stops/{stop.pk}/release")
    assert "You are the second person" in said(carol, f"/stops/{stop.pk}/release")
    same = bob.post(f"/stops/{stop.pk}/release", {"reason": "right again"})
    assert (same.status_code, world_workspace(world).gate) == (409, "SHUT")
    granted = press(carol, f"/stops/{stop.pk}/release", reason="checked too")
    assert "Stop #1 is released" in granted
    assert world_workspace(world).gate == "OPEN"


def test_a_review_date_is_moved_and_ends_nothing(world: World) -> None:
    stop, alice = stop_scope(world, whole(world), mode="pause"), browser(world.alice)
    assert "The stop stands all the while" in said(alice, f"/stops/{stop.pk}/review")
    page = press(alice, f"/stops/{stop.pk}/review", review="30")
    assert "Stop #1 is looked at again" in page
    assert (fresh(stop).review_at or in_seconds(0)) > in_seconds(29 * 86_400)
    assert alice.post(f"/stops/{stop.pk}/review", {"review": "soon"}).status_code == 422
    assert "An operator of this workspace sets it." in said(browser(world.dana), f"/stops/{stop.pk}/review")


def test_what_was_in_flight_in_a_run_that_was_stopping_already_is_listed_too(world: World) -> None:
    run = world.run()
    world.opened(run, "charge:1")
    world.stop(run)
    stop = stop_scope(world, whole(world))
    assert "1 action listed as in flight, 1 still open" in said(browser(world.bob), f"/stops/{stop.pk}/")


# policies -------------------------------------------------------------------------------------------------


def test_a_new_switch_creates_a_policy_and_shuts_it_in_one_go(world: World) -> None:
    run, other = world.run("a", labels={"tag": "payments"}), world.run("b")
    alice = browser(world.alice)
    match = {"name": "no-payments", "labels": "tag=payments"}
    seen = alice.get("/stops/new/preview", match).content.decode()
    assert "1 run now; every future run that matches." in text_of(seen)
    page = press(alice, "/stops/new", **match, mode="cancel")
    assert "Stop #1 of policy “no-payments” recorded" in page
    assert "runs with tag = payments" in page
    assert (fresh(run).status == "ACTIVE", fresh(other).status == "ACTIVE") == (False, True)
    assert "Wider" in alice.get(f"/runs/{other.pk}/stop").content.decode()
    again = press(alice, "/stops/new", **match, mode="cancel", key="k-2")
    assert "Policy “no-payments” is stopped already" in again
    assert StopRequest.objects.filter(scope="policy").count() == 1


def test_a_switch_of_effects_leaves_its_runs_at_work_and_says_so(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run, "charge:1")
    match = {"name": "no charges", "kinds": "bank.charge"}
    seen = text_of(alice.get("/stops/new/preview", match).content.decode())
    assert "bank.charge is refused in 1 run. The runs go on." in seen
    assert "1 action is in flight: charge:1" in seen
    page = press(alice, "/stops/new", **match)
    assert "What it names is refused from now on; the runs themselves go on." in page
    assert fresh(run).status == "ACTIVE"
    assert "bank.charge is refused; the run goes on." in said(alice, f"/runs/{run.pk}/")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "x"}, "Give labels, kinds or classes"),
        ({"name": "", "kinds": "k"}, "Give it a name."),
        ({"name": "x", "labels": "payments"}, "Write a label as name = value, not “payments”."),
    ],
)
def test_what_makes_no_policy_is_said_and_kept_in_the_form(
    world: World, fields: dict[str, str], why: str
) -> None:
    answer = browser(world.alice).post("/stops/new", {"key": "k-1", **fields})
    html = answer.content.decode()
    assert (answer.status_code, StopRequest.objects.count()) == (422, 0)
    assert why in text_of(html)
    assert "Your stop was NOT recorded." in html
    assert fields.get("labels", "") in html


def test_a_label_beyond_what_a_policy_holds_is_refused_and_never_left_out(world: World) -> None:
    labels = "\n".join(f"l{n} = a, b" for n in range(21))
    page = browser(world.alice).post("/stops/new", {"name": "x", "labels": labels})
    assert page.status_code == 422
    assert "Labels:" in text_of(page.content.decode())
    press(browser(world.alice), "/stops/new", name="x", labels=labels.rpartition("\n")[0])
    assert Policy.objects.get().match["labels"] == {f"l{n}": "a, b" for n in range(20)}


def test_a_switch_that_was_not_recorded_is_sent_again_with_each_tick(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(policies, "create_policy", away)
    form = {"key": "k-1", "name": "x", "classes": ["read", "delivery"]}
    html = browser(world.alice).post("/stops/new", form).content.decode()
    for ticked in form["classes"]:
        assert f'name="classes" value="{ticked}"' in html


def test_a_run_says_which_of_its_steps_in_flight_is_stopped(world: World) -> None:
    run, alice = world.run(), browser(world.alice)
    world.opened(run, "charge:1")
    press(alice, f"/runs/{run.pk}/stop", what="step", step=run.steps.get().pk)
    told = "Stop #1 of step “charge:1” . Nothing more of it is let through; the run goes on."
    assert told in said(alice, f"/runs/{run.pk}/")


# the old addresses, everywhere ----------------------------------------------------------------------------


def test_the_gates_old_addresses_lead_to_the_stop_of_the_workspace(world: World) -> None:
    alice = browser(world.alice)
    assert alice.get("/gate")["Location"] == form_of("workspace", world.workspace)
    old = alice.post("/gate/shut", {"key": "k-1", "reason": "cost"})
    stop = StopRequest.objects.get()
    assert (old["Location"], stop.mode, stop.reason) == (f"/stops/{stop.pk}/", "pause", "cost")
    assert alice.get("/gate")["Location"] == f"/stops/{stop.pk}/"
    assert alice.get("/gate/release")["Location"] == f"/stops/{stop.pk}/release"


def test_only_who_runs_the_installation_stops_all_workspaces(world: World) -> None:
    assert browser(an_admin(world)).get("/stop/everywhere").status_code == 404
    assert world.bob.user is not None
    type(world.bob.user).objects.filter(pk=world.bob.user.pk).update(is_superuser=True)
    bob = browser(world.bob)
    assert "All workspaces" in said(bob, "/stop")
    assert "All workspaces" not in said(browser(world.alice), "/stop")
    page = press(bob, "/stop/everywhere", mode="pause")
    assert "A stop of all workspaces is recorded." in page
    assert {space.gate for space in Workspace.objects.all()} == {"SHUT"}
    assert "All workspaces" not in said(browser(world.alice), "/stops/")
    rules.change_rules(
        actor=an_admin(world), workspace_id=world.workspace.pk, version=0, rules=Rules(release_by_two=True)
    )
    page = press(bob, "/stop/everywhere/release", reason="checked")
    assert "Released, but 1 workspace stays shut" in page
    stop = StopRequest.objects.get(workspace=world.workspace)
    report = said(bob, f"/stop/everywhere/{stop.wide_id}/report")
    assert "1 workspace is still shut by its stop: a second person has to grant that release." in report
    press(browser(world.carol), f"/stops/{stop.pk}/release", reason="checked too")
    assert {space.gate for space in Workspace.objects.all()} == {"OPEN"}


# bounds ---------------------------------------------------------------------------------------------------


def crowd(world: World, number: int) -> None:
    rows = [
        Run(
            workspace=world.workspace, key=f"crowd-{number}-{n}", name=f"crowd {n}", parameters_digest="",
            labels={"tag": "payments"}, session=Session.objects.get(),
            session_epoch=1,
        )
        for n in range(number)
    ]  # fmt: skip
    Run.objects.bulk_create(rows, batch_size=200)


def test_each_page_makes_as_many_queries_for_a_thousand_runs_as_for_ten(world: World) -> None:
    first = world.run("first", session="nightly", labels={"tag": "payments"})
    world.opened(first)
    made = policies.create_policy(
        actor=world.alice, workspace_id=world.workspace.pk, name="p", match=Match(labels={"tag": "payments"})
    )
    stop = StopRequest.objects.create(
        workspace=world.workspace, number=1, scope="policy", policy=made, mode="pause", actor="system",
        via="api", run_key="", gate_at=in_seconds(0), fenced_at=in_seconds(0),
    )  # fmt: skip
    bob = browser(world.bob)
    paths = ["/stops/", "/stop", "/stops/new?labels=tag%3Dpayments", f"/runs/{first.pk}/"]
    paths += [f"/stops/{stop.pk}/", f"/stops/{stop.pk}/release", f"/runs/{first.pk}/stop"]
    paths += [form_of("workspace", world.workspace), form_of("session", Session.objects.get())]

    def queries() -> dict[str, int]:
        told = {}
        for path in paths:
            with CaptureQueriesContext(
                connection,
            ) as seen:
                assert bob.get(path).status_code == 200, path
            told[path] = len(seen)
        return told

    def grow(number: int) -> None:
        crowd(world, number)
        held = Run.objects.filter(key__startswith=f"crowd-{number}-")
        parts = [StopPart(stop=stop, run=run, result="recorded", run_stop=stop) for run in held]
        StopPart.objects.bulk_create(parts, batch_size=200)

    grow(10)
    few = queries()
    grow(990)
    assert queries() == few
    assert max(few.values()) <= 45, few


def test_stop_presses_of_a_run_stay_as_they_were(world: World) -> None:
    """The negative control of the dialog: without “What”, it is this run and nothing else."""
    run, beside = world.run("a", session="nightly"), world.run("b", session="nightly")
    answer = browser(world.alice).post(f"/runs/{run.pk}/stop", {"key": "k-1"}, headers=JSON).json()
    assert answer["sentence"].startswith("Stop #1 recorded")
    assert (fresh(run).cancel_version, fresh(beside).cancel_version) == (2, 1)
    assert stops.stop_of(beside) is None
    assert Press.objects.count() == 1


def test_a_list_counts_the_runs_that_had_their_turn_and_not_those_that_wait_for_it(world: World) -> None:
    bulk = StopRequest.objects.create(
        workspace=world.workspace, number=1, scope="bulk", mode="cancel", actor="system", via="api",
        run_key="", runs_n=2,
    )  # fmt: skip
    for name, result in (("a", "recorded"), ("b", "pending")):
        StopPart.objects.create(stop=bulk, run=world.run(name), result=result)
    for path in ("/stops/", "/"):
        assert "1 of 2 runs reached" in said(browser(world.alice), f"{path}?workspace={world.workspace.slug}")


def test_what_observed_says_after_its_end_that_it_stopped_nothing(world: World) -> None:
    stop = stop_scope(world, whole(world), observe=True)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="seen enough")
    page = said(browser(world.alice), f"/stops/{stop.pk}/")
    assert "It holds nothing any more. The runs went on all the while." in page
    assert "stays stopped" not in page


def test_stops_of_drills_stand_in_no_list(world: World) -> None:
    drill, run = world.run("drill", drill=True), world.run("real")
    for one in (drill, run):
        world.stop(one)
    page = said(browser(world.alice), "/stops/")
    assert "run “real”" in page
    assert "run “drill”" not in page
