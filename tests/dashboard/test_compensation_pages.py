"""Compensations on pages: proposed, read, decided, changed, halted; and every word of where one stands."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard import reports, words
from dashboard.pages import call_diff, hiding
from effects import approvals, compensate, intents
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Approval, Compensation, CompensationState, Effect, Review
from runs import redaction
from runs.access import SET_UP, Actor
from runs.evidence import Line, record
from runs.guard import Opened
from runs.models import Halt, Membership, Run, RunStatus
from runs.rules import CompensationRule, Rules, change_rules, standing
from runs.scopes import Target, request_scope_stop
from runs.stops import Wish
from tests.dashboard.scenes import browser, text_of
from tests.dashboard.test_reviews_page import page, press, signed_in
from tests.worlds import (
    World,
    a_compensation,
    a_kind,
    a_permit,
    a_step,
    an_approval,
    fresh,
    in_seconds,
    intention,
)

pytestmark = pytest.mark.django_db

BANK = "https://bank.example/refunds"
TEMPLATE = {
    "kind": "bank.refund",
    "title": "Refund of {amount} to {target}",
    "body": '{"charge": "{key}", "minor": "{body.minor}", "api_key": "hush-7", "note": "{target}"}',
    "expected": "{amount} booked back.",
    "risks": "Two lines on the statement.",
}
CHARGE = {
    "title": "Charge of €120.00",
    "amount": "€120.00",
    "target": "Nordhaven AG",
    "body": b'{"minor": 12000}',
    "plan": plan_bytes(kind="bank.refund"),
}


@pytest.fixture
def world(db: None) -> World:
    made = World()
    a_kind(made.workspace, compensate=TEMPLATE)
    send, lookup = {"url": BANK, "method": "POST"}, {"url": f"{BANK}?key={{key}}"}
    a_kind(made.workspace, "bank.refund", provider="http", send=send, lookup=lookup)
    permit(made)
    return made


def permit(world: World, **fields: Any) -> None:
    rule = CompensationRule(**{"kind": "bank.refund", "approvals": 2, "after_a_stop": True, **fields})
    now = standing(world.workspace.pk).version
    wanted = Rules(compensations=(rule,))
    change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=now, rules=wanted)


def charged(
    world: World, run: Run | None = None, *, stop: bool = True, outcome: str = "applied", **fields: Any
) -> Effect:
    """A charge that happened, in a run that Alice cancelled."""
    run = run or world.run()
    told = intention(**{**CHARGE, **fields})
    opened = intents.dispatch(world.ask(run, step_key=told.key), told)
    assert isinstance(opened, Opened)
    world.report(opened, outcome, provider_ref="ch_7")
    if stop:
        rest(world, run)
    return Effect.objects.get(run=run, key=told.key)


def rest(world: World, run: Run) -> None:
    """Alice cancels it, and it comes to rest."""
    world.stop(run)
    drain_run(run.pk)
    assert fresh(run).status in (RunStatus.CANCELLED, RunStatus.UNKNOWN)


def proposed(world: World, by: Actor | None = None, effect: Effect | None = None) -> Review:
    effect = effect or charged(world)
    made = compensate.propose(actor=by or world.agent, effect_id=effect.pk)
    assert isinstance(made, Compensation), made
    return Review.objects.get(subject_id=made.pk)


def review_of(one: Compensation, **fields: Any) -> Review:
    """A review row of a compensation that no verb made."""
    asked = {"digest": "0" * 64, "needed": 2, "asked_by": "system", "expires_at": in_seconds(600), **fields}
    about = {"subject": "compensation", "subject_id": one.pk, "effect": one.effect, "run": one.run}
    key, workspace = one.effect.key, one.run.workspace
    return Review.objects.create(workspace=workspace, effect_key=key, **about, **asked)


def approve(review: Review, by: Actor) -> None:
    told = approvals.approve(actor=by, review_id=review.pk, digest=fresh(review).digest, signed_in_s=1)
    assert isinstance(told, approvals.Decided), told


def said_on(client: Any, path: str) -> str:
    return text_of(client.get(path).content.decode())


# --- Proposing --------------------------------------------------------------------------------------------


def test_a_person_proposes_from_the_run_and_from_its_report_and_nothing_is_sent(world: World) -> None:
    effect, alice = charged(world), browser(world.alice)
    path = f"/effects/{effect.pk}/compensate"
    for where in (f"/runs/{effect.run_id}/", f"/runs/{effect.run_id}/report"):
        assert f'href="{path}"' in alice.get(where).content.decode(), where
    said = said_on(alice, path)
    for part in (
        "Propose: Refund of €120.00 to Nordhaven AG?",
        "This is a new action. It does not erase the original, can fail, and can have effects of its own.",
        f"POST {BANK}",
        "2 people approve it first, within a day; also for a run that a stop ended or holds",
        "A look-up by its own key",
        "Two lines on the statement.",
        "ch_7",
    ):
        assert part in said, part
    answer = alice.post(path, {"wish": "the order was cancelled"}, follow=True)
    review = Review.objects.get(subject="compensation")
    assert answer.redirect_chain[-1][0] == f"/reviews/{review.pk}"
    assert "Proposed. Nothing was sent" in text_of(answer.content.decode())
    again = alice.post(path)
    assert again.status_code == 409
    assert "One is proposed or under way already." in text_of(again.content.decode())
    assert f'href="/reviews/{review.pk}"' in again.content.decode()


@pytest.mark.parametrize(
    ("scene", "why"),
    [
        ({"outcome": "unknown", "stop": False}, "Its run has not come to rest."),
        ({"plan": plan_bytes(none_because="nothing lessens it")}, "It was declared that nothing lessens it."),
        ({"outcome": "not_applied"}, "It did not happen, so there is nothing to compensate."),
        ({"rule": "never"}, "No rule permits it."),
    ],
)
def test_what_cannot_be_proposed_says_why_and_has_no_button(
    world: World, scene: dict[str, Any], why: str
) -> None:
    if "rule" in scene:
        permit(world, policy=scene.pop("rule"))
    effect = charged(world, **scene)
    html = browser(world.alice).get(f"/effects/{effect.pk}/compensate").content.decode()
    assert why in text_of(html)
    assert "Propose it" not in text_of(html)


def test_files_that_would_be_put_back_are_told_without_a_body(world: World) -> None:
    permit(world, kind="restore_files", approvals=1)
    a_kind(world.workspace, "files.write", provider="workspace", op_class="workspace_change")
    plan = plan_bytes(kind="restore_files", title="Put the files back")
    effect = charged(world, kind="files.write", key="write:1", body=b"{}", plan=plan)
    said = said_on(browser(world.bob), f"/effects/{effect.pk}/compensate")
    assert "it puts back the files of the workspace as they were before" in said
    review = proposed(world, world.alice, effect)
    assert "The files themselves: path, size and digest of each." in page(browser(world.bob), review)
    edit = said_on(signed_in(world.bob), f"/reviews/{review.pk}/edit")
    assert "there is no body to change" in edit


def test_what_was_not_sent_is_asked_again_on_a_review_of_its_own(world: World) -> None:
    review = proposed(world)
    one = Compensation.objects.get(pk=review.subject_id)
    Review.objects.filter(pk=review.pk).update(closed_as="used", closed_at=in_seconds(0))
    newer = review_of(one)
    html = browser(world.bob).get(f"/reviews/{review.pk}").content.decode()
    assert f'href="/reviews/{newer.pk}"' in html
    assert "Waiting, " not in text_of(html)


def test_an_unknown_original_is_to_be_verified_first(world: World) -> None:
    run = world.run()
    effect = charged(world, run, outcome="unknown", stop=False)
    rest(world, run)
    assert "still unknown: verify it first" in said_on(browser(world.bob), f"/effects/{effect.pk}/compensate")


def test_who_may_not_propose_only_reads_and_outsiders_find_nothing(world: World) -> None:
    effect = charged(world)
    path = f"/effects/{effect.pk}/compensate"
    assert "Your role only reads here." in said_on(browser(world.dana), path)
    assert browser(world.dana).post(path).status_code == 403
    mallory = browser(world.mallory)
    for method in ("get", "post"):
        foreign, absent = (
            getattr(mallory, method)(path),
            getattr(mallory, method)("/effects/eff_no/compensate"),
        )
        assert (foreign.status_code, absent.status_code) == (404, 404)
        assert foreign.content.replace(effect.pk.encode(), b"eff_no") == absent.content
    assert not Compensation.objects.exists()


def test_a_workspace_in_which_nobody_else_could_approve_says_so(world: World) -> None:
    permit(world, approvals=1)
    effect = charged(world)
    for gone in (world.carol,):
        Membership.objects.filter(user=gone.user).delete()
    bob = signed_in(world.bob)
    nobody = "compensations that need approval can’t be approved here until another reviewer belongs to it"
    assert nobody in said_on(bob, f"/effects/{effect.pk}/compensate")
    review = proposed(world, world.bob, effect)
    assert nobody in page(bob, review)
    assert "You asked for this" in page(bob, review)


# --- Reading and deciding ---------------------------------------------------------------------------------


def test_the_review_shows_original_declaration_call_and_who_may_not(world: World) -> None:
    review = proposed(world)
    html = signed_in(world.bob).get(f"/reviews/{review.pk}").content.decode()
    said = text_of(html)
    for part in (
        "Waiting, 0 of 2",
        "Refund of €120.00 to Nordhaven AG",
        "This is a new action.",
        "The original effect Confirmed",
        "Charge of €120.00 (Nordhaven AG)",
        "charge:7",
        "ch_7, reported by its worker",
        "stop #1 (cancel)",
        "Declared by token “agent” at",
        "before the effect.",
        "€120.00 booked back.",
        "Not found before 1 min 00 s is “can’t tell”.",
        "proposed it; tokens never count",
        "Alice asked for a stop of this run",
        "Approve refund of €120.00 to Nordhaven AG",
        "Plan re-checked",
    ):
        assert part in said, part
    assert "hush" not in html
    assert "compensated successfully" not in said
    alice = page(browser(world.alice), review)
    assert "Reviewers and admins of this workspace decide." in alice
    assert "change the call" in alice


def test_two_people_approve_and_it_is_queued(world: World) -> None:
    review = proposed(world)
    assert "1 more needed" in press(signed_in(world.bob), review)
    assert "Waiting, 1 of 2" in page(browser(world.dana), review)
    assert "Approved, and queued: the gate looks once more" in press(signed_in(world.carol), review)
    assert "Approved, queued" in page(browser(world.dana), review)
    assert "1 approved, not sent" in said_on(browser(world.dana), f"/runs/{review.run_id}/")
    assert "Your approval is taken back." in press(signed_in(world.bob), review, "revoke")
    assert "Waiting, 1 of 2" in page(browser(world.dana), review)


@pytest.mark.parametrize(
    ("what", "said", "stands"),
    [
        ("reject", "Rejected. It is not sent", "Rejected by Bob. Nothing was sent. “wrong amount”"),
        (
            "not-needed",
            "nothing has to be done",
            "Bob decided that nothing more has to be done. “wrong amount”",
        ),
        ("changes", "Your wish is recorded.", "Changes are asked for: “wrong amount”"),
    ],
)
def test_a_reason_is_needed_and_kept(world: World, what: str, said: str, stands: str) -> None:
    review = proposed(world)
    approve(review, world.carol)
    assert "Nothing was decided." in press(signed_in(world.bob), review, what, reason=" ")
    assert said in press(signed_in(world.bob), review, what, reason="wrong amount")
    shown = page(browser(world.dana), review)
    assert stands in shown
    assert "Do not count" in shown, "Carol’s approval counts no more"
    assert not Approval.objects.filter(state="GIVEN").exists()


def test_an_edit_voids_approvals_bars_its_author_and_is_shown_against_the_declaration(world: World) -> None:
    permit(world, kind="bank.refund")
    body = {"charge": "{key}", "minor": "{body.minor}"}
    Effect.objects.update()
    kind = world.workspace.kinds.get(name="bank.charge")
    kind.compensate = {**TEMPLATE, "body": json.dumps(body)}
    kind.save(update_fields=["compensate"])
    review = proposed(world)
    approve(review, world.bob)
    carol, path = signed_in(world.carol), f"/reviews/{review.pk}/edit"
    form = carol.get(path).content.decode()
    assert "&quot;minor&quot;: 12000" in form
    new = {"title": "Refund of €60.00", "amount": "€60.00", "target": "Nordhaven AG"}
    new |= {"body": '{"charge":"charge:7","minor":6000}', "digest": fresh(review).digest}
    stale = carol.post(path, {**new, "digest": "0" * 64})
    assert stale.status_code == 409
    assert "Your draft is kept below." in text_of(stale.content.decode())
    assert "Refund of €60.00" in stale.content.decode()
    answer = carol.post(path, new, follow=True)
    shown = text_of(answer.content.decode())
    assert "Every approval of the old one is void" in shown
    assert "You changed it last." in shown
    assert "\N{MINUS SIGN} removed minor {body.minor}" in shown
    assert "+ added minor 6000" in shown
    assert "Do not count" in shown
    assert "Waiting, 0 of 2" in shown
    assert carol.post(path, {**new, "digest": fresh(review).digest}).status_code == 422, "nothing is changed"


def test_a_body_with_secrets_is_not_put_into_a_form(world: World) -> None:
    review = proposed(world)
    html = signed_in(world.carol).get(f"/reviews/{review.pk}/edit").content.decode()
    assert "holds values that pages hide" in text_of(html)
    assert "hush" not in html


# --- Where one stands -------------------------------------------------------------------------------------

# state, permit, items or step, words: written by hand from the states of the screens.
STATES = [
    ("PROPOSED", "", None, "Waiting", "People decide before it may be sent."),
    ("APPROVED", "", None, "Approved, queued", "The gate looks once more before it is sent."),
    ("DISPATCHED", "OPEN", None, "Running", "it may still complete."),
    ("DISPATCHED", "REPORTED", None, "Done, verifying", "It is not seen there yet."),
    ("VERIFIED", "REPORTED", None, "Verified", "It is there, by a look-up at the provider."),
    ("UNKNOWN", "REPORTED", None, "Done, result unknown", "Reported done, and not verified."),
    ("UNKNOWN", "LOST", None, "Result unknown", "We cannot yet say whether it happened."),
    ("FAILED", "REPORTED", None, "Failed", "The original effect stands as it did."),
    ("FAILED", "REPORTED", ["line 1"], "Failed in part", "Known of the part: line 1."),
    ("EXPIRED", "", None, "Expired", "Nothing was sent."),
    ("REJECTED", "", None, "Rejected", "Nothing was sent."),
    ("VOID", "", None, "Void", "What it stood on is gone."),
    ("NOT_NEEDED", "", None, "Not needed", "nothing more has to be done."),
    ("ACCEPTED_UNKNOWN", "LOST", None, "Accepted as unknown", "cannot be determined"),
]


@pytest.mark.parametrize(("state", "sent", "items", "word", "sentence"), STATES)
def test_each_state_has_its_words_on_review_run_and_report(
    world: World, state: str, sent: str, items: Any, word: str, sentence: str
) -> None:
    effect = charged(world)
    opened = a_permit(a_step(effect.run, "DISPATCHED"), sent, guard="compensate") if sent else None
    more = {"ground": "looked up"} if state == "VERIFIED" else {}
    one = a_compensation(effect, state, title="Refund", permit=opened, items=items, **more)
    closed = {} if state in ("PROPOSED", "APPROVED") else {"closed_as": "used", "closed_at": in_seconds(0)}
    review = review_of(one, **closed)
    run_page, dana = f"/runs/{effect.run_id}/", browser(world.dana)
    for shown in (page(dana, review), said_on(dana, run_page)):
        assert word in shown
        assert sentence in shown or state in ("PROPOSED", "APPROVED")
        assert not any(never in shown.lower() for never in (*words.FORBIDDEN, "compensated successfully"))
    assert word in said_on(dana, f"/runs/{effect.run_id}/report")


def test_a_verified_one_says_when_by_which_line_and_every_time_has_its_zone(world: World) -> None:
    effect = charged(world)
    opened = a_permit(a_step(effect.run, "DISPATCHED"), "REPORTED", guard="compensate")
    told: dict[str, Any] = {"ground": "looked up", "settled_at": in_seconds(0), "provider_ref": "re_9"}
    one = a_compensation(effect, "VERIFIED", title="Refund", permit=opened, **told)
    seq = record(effect.run, Line("compensation.verified", "system", effect_key=one.key))
    review = review_of(one, closed_as="used", closed_at=in_seconds(0))
    an_approval(review, "CONSUMED")
    html = browser(world.dana).get(f"/reviews/{review.pk}").content.decode()
    said = text_of(html)
    recorded = f"Recorded {words.moment_utc(told['settled_at'])}, reference re_9."
    assert f"It is there, by a look-up at the provider. {recorded}" in said
    assert f"e-{seq}" in html
    assert "would be sent" not in said
    assert (times := re.findall(r"\d{4}, \d\d:\d\d:\d\d(?! UTC)", said)) == [], times
    review = proposed(world, effect=charged(world, world.run("another")))
    control = page(browser(world.dana), review)
    assert "The call as it would be sent" in control
    assert "Recorded" not in control


def test_every_state_of_a_compensation_is_in_that_table() -> None:
    assert {state for state, *_ in STATES} == set(CompensationState.values)


def test_what_failed_asks_for_a_decision_and_says_what_is_left(world: World) -> None:
    one = a_compensation(charged(world), "FAILED", title="Refund", settled_at=in_seconds(-5))
    review = review_of(one, closed_as="used", closed_at=in_seconds(0))
    run_page = said_on(browser(world.bob), f"/runs/{review.run_id}/")
    assert "1 failed, and nobody has decided what follows." in run_page
    assert "Compensation pending" in run_page
    overview = f"/?workspace={world.workspace.slug}"
    assert "1 failed to compensate" in said_on(browser(world.bob), overview)
    shown = page(signed_in(world.bob), review)
    assert "What is left: the original effect stands." in shown
    assert "Recorded: nothing has to be done." in press(
        signed_in(world.bob), review, "not-needed", reason="paid back by hand"
    )
    assert fresh(one).state == "NOT_NEEDED"
    assert "failed to compensate" not in said_on(browser(world.bob), overview)


def test_an_issued_report_freezes_who_approved_and_what_is_open(world: World) -> None:
    run = world.run()
    first, second = charged(world, run, stop=False), charged(world, run, stop=False, key="charge:8")
    rest(world, run)
    review = proposed(world, effect=first)
    for who in (world.bob, world.carol):
        approve(review, who)
    reports.issue(run.pk)
    dana = browser(world.dana)
    said = said_on(dana, f"/runs/{run.pk}/report")
    assert "Not final: 1 compensation open" in said
    assert "A corrective action needs execution." in said
    assert "is approved and queued: it is sent once the gate has looked again." in said
    assert "Bob and Carol 2 of 2" in said
    assert "1 effect had a corrective action declared" in said
    assert f'href="/effects/{second.pk}/compensate"' in dana.get(f"/runs/{run.pk}/report").content.decode()
    a_compensation(second, "FAILED", title="Refund", items=["line 1"], dispatched_at=in_seconds(-9))
    kept = dana.get(f"/runs/{run.pk}/report.json").json()["repairs"]
    assert (kept["total"], kept["counts"], kept["rows"][0]["stage"]) == (1, {"APPROVED": 1}, "approved")
    people = [f"user:{who.user.pk}" for who in (world.bob, world.carol) if who.user]
    assert kept["rows"][0]["approved_by"] == people, "ids are frozen, names live with the people"
    record_news(run)
    reports.issue(run.pk)
    told = said_on(dana, f"/runs/{run.pk}/report")
    assert "failed in part, known" in told
    assert "Known of the part: line 1. The rest of the original stands." in told
    assert "Decide what follows “Refund”, which failed" in told


def record_news(run: Run) -> None:
    """A line for which a report is issued."""
    record(fresh(run), Line("compensation.failed", "system", effect_key="none"))


# --- Halted -----------------------------------------------------------------------------------------------


def test_a_scope_stop_halts_them_until_a_reviewer_lifts_that(world: World) -> None:
    review = proposed(world)
    for who in (world.bob, world.carol):
        approve(review, who)
    stop = request_scope_stop(
        actor=world.alice, wish=Wish(mode="pause"), target=Target("workspace", world.workspace.pk)
    ).stop
    halt = Halt.objects.get(stop=stop)
    bob, path = browser(world.bob), f"/halts/{halt.pk}/lift"
    halted = f"by stop #{stop.number} (workspace “Finance”) until a reviewer lifts that."
    for where in ("/reviews", f"/reviews/{review.pk}", f"/runs/{review.run_id}/", f"/stops/{stop.pk}/"):
        html = bob.get(where).content.decode()
        assert halted in text_of(html), where
        assert f'href="{path}"' in html, where
    assert "Approved, halted" in page(bob, review)
    assert "1 approved compensation of this workspace waits" in said_on(bob, path)
    assert "A reviewer or an admin of this workspace lifts it." in said_on(browser(world.alice), path)
    assert browser(world.alice).post(path, {"reason": "x"}).status_code == 403
    assert browser(world.mallory).get(path).status_code == 404
    assert bob.post(path, {"reason": " "}).status_code == 422
    lifted = bob.post(path, {"reason": "the bank is well again"}, follow=True)
    assert "Compensations may start again here." in text_of(lifted.content.decode())
    assert "It was lifted" in said_on(bob, path)
    assert "Approved, queued" in page(bob, review)


# --- Bounds -----------------------------------------------------------------------------------------------


def test_pages_ask_the_store_as_often_for_five_compensations_as_for_one(world: World) -> None:
    run, counts = world.run(), list[list[int]]()
    for n in range(5):
        charged(world, run, stop=False, key=f"charge:{n}")
    rest(world, run)
    paths = ["/reviews", f"/runs/{run.pk}/", f"/?workspace={world.workspace.slug}"]
    effects = list(Effect.objects.filter(run=run).order_by("pk"))
    for some in (effects[:1], effects[1:]):
        for effect in some:
            proposed(world, effect=effect)
        counts.append([])
        for path in paths:
            client = browser(world.bob)  # a sign-in of the same person soon after the first costs less
            with CaptureQueriesContext(connection) as seen:
                client.get(path)
            counts[-1].append(len(seen))
    assert counts[0] == counts[1]
    review = Review.objects.earliest("pk")
    client = signed_in(world.bob)
    with CaptureQueriesContext(connection) as seen:
        client.get(f"/reviews/{review.pk}")
    assert len(seen) <= 32


def test_the_difference_hides_secrets_and_still_shows_that_they_differ() -> None:
    before = call_diff.parts_of('{"token": "a", "amount": 1, "to": {"name": "x"}}')
    after = call_diff.parts_of(b'{"token": "b", "amount": 1, "to": {"name": "x", "note": "n"}}')
    lines = call_diff.diff(before, after)
    told = [(line.sign, line.name, line.value) for line in lines]
    one, other = (redaction.marker("field", value) for value in "ab")
    assert told == [
        ("\N{MINUS SIGN}", "token", one),
        ("+", "token", other),
        ("", "amount", "1"),
        ("", "to.name", "x"),
        ("+", "to.note", "n"),
    ]
    assert call_diff.says(lines) == "1 line filled in or changed, 1 added"
    assert call_diff.says(call_diff.diff(after, after)) == "as it was declared"


WRITTEN = '{"amount": 9999900, "to": {"name": "x"}, "amount": 100, "rate": 1.10, "big": 9007199254740993.0}'


def test_what_comes_twice_and_every_digit_are_shown_as_they_are_sent() -> None:
    """Who gets it may read the first of two equal names: none may hide behind the other."""
    told = [(part.name, part.shown) for part in call_diff.parts_of(WRITTEN)]
    assert told == [
        ("amount", "9999900"),
        ("to.name", "x"),
        ("amount", "100"),
        ("rate", "1.10"),
        ("big", "9007199254740993.0"),
    ]
    shown = hiding.body_lines(WRITTEN.encode())
    assert [line.strip(" ,") for line in shown if ":" in line] == [
        '"amount": 9999900',
        '"to": {',
        '"name": "x"',
        '"amount": 100',
        '"rate": 1.10',
        '"big": 9007199254740993.0',
    ]
    plain = '{"b": [], "a": {"c": [1, {"d": null}, {}], "e": "\\u00fc"}}'
    assert "\n".join(hiding.body_lines(plain.encode())) == json.dumps(
        json.loads(plain), indent=2, ensure_ascii=False
    )


def test_a_secret_that_comes_twice_is_hidden_twice_and_kept_out_of_a_form() -> None:
    body = '{"password": "hunter22", "password": ""}'
    assert "hunter22" not in "".join(hiding.body_lines(body.encode()))
    assert hiding.hides(body)
    assert "hunter22" not in "".join(part.shown for part in call_diff.parts_of(body))


def test_whoever_says_yes_is_shown_all_of_a_body_and_no_desert_of_spaces(world: World) -> None:
    """What comes after the part that a page shows would be approved unread."""
    long = json.dumps({"padding": ["x" * 60] * 900, "last": "at its very end"})
    review = proposed(world, effect=charged(world, plan=plan_bytes(kind="bank.refund", body=long)))
    details = page(signed_in(world.bob), review).partition("from the bytes as they are stored")[2]
    assert "at its very end" in details
    assert "more characters" not in details
    deep = "[" * 500 + "1" + "]" * 500
    assert sum(map(len, hiding.body_lines(deep.encode()))) < 2 * len(deep)
