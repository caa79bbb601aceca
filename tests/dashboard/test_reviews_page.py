"""The Reviews pages: who is waited for, what would be sent, and what a press comes to."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from effects import approvals, intents
from effects.models import Approval, Review
from runs.access import Actor
from runs.guard import Opened, Waiting
from runs.models import Run
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World, a_kind, fresh, intention

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


SAME = intention(title="Charge card", amount="€86.40")


def waiting(world: World, run: Run, needed: int = 1, key: str = "charge:7", **fields: Any) -> Review:
    told = intention(key, approvals=needed, **{"title": "Charge card", "amount": "€86.40", **fields})
    answer = intents.dispatch(world.ask(run, step_key=key), told)
    assert isinstance(answer, Waiting)
    found: Review = Review.objects.get(pk=answer.review.pk)
    return found


def signed_in(who: Actor, ago: float = 5.0) -> Client:
    """A browser whose password was asked for so many seconds ago."""
    client = browser(who)
    assert who.user is not None
    session = client.session
    session["account_authentication_methods"] = [{"method": "password", "at": time.time() - ago}]
    session["account_authentication_methods_user"] = str(who.user.pk)
    session.save()
    return client


def page(client: Client, review: Review) -> str:
    return text_of(client.get(f"/reviews/{review.pk}").content.decode())


def press(client: Client, review: Review, what: str = "approve", **form: str) -> str:
    given = {"digest": fresh(review).digest, **form}
    answer = client.post(f"/reviews/{review.pk}/{what}", given, follow=True)
    return text_of(answer.content.decode())


def approve(review: Review, by: Actor) -> None:
    approvals.approve(actor=by, review_id=review.pk, digest=fresh(review).digest, signed_in_s=1)


# --- Lists ------------------------------------------------------------------------------------------------


def test_the_list_says_for_whom_each_review_waits(world: World) -> None:
    run = world.run()
    first, _second = waiting(world, run, 2), waiting(world, run, 1, "charge:8")
    approve(first, world.bob)
    mine = text_of(browser(world.bob).get("/reviews").content.decode())
    assert "1 waits for you. 1 waits for others." in mine
    assert "Waiting, 1 of 2" in mine
    assert "2 wait for you." in text_of(browser(world.carol).get("/reviews").content.decode())
    alice = browser(world.alice).get("/reviews").content.decode()
    assert "Nothing waits for you. 2 wait for others." in text_of(alice)
    assert "Reviewers and admins of this workspace decide them." in alice
    assert "Nothing waits for you." in text_of(browser(world.mallory).get("/reviews").content.decode())


def test_the_frame_counts_for_reviewers_only_what_waits_for_them(world: World) -> None:
    run = world.run()
    review = waiting(world, run)
    assert "Reviews 1 waiting for you" in text_of(browser(world.bob).get("/runs/").content.decode())
    for who in (world.dana, world.alice):  # they may read them, and nothing waits for them
        html = browser(who).get("/runs/").content.decode()
        assert 'href="/reviews' in html
        assert "waiting for you" not in html
    world.stop(run, by=world.bob, mode="pause")
    said = text_of(browser(world.bob).get("/runs/").content.decode())
    assert "waiting for you" not in said, "a stopper may not approve, so it does not wait for them"
    assert "Reviews 1 waiting for you" in text_of(browser(world.carol).get("/runs/").content.decode())
    assert approvals.objection(review, fresh(run), world.bob, 1) == "stopper", "as the verb says"


def test_a_page_asks_the_store_as_often_for_thirty_reviews_as_for_one(world: World) -> None:
    run, client = world.run(), browser(world.bob)
    counts = []
    for start, end in ((0, 1), (1, 30)):
        for n in range(start, end):
            waiting(world, run, 2, f"charge:{n}")
        with CaptureQueriesContext(connection) as seen:
            client.get("/reviews")
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 14
    with CaptureQueriesContext(connection) as seen:
        client.get(f"/reviews/{Review.objects.earliest('pk').pk}")
    assert len(seen) <= 20


# --- One review -------------------------------------------------------------------------------------------


def test_the_page_shows_the_stored_call_without_its_secrets(world: World) -> None:
    send = {"url": "https://bank.example/charges?token=hush-1", "method": "POST"}
    a_kind(world.workspace, provider="http", send=send)
    body = b'{"amount": 8640, "to": {"card_number": "4111-hush-2"}, "note": "Bearer hush-3"}'
    html = browser(world.bob).get(f"/reviews/{waiting(world, world.run(), body=body).pk}").content.decode()
    said = text_of(html)
    assert "POST https://bank.example/charges" in said
    assert "&quot;amount&quot;: 8640" in said
    assert "hush" not in html
    for words in ("charge:7", "Charge card (€86.40)", "external write", "Nothing could lessen it: a test"):
        assert words in said


def test_who_may_not_is_told_why_and_has_no_button(world: World) -> None:
    run = world.run()
    review = waiting(world, run, 2)
    stopper = an_admin(world)
    world.stop(run, by=stopper, mode="pause")
    said = page(browser(stopper), review)
    assert "You asked for a stop of this run, or for one that it was a part of." in said
    assert "erin asked for a stop of this run" in said.replace("Erin", "erin")
    assert (
        f'action="/reviews/{review.pk}/approve"'
        not in browser(stopper).get(f"/reviews/{review.pk}").content.decode()
    )
    assert "tokens never count" in said
    assert "Your role only reads here." in page(browser(world.dana), review)
    approve(review, world.bob)
    assert "You approved this" in page(browser(world.bob), review)


def test_a_press_approves_and_says_what_it_started(world: World) -> None:
    run = world.run()
    review = waiting(world, run, 2)
    said = press(signed_in(world.bob), review, comment="amount matches")
    assert "Your approval is recorded. 1 more needed" in said
    assert "“amount matches”" in said
    said = press(signed_in(world.carol), review)
    assert "Approved. Its step is queued" in said
    opened = intents.dispatch(world.ask(run, step_key="charge:7"), SAME)
    assert isinstance(opened, Opened)
    assert "Approved and used" in page(browser(world.dana), review)
    assert "Too late: your approval was used" in press(signed_in(world.bob), review, "revoke")


def test_an_old_sign_in_is_asked_for_the_password_and_comes_back_with_the_comment(world: World) -> None:
    review, client = waiting(world, world.run()), signed_in(world.bob, ago=601)
    assert "your password is asked for first" in page(client, review)
    form = {"digest": review.digest, "comment": "amount matches"}
    answer = client.post(f"/reviews/{review.pk}/approve", form)
    assert answer["Location"].startswith("/sign-in/again?next=%2Freviews%2F")
    assert not Approval.objects.exists()
    wrong = client.post(answer["Location"], {"password": "guessed"})
    assert wrong.status_code == 200
    back = client.post(answer["Location"], {"password": "a long password"})
    assert back["Location"] == f"/reviews/{review.pk}?comment=amount+matches"
    assert "amount matches</textarea>" in client.get(back["Location"]).content.decode()
    assert not Approval.objects.exists(), "a password decides nothing by itself"
    assert "Approved. Its step is queued" in press(client, review)


def test_who_came_without_a_password_chooses_one_before_approving(world: World) -> None:
    review = waiting(world, world.run())
    assert world.bob.user is not None
    world.bob.user.set_unusable_password()
    world.bob.user.save(update_fields=["password"])
    assert "choose one under Password, then approve" in press(browser(world.bob), review)
    assert not Approval.objects.exists()


def test_no_and_back_again_say_who_and_why(world: World) -> None:
    run = world.run()
    review = waiting(world, run, 2)
    approve(review, world.bob)
    assert "Your approval is taken back." in press(signed_in(world.bob), review, "revoke", reason="misread")
    assert "Do not count" in page(browser(world.carol), review)
    assert "Say why" in press(browser(world.carol), review, "reject", reason=" ")
    said = press(browser(world.carol), review, "reject", reason="wrong card")
    assert "Rejected by Carol: “wrong card”" in said
    assert "Your decision" not in said


def test_a_page_from_before_a_change_approves_nothing(world: World) -> None:
    review = waiting(world, world.run())
    said = press(signed_in(world.bob), review, digest="0" * 64)
    assert "What is asked changed since you opened it." in said
    assert not Approval.objects.exists()


def test_approving_in_another_tab_after_the_stop_starts_nothing(world: World) -> None:
    run = world.run()
    review, tab = waiting(world, run), signed_in(world.bob)
    tab.get(f"/reviews/{review.pk}")
    world.stop(run)
    assert "A stop came first. Your decision is kept as evidence, and starts nothing." in press(tab, review)
    assert "Closed by stop #1. Nothing was sent." in page(tab, review)


@pytest.mark.parametrize("what", ["approve", "reject", "revoke"])
def test_who_may_not_decide_gets_no_further(world: World, what: str) -> None:
    review = waiting(world, world.run())
    for who, status in ((world.alice, 403), (world.dana, 403), (world.mallory, 404)):
        form = {"digest": review.digest, "reason": "because"}
        assert browser(who).post(f"/reviews/{review.pk}/{what}", form).status_code == status
    foreign = browser(world.mallory).get(f"/reviews/{review.pk}")
    absent = browser(world.mallory).get("/reviews/rev_absent")
    assert (foreign.status_code, foreign.content.replace(review.pk.encode(), b"rev_absent")) == (
        404,
        absent.content,
    )
    assert not Approval.objects.exists()
    assert fresh(review).closed_at is None


def test_the_run_page_leads_to_what_waits(world: World) -> None:
    review = waiting(world, world.run())
    html = browser(world.dana).get(f"/runs/{review.run_id}/").content.decode()
    assert f'href="/reviews/{review.pk}"' in html
