"""Signing: a person has read one version; once each, bound to its digest, and it settles nothing."""

from __future__ import annotations

import json

import pytest
from django.db import DatabaseError, transaction

from dashboard import reports
from dashboard.reports.signing import NotSigned, Signed, sign_off
from effects.models import Report as ReportRow
from effects.models import SignOff
from runs import access
from runs.access import Actor, NotAllowed, NotFound
from runs.evidence import canonical, digest
from runs.models import Evidence, EvidencePayload, Run
from tests.dashboard.report_scenes import awaiting_verification, completed
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def w() -> World:
    return World()


def issued(run: Run) -> ReportRow:
    row = reports.issue(run.pk)
    assert row is not None
    return row


def signs(actor: Actor, row: ReportRow, **more: str) -> Signed | NotSigned:
    told = {"version": row.version, "digest": row.digest, **more}
    return sign_off(actor=actor, run_id=row.run_id, **told)  # type: ignore[arg-type]


def page_of(actor: Actor) -> Actor:
    assert actor.user is not None
    return access.person(actor.user)


def test_a_person_signs_a_version_with_what_it_leaves_open(w: World) -> None:
    row = issued(awaiting_verification(w))
    told = signs(page_of(w.alice), row, note="told the bank")
    assert isinstance(told, Signed)
    kept = told.row
    assert (kept.version, kept.newest, kept.digest, kept.open_items) == (1, 1, row.digest, 1)
    line = Evidence.objects.get(stream=row.run_id, seq=kept.line)
    assert (line.kind, line.actor) == ("report.signed_off", w.alice.id)
    body = {"version": 1, "digest": row.digest, "newest": 1, "open": 1, "note": "told the bank"}
    assert line.payload_digest == digest(canonical(body))
    (told_of,) = reports.read(row.run_id)["issue"]["signed"]
    assert told_of["says"] == "I have read this; 1 item is open."
    assert (told_of["actor"], told_of["note"]) == (w.alice.id, "told the bank")
    assert ReportRow.objects.get(pk=row.pk).body == row.body, "an issued version never changes"


def test_a_report_that_leaves_nothing_open_is_signed_so(w: World) -> None:
    row = issued(completed(w))
    signs(page_of(w.alice), row)
    assert reports.read(row.run_id)["issue"]["signed"][0]["says"] == "I have read this; nothing is open."


def test_nobody_signs_a_version_twice_and_others_still_may(w: World) -> None:
    row = issued(completed(w))
    first, again = signs(page_of(w.alice), row), signs(page_of(w.alice), row)
    assert isinstance(first, Signed)
    assert isinstance(again, Signed)
    assert (first.again, again.again, first.row.pk == again.row.pk) == (False, True, True)
    signs(page_of(w.bob), row)
    assert SignOff.objects.count() == 2
    assert Evidence.objects.filter(stream=row.run_id, kind="report.signed_off").count() == 2


def test_signing_an_old_version_says_so(w: World) -> None:
    run = awaiting_verification(w)
    first = issued(run)
    w.stop(run, by=w.bob, mode="abandon")
    second = issued(run)
    assert second.version == 2
    told = signs(page_of(w.alice), first)
    assert isinstance(told, Signed)
    assert told.row.newest == 2
    signed = reports.read(run.pk)["issue"]["signed"][0]["says"]
    assert signed == "I have read this; 1 item is open. Version 2 was the newest when version 1 was signed."


@pytest.mark.invariant("I26")
def test_another_digest_than_that_of_the_version_signs_nothing(w: World) -> None:
    row = issued(completed(w))
    assert isinstance(signs(page_of(w.alice), row, digest="0" * 64), NotSigned)
    assert not SignOff.objects.exists()
    assert not Evidence.objects.filter(kind="report.signed_off").exists()


def test_a_draft_cannot_be_signed(w: World) -> None:
    run = w.run()
    with pytest.raises(NotFound):
        sign_off(actor=page_of(w.alice), run_id=run.pk, version=1, digest="")


def test_only_people_sign_and_only_members_who_may(w: World) -> None:
    row = issued(completed(w))
    assert w.alice.user is not None
    by_api = Actor(w.alice.id, user=w.alice.user, via="api")
    for actor in (w.agent, by_api, page_of(w.dana)):
        with pytest.raises(NotAllowed):
            signs(actor, row)
    for actor in (page_of(w.mallory), access.staff(w.alice.user)):
        with pytest.raises((NotFound, NotAllowed)):
            signs(actor, row)
    assert not SignOff.objects.exists()


def test_a_sign_off_is_never_changed_or_deleted_and_brings_no_new_version(w: World) -> None:
    row = issued(completed(w))
    signs(page_of(w.alice), row)
    assert reports.issue(row.run_id) is None
    assert reports.since(row.run_id, row.upto_seq) == []
    for change in (SignOff.objects.all().delete, lambda: SignOff.objects.update(open_items=0)):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()


def test_a_note_can_be_removed_and_the_sign_off_stays(w: World) -> None:
    row = issued(completed(w))
    told = signs(page_of(w.alice), row, note="Carol said so")
    assert isinstance(told, Signed)
    place = EvidencePayload.objects.filter(stream=row.run_id, seq=told.row.line)
    assert json.loads(place.get().body)["note"] == "Carol said so"
    place.update(body="", removed_at=row.issued_at, removed_under="erasure")
    assert reports.read(row.run_id)["issue"]["signed"][0]["note"] == ""


# --- The page -----------------------------------------------------------------------------------------


def test_the_page_signs_and_shows_who_signed(w: World) -> None:
    row, alice = issued(awaiting_verification(w)), browser(w.alice)
    path = f"/runs/{row.run_id}/report"
    before = alice.get(path).content.decode()
    assert "I have read this; 1 item is open" in before
    assert "Nobody has signed this version." in before
    form = {"version": "1", "digest": row.digest, "note": "<b>called</b>"}
    answer = alice.post(f"{path}/sign", form, follow=True)
    said = text_of(answer.content.decode())
    assert "Signed: I have read this; 1 item is open." in said
    assert "“<b>called</b>”" in said.replace("&lt;", "<").replace("&gt;", ">")
    assert "<b>called" not in answer.content.decode()
    assert "Sign version 1" not in said, "who signed is not asked again"
    again = alice.post(f"{path}/sign", form, follow=True)
    assert "You had signed version 1 before" in text_of(again.content.decode())
    assert SignOff.objects.count() == 1


def test_the_page_of_somebody_who_may_not_sign_has_no_button(w: World) -> None:
    row = issued(completed(w))
    html = browser(w.dana).get(f"/runs/{row.run_id}/report").content.decode()
    assert "/sign" not in html.replace("/sign-", "")
    form = {"version": "1", "digest": row.digest}
    assert browser(w.dana).post(f"/runs/{row.run_id}/report/sign", form).status_code == 403


@pytest.mark.parametrize(
    ("version", "status"), [("2", 404), ("", 404), ("x", 404), ("\u0661", 404), ("99999999999", 404)]
)
def test_a_version_that_does_not_exist_is_not_signed(w: World, version: str, status: int) -> None:
    row = issued(completed(w))
    answer = browser(w.alice).post(f"/runs/{row.run_id}/report/sign", {"version": version, "digest": "x"})
    assert answer.status_code == status


def test_a_digest_that_was_not_read_is_told(w: World) -> None:
    row = issued(completed(w))
    form = {"version": "1", "digest": "f" * 64}
    answer = browser(w.alice).post(f"/runs/{row.run_id}/report/sign", form, follow=True)
    assert "Nothing was signed. What you read is not what this version holds." in text_of(
        answer.content.decode()
    )
