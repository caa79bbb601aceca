"""The unknowns desk: what each page says, what a press comes to, who may, how often the store is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard import unknown_words
from dashboard.pages.urls import urlpatterns
from effects import intents, reconcile, resolve, unknowns
from effects.intents import plan_bytes
from effects.models import Attachment, Care, Compensation, Delivery, Effect, Resolution, Verdict
from effects.reconcile import Answer
from runs.access import Actor
from runs.evidence import Line
from runs.evidence import record as record_line
from runs.guard import Opened
from runs.models import Run
from runs.store import database_time
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_delivery, a_kind, a_step, an_effect, fresh, in_seconds, intention

pytestmark = pytest.mark.django_db
LOOK_UP = {"url": "https://bank.example/charges?key={key}"}


@pytest.fixture
def world(db: None) -> World:
    return World()


def lost(world: World, run: Run, key: str = "charge:7", why: str = "no answer", **fields: Any) -> Effect:
    """An effect that its worker could not tell of."""
    told = intention(key, **{"title": "Charge card", "amount": "€86.40", **fields})
    opened = intents.dispatch(world.ask(run, step_key=key), told)
    assert isinstance(opened, Opened)
    world.report(opened, "unknown", detail=why)
    return Effect.objects.get(run=run, key=key)


def page(who: Actor, path: str) -> str:
    return text_of(browser(who).get(path).content.decode())


def form(seen: int = 0, **fields: Any) -> dict[str, Any]:
    return {"verdict": "happened", "evidence": "ch_6Lk, paid 15:02", "seen": seen, **fields}


def record(who: Actor, effect: Any, **fields: Any) -> Any:
    return browser(who).post(f"/unknowns/{effect.pk}/resolve", form(**fields), follow=True)


# --- The list ---------------------------------------------------------------------------------------------


def test_the_list_names_what_is_unknown_why_until_when_and_who_looks_after_it(world: World) -> None:
    a_kind(world.workspace)
    run = world.run()
    first = lost(world, run, why="timed out after 30 s")
    late = lost(world, run, "charge:8", "worker w-1 was lost after the dispatch", title="Book it")
    a_delivery(run, "UNKNOWN", title="Tell Ana", unknown_since=database_time(), detail="connection reset")
    Effect.objects.filter(pk=late.pk).update(unknown_since=in_seconds(-5 * 3600))
    resolve.take(actor=world.bob, subject_id=first.pk)
    said = page(world.bob, "/unknowns")
    assert "Three effects are unknown" in said
    assert "The first is overdue 1 h 0 min." in said
    assert "Charge card (€86.40)" in said
    assert "timeout · not looked up · no further check · taken by you" in said
    assert "worker died" in said
    assert "Tell Ana (the chat)" in said
    assert said.index("Book it") < said.index("Charge card"), "what is due first stands first"
    assert "Unknowns 3 open" in page(world.dana, "/runs/"), "the menu counts for all"
    assert "taken by Bob" in page(world.alice, "/unknowns")


def test_the_list_is_narrowed_and_ordered_by_its_address(world: World) -> None:
    run = world.run()
    for key, amount in (("a", "€5.00"), ("b", "€1,200.00"), ("c", "€80.00")):
        lost(world, run, key, title=f"Charge {key}", amount=amount)
    resolve.take(actor=world.bob, subject_id=Effect.objects.get(key="c").pk)
    said = page(world.bob, "/unknowns?sort=impact")
    assert [*re.findall(r"Select Charge (\w)", said)] == ["b", "c", "a"]
    assert [*re.findall(r"Select Charge (\w)", page(world.bob, "/unknowns?mine=1"))] == ["c"]
    none = page(world.bob, "/unknowns?overdue=1")
    assert "No unknown matches." in none
    assert "Show all" in none
    by_alice = world.run("another")
    lost(world, by_alice, "d", title="Charge d")
    world.stop(by_alice)
    assert world.alice.user is not None
    stopped = page(world.bob, f"/unknowns?by={world.alice.user.pk}")
    assert [*re.findall(r"Select Charge (\w)", stopped)] == ["d"]
    assert "No unknown matches." in page(world.bob, "/unknowns?kind=nothing-like-it")


def test_new_ones_wait_behind_a_button_and_rows_stay_where_they_are(world: World) -> None:
    run, bob = world.run(), browser(world.bob)
    lost(world, run, "a")
    html = bob.get("/unknowns").content.decode()
    region = re.findall(r'hx-get="([^"]*part=list[^"]*)"', html)[0].replace("&amp;", "&")
    lost(world, run, "b", title="Newer")
    told = text_of(bob.get(region, headers={"HX-Request": "true"}).content.decode())
    assert "1 new unknown. Show it" in told
    assert "Newer" not in told
    assert "Newer" in page(world.bob, "/unknowns")


def test_what_was_resolved_within_a_day_says_by_what(world: World) -> None:
    a_kind(world.workspace, lookup=LOOK_UP)
    run = world.run()
    looked, decided, accepted = (lost(world, run, key, title=f"Charge {key}") for key in "abc")
    reconcile.apply_answer(looked.pk, Answer("present", "the provider answered 200"))
    assert record(world.alice, decided).status_code == 200
    record(world.alice, accepted, verdict="cannot be determined", evidence="their log is gone")
    waiting = Resolution.objects.get(in_force_at__isnull=True)
    resolve.agree(actor=world.bob, resolution_id=waiting.pk)
    said = page(world.dana, "/unknowns")
    assert "Confirmed by look-up" in said
    assert "Confirmed, recorded by Alice" in said
    assert "Accepted as unknown by Alice and Bob" in said
    assert "No unknown effects. Last one resolved today by a person’s decision." in said
    assert "No unknown effects. None was resolved yet." in page(world.mallory, "/unknowns")


# --- One item ---------------------------------------------------------------------------------------------


def test_the_item_tells_what_was_sent_all_answers_and_what_each_verdict_would_mean(world: World) -> None:
    send = {"url": "https://bank.example/charges?token=hush-1", "method": "POST"}
    a_kind(world.workspace, provider="http", send=send, lookup=LOOK_UP, settle_window_s=10_800)
    plan = plan_bytes(kind="bank.refund", title="Refund of €86.40")
    body = b'{"amount": 8640, "card_number": "4111-hush-2"}'
    effect = lost(world, world.run(), why="no answer from the bank", body=body, plan=plan)
    observed = {"status": 404, "fields": {"api_key": "hush-3"}}
    reconcile.apply_answer(effect.pk, Answer("absent", "the provider answered 404", observed))
    reconcile.apply_answer(effect.pk, Answer("can't tell", "no answer from https://bank.example: reset"))
    html = browser(world.bob).get(f"/unknowns/{effect.pk}").content.decode()
    said = text_of(html)
    assert "hush" not in html
    for words in (
        "We cannot yet say whether this charge happened.",
        "Lost response: the request left, and no whole answer came.",
        "Look-up 1: not found. That proves nothing yet: it means “can’t tell”.",
        "Look-up 2: the provider could not be reached; still unknown.",
        "status 404",
        "POST https://bank.example/charges",
        "The declared plan “Refund of €86.40” becomes available for review.",
        "Needs the provider’s record after its settle window. Its key may then be sent again",
        "Accept as unknown. A second person must agree.",
        "Record: the charge happened",
        "Record: the charge did not happen",
        "in 3 h 59 min",
        "automatic, look-up only",
    ):
        assert words in said, words
    world.stop(fresh(effect.run), mode="abandon")
    said = page(world.bob, f"/unknowns/{effect.pk}")
    assert "No further check: its run was abandoned." in said
    assert "stays as it is: its run was abandoned" in said


def test_a_contradiction_shows_both_sides(world: World) -> None:
    a_kind(world.workspace, lookup=LOOK_UP)
    effect = lost(world, world.run())
    reconcile.apply_answer(effect.pk, Answer("present", "the provider answered 200"))
    reconcile.apply_answer(effect.pk, Answer("partial", "the provider answered 200", items=["line 2"]))
    said = page(world.bob, f"/unknowns/{effect.pk}")
    both = said.partition("Pieces of evidence disagree. Both stand:")[2].partition("What we have")[0]
    assert "Effect confirmed, by look-up." in both
    assert "Look-up 2: found, but not whole. It means: part of it happened." in both


def test_a_schedule_that_ended_says_when_and_a_kind_without_look_up_says_so(world: World) -> None:
    a_kind(world.workspace, lookup=LOOK_UP)
    effect = lost(world, world.run())
    Effect.objects.filter(pk=effect.pk).update(next_check_at=None, check_until=in_seconds(-60))
    assert "No further check: the schedule ended at" in page(world.bob, f"/unknowns/{effect.pk}")
    other = lost(world, world.run("b"), "x", kind="unheard.of")
    assert "No further check: this kind has no look-up." in page(world.bob, f"/unknowns/{other.pk}")


def test_deliveries_and_compensations_have_an_item_too(world: World) -> None:
    run = world.run()
    message = a_delivery(run, "UNKNOWN", title="Tell Ana", unknown_since=database_time(), key="tell")
    said = page(world.bob, f"/unknowns/{message.pk}")
    assert "We cannot yet say whether this message was handed over." in said
    assert "Record: the message was not handed over" in said
    assert "It partly happened…" not in said
    assert record(world.alice, message, verdict="did not happen").status_code == 200
    assert Delivery.objects.get(pk=message.pk).state == "NOT_HANDED_OVER"
    effect = an_effect(a_step(run), "CONFIRMED")
    repair = Compensation.objects.create(
        run=run, effect=effect, kind_name="bank.refund", op_class="external_write", key="cmp_1",
        run_version=1, title="Refund it", state="UNKNOWN", body_digest="", proposed_by="system",
        unknown_since=database_time(),
    )  # fmt: skip
    said = page(world.bob, f"/unknowns/{repair.pk}")
    assert "We cannot yet say whether this compensation happened." in said
    assert "It counts as failed, and the original stands." in said
    assert (
        f'href="/unknowns/{repair.pk}"' in browser(world.bob).get(f"/unknowns/{effect.pk}").content.decode()
    )


def test_a_webhook_and_who_asked_or_answered_are_told_apart_from_our_own_look_ups(world: World) -> None:
    effect = lost(world, world.run())
    told = {"answer": "present", "means": "happened", "observed": {"id": "ch_6Lk"}}
    mine: dict[str, Any] = {"effect_key": effect.key, "ground": "looked up"}
    record_line(
        effect.run,
        Line("webhook.received", "system", told, effect_key=effect.key, ground="webhook"),
        Line("effect.looked_up", world.bob.id, {"answer": "absent", "means": "nothing"}, **mine),
        Line("effect.looked_up", "system", {**told, "answered_by": world.agent.id}, **mine),
    )
    said = page(world.carol, f"/unknowns/{effect.pk}")
    assert "The provider’s webhook: found. It means: it happened." in said
    assert "Look-up 1, asked by Bob: not found. That proves nothing yet" in said
    assert "Look-up 2, answered by its agent: found." in said
    assert said.count("ch_6Lk") == 2


# --- What people do ---------------------------------------------------------------------------------------


def test_check_now_says_inline_what_came_or_why_nobody_can_be_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect, bob = lost(world, world.run()), browser(world.bob)
    told = bob.post(f"/unknowns/{effect.pk}/check", follow=True)
    assert "Nobody can be asked" in text_of(told.content.decode())
    says = resolve.Checked("can't tell", "no answer from https://bank.example", "nothing", "UNKNOWN")
    monkeypatch.setattr(resolve, "check_now", lambda **_: says)
    inline = bob.post(f"/unknowns/{effect.pk}/check", headers={"HX-Request": "true"})
    assert text_of(inline.content.decode()).strip() == "Provider could not be reached; still unknown."
    assert inline.headers["HX-Trigger"] == "desk:changed"


@pytest.mark.parametrize(
    ("answer", "detail", "means", "said"),
    [
        ("present", "", "happened", "The provider was asked: it happened."),
        ("absent", "", "did not happen", "The provider was asked: it did not happen."),
        ("absent", "", "nothing", "Not found. That is no proof yet; still unknown."),
        ("can't tell", "no answer from x", "nothing", "Provider could not be reached; still unknown."),
        ("can't tell", "HTML", "nothing", "The provider could not tell (HTML); still unknown."),
    ],
)
def test_a_look_up_that_failed_is_not_one_that_found_nothing(
    answer: str, detail: str, means: str, said: str
) -> None:
    assert unknown_words.checked_says(answer, detail, means) == said


def test_take_and_release_are_told_and_kept(world: World) -> None:
    effect, bob = lost(world, world.run()), browser(world.bob)
    said = text_of(bob.post(f"/unknowns/{effect.pk}/take", follow=True).content.decode())
    assert "You look after it now." in said
    other = browser(world.carol).post(f"/unknowns/{effect.pk}/take", follow=True)
    assert "Somebody else looks after it." in text_of(other.content.decode())
    bob.post(f"/unknowns/{effect.pk}/release")
    assert Care.objects.get(pk=effect.pk).person is None


def test_a_verdict_is_recorded_with_its_evidence_and_stays_beside_its_correction(world: World) -> None:
    effect = lost(world, world.run())
    said = text_of(record(world.alice, effect, evidence="ch_6Lk, paid").content.decode())
    assert "Recorded: it happened." in said
    assert fresh(effect).settlement == "CONFIRMED"
    assert "Correct…" in said
    wrong = form(seen=1, verdict="partly happened", items="line 1\n\nline 2", correct="1")
    told = browser(world.bob).post(f"/unknowns/{effect.pk}/resolve", wrong, follow=True)
    said = text_of(told.content.decode())
    assert "Alice: it happened superseded by verdict 2" in said
    assert "Bob: it partly happened in force · part: line 1 and line 2" in said
    assert fresh(effect).settlement == "PARTIAL"


def test_what_is_missing_is_said_beside_the_draft(world: World) -> None:
    effect, bob = lost(world, world.run()), browser(world.bob)
    blank = bob.post(f"/unknowns/{effect.pk}/resolve", form(evidence=" \u200b\n"))
    assert blank.status_code == 422
    html = blank.content.decode()
    assert "Nothing was recorded." in text_of(html)
    assert 'aria-invalid="true"' in html
    part = bob.post(f"/unknowns/{effect.pk}/resolve", form(verdict="partly happened", evidence="half of it"))
    assert part.status_code == 422
    assert "half of it" in part.content.decode()
    assert re.search(r'value="partly happened" required checked', part.content.decode())
    assert not Resolution.objects.exists()


def test_on_ones_own_run_the_page_says_what_is_no_evidence(world: World) -> None:
    run = world.run()
    assert world.alice.user is not None
    Run.objects.filter(pk=run.pk).update(owner=world.alice.user)
    effect = lost(world, fresh(run))
    assert "your word alone is no evidence" in page(world.alice, f"/unknowns/{effect.pk}")
    assert record(world.alice, effect).status_code == 422
    assert "your word alone is no evidence" not in page(world.bob, f"/unknowns/{effect.pk}")


def test_two_people_who_say_different_things_compare_and_no_draft_is_lost(world: World) -> None:
    effect, carol = lost(world, world.run()), browser(world.carol)
    record(world.bob, effect, verdict="cannot be determined", evidence="their log is gone")
    told = carol.post(f"/unknowns/{effect.pk}/resolve", form(evidence="I have ch_6Lk here"))
    assert told.status_code == 409
    html = told.content.decode()
    said = text_of(html)
    assert re.search(r"Bob recorded it cannot be determined \d+ s ago \. Your draft is kept\. Compare", said)
    assert "their log is gone" in said
    assert "I have ch_6Lk here</textarea>" in html
    assert 'name="seen" value="1"' in html, "sent again, it answers what is shown now"
    again = carol.post(f"/unknowns/{effect.pk}/resolve", form(seen=1, evidence="I have ch_6Lk here"))
    assert again.status_code == 302
    assert fresh(effect).settlement == "CONFIRMED"


def test_a_second_person_agrees_and_the_first_may_withdraw(world: World) -> None:
    effect = lost(world, world.run())
    said = text_of(
        record(world.bob, effect, verdict="cannot be determined", evidence="no log").content.decode()
    )
    assert "It counts once a second person agrees." in said
    assert "Withdraw" in said
    assert "Agree:" not in said, "nobody agrees with themselves"
    assert "A reviewer or an admin may agree" in page(world.alice, f"/unknowns/{effect.pk}")
    assert "Agree: accept as unknown" in page(world.carol, f"/unknowns/{effect.pk}")
    made = Resolution.objects.get()
    path = f"/unknowns/{effect.pk}"
    said = text_of(
        browser(world.bob)
        .post(f"{path}/withdraw", {"resolution": made.pk, "why": "typo"}, follow=True)
        .content.decode()
    )
    assert "withdrawn: typo" in said
    record(world.bob, effect, verdict="cannot be determined", evidence="no log", seen=1)
    second = Resolution.objects.get(number=2)
    assert browser(world.alice).post(f"{path}/agree", {"resolution": second.pk}).status_code == 403
    told = browser(world.carol).post(f"{path}/agree", {"resolution": second.pk}, follow=True)
    assert "it cannot be determined ; Carol agreed" in text_of(told.content.decode())
    assert fresh(effect).settlement == "ACCEPTED_UNKNOWN"


# --- Attachments ------------------------------------------------------------------------------------------


def test_a_file_is_attached_by_a_plain_form_and_comes_back_as_a_download_only(world: World) -> None:
    effect, bob = lost(world, world.run()), browser(world.bob)
    evil = SimpleUploadedFile("../x<script>.html", b"<script>alert(1)</script>", content_type="text/html")
    told = bob.post(
        f"/unknowns/{effect.pk}/attach", {**form(evidence="half a sentence"), "file": evil}, follow=True
    )
    html = told.content.decode()
    assert "Attached, and kept with your name." in text_of(html)
    assert "half a sentence</textarea>" in html, "the draft survives the upload"
    made = Attachment.objects.get()
    assert f'name="attachment" value="{made.pk}" checked' in html
    assert "half a sentence" not in bob.get(f"/unknowns/{effect.pk}").content.decode(), "once"
    answer = browser(world.dana).get(f"/unknowns/attachments/{made.pk}")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "<" not in answer.headers["Content-Disposition"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_what_is_too_big_and_what_is_no_link_is_refused_and_no_script_becomes_an_address(
    world: World,
) -> None:
    effect, bob = lost(world, world.run()), browser(world.bob)
    path = f"/unknowns/{effect.pk}/attach"
    big = SimpleUploadedFile("big.csv", b"x" * (256 * 1024 + 1))
    told = bob.post(path, {**form(evidence="kept"), "file": big})
    assert (told.status_code, "kept</textarea>" in told.content.decode()) == (422, True)
    assert bob.post(path, form(form="link", text="javascript:alert(1)")).status_code == 422
    assert bob.post(path, form(form="link", text="https://bank.example/ch_6Lk")).status_code == 302
    bob.post(path, form(form="quote", text="javascript:alert(2)"))
    html = bob.get(f"/unknowns/{effect.pk}").content.decode()
    assert 'href="https://bank.example/ch_6Lk" rel="noopener noreferrer nofollow"' in html
    assert 'href="javascript' not in html
    assert "javascript:alert(2)" in html
    assert Attachment.objects.count() == 2


# --- Several at once --------------------------------------------------------------------------------------


def test_several_are_assigned_and_resolved_together_only_on_one_export_and_by_two(world: World) -> None:
    run, bob = world.run(), browser(world.bob)
    ids = [lost(world, run, f"charge:{n}", title=f"Charge {n}").pk for n in range(3)]
    assert world.carol.user is not None
    bob.post("/unknowns/together", {"unknown": ids, "do": "assign", "person": world.carol.user.pk})
    assert Care.objects.filter(person=world.carol.user).count() == 3
    said = text_of(
        bob.post("/unknowns/together", {"unknown": ids, "do": "check"}, follow=True).content.decode()
    )
    assert "3 not: Nobody can be asked" in said
    assert "Resolve 3 together" in text_of(
        bob.post("/unknowns/together", {"unknown": ids, "do": "resolve"}).content.decode()
    )
    given = {"unknown": ids, "verdict": "happened", "evidence": "all three are in it"}
    assert bob.post("/unknowns/together/resolve", given).status_code == 422, "no export"
    export = SimpleUploadedFile("export.csv", b"a,b", content_type="text/csv")
    told = bob.post("/unknowns/together/resolve", {**given, "file": export}, follow=True)
    assert "3 verdicts recorded. Each counts once a second person agrees." in text_of(told.content.decode())
    assert set(Effect.objects.values_list("settlement", flat=True)) == {"UNKNOWN"}
    html = browser(world.carol).get(f"/unknowns/{ids[1]}").content.decode()
    assert "Agree to all 3 on this export" in html
    waiting = list(Resolution.objects.values_list("pk", flat=True))
    browser(world.carol).post("/unknowns/together/agree", {"resolution": waiting})
    assert set(Effect.objects.values_list("settlement", flat=True)) == {"CONFIRMED"}
    assert "Nothing was done" in text_of(
        bob.post("/unknowns/together", {"do": "check"}, follow=True).content.decode()
    )


# --- Who may ----------------------------------------------------------------------------------------------

OF_ONE = [pattern for pattern in urlpatterns if "subject_id" in str(pattern.pattern)]


@pytest.mark.parametrize("pattern", OF_ONE, ids=lambda pattern: str(pattern.name))
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_foreign_unknown_answers_like_an_absent_one(world: World, pattern: Any, method: str) -> None:
    effect, mallory = lost(world, world.run()), browser(world.mallory)
    path = "/" + str(pattern.pattern)
    answers = []
    for subject_id in (effect.pk, "eff_absent"):
        answer = getattr(mallory, method)(path.replace("<str:subject_id>", subject_id), form())
        answers.append((answer.status_code, answer.content.replace(subject_id.encode(), b"")))
    assert answers[0] == answers[1]
    assert answers[0][0] in (404, 405)
    assert not Resolution.objects.exists()


def test_outsiders_get_no_attachment_and_no_list(world: World) -> None:
    effect = lost(world, world.run())
    made = resolve.attach(actor=world.bob, subject_id=effect.pk, form="file", file_name="a", content=b"x")
    assert isinstance(made, Attachment)
    mallory = browser(world.mallory)
    assert mallory.get(f"/unknowns/attachments/{made.pk}").status_code == 404
    assert mallory.get(f"/unknowns?workspace={world.workspace.slug}").status_code == 404
    together = {"unknown": [effect.pk], "do": "check"}
    slug = world.workspace.slug
    assert mallory.post(f"/unknowns/together?workspace={slug}", together).status_code == 404
    assert "There is nothing here" in text_of(
        mallory.post("/unknowns/together", together, follow=True).content.decode()
    )
    assert "Charge card" not in page(world.mallory, "/unknowns")


def test_a_reader_sees_everything_and_may_press_nothing(world: World) -> None:
    effect, dana = lost(world, world.run()), browser(world.dana)
    html = dana.get(f"/unknowns/{effect.pk}").content.decode()
    assert "Your role only reads here." in html
    assert 'id="resolve"' not in html
    assert "Check now" not in html
    for what in ("check", "take", "release", "attach", "resolve", "agree", "withdraw"):
        sent = form(form="quote", text="x")
        answer = dana.post(f"/unknowns/{effect.pk}/{what}", sent)
        assert answer.status_code in (403, 404), what
    assert dana.post("/unknowns/together", {"unknown": [effect.pk], "do": "check"}).status_code == 403


# --- Bounds -----------------------------------------------------------------------------------------------


def asked(client: Client, path: str, **headers: str) -> int:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(path, headers=headers).status_code == 200
    return len(seen)


def test_the_store_is_asked_as_often_for_five_hundred_unknowns_as_for_ten(world: World) -> None:
    kind, run, bob = a_kind(world.workspace), world.run(), browser(world.bob)
    step, counts, since = a_step(run), [], database_time()
    for start, end in ((0, 10), (10, 500)):
        Effect.objects.bulk_create(
            Effect(
                run=run, step=step, kind=kind, kind_name=kind.name, key=f"e{n}", op_class="external_write",
                title="Charge", settlement="UNKNOWN", unknown_since=since, body_digest="", plan_digest="",
                parameters_digest="",
            ) for n in range(start, end)
        )  # fmt: skip
        one = Effect.objects.earliest("pk").pk
        paths = ("/unknowns", "/unknowns?sort=impact", f"/unknowns/{one}")
        counts.append([asked(bob, path) for path in paths])
        regions = ("/unknowns?part=list", "/unknowns?part=head", f"/unknowns/{one}?part=item")
        counts[-1] += [asked(bob, path, **{"HX-Request": "true"}) for path in regions]
    assert counts[0] == counts[1]
    assert max(counts[1]) <= 48
    assert "more than 98" in page(world.bob, "/unknowns").lower()
    assert len(re.findall("Select Charge", page(world.bob, "/unknowns"))) == 25


# --- Words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("worker w-1 was lost after the dispatch", "worker died"),
        ("timed out after 30 s", "timeout"),
        ("no answer from https://bank.example: Connection reset", "lost response"),
        ("the answer of https://bank.example broke off", "lost response"),
        ("the provider answered 202", "ambiguous answer"),
        ("the worker could not say", "ambiguous answer"),
        ("we gave up waiting while it was being handed over", "given up"),
    ],
)
def test_why_it_is_unknown_is_said_in_two_words(told: str, why: str) -> None:
    assert unknown_words.why_of(told) == why
    assert unknown_words.why_of(told, contradicted=True) == "contradicted"


def test_every_verdict_and_every_reason_has_its_words() -> None:
    assert set(unknown_words.VERDICT) == set(Verdict.values)
    assert set(unknown_words.FIELD) | unknown_words.MEANWHILE <= set(resolve.WHY_NOT)
    assert {why for _, why in unknown_words.REASONS} | {"ambiguous answer"} == set(unknown_words.WHY_SAYS)


def test_together_and_what_is_overdue_ask_a_fixed_number_of_times_by_the_index_of_what_is_unknown(
    world: World,
) -> None:
    """The runs of a workspace are many, and what is unknown among them few: nothing goes through the runs."""
    kind, run, bob = a_kind(world.workspace), world.run(), browser(world.bob)
    step, counts = a_step(run), []
    for start, end in ((0, 10), (10, 200)):
        Effect.objects.bulk_create(
            Effect(
                run=run, step=step, kind=kind, kind_name=kind.name, key=f"e{n}", op_class="external_write",
                title="Charge", settlement="UNKNOWN", unknown_since=in_seconds(-5 * 3600), body_digest="",
                plan_digest="", parameters_digest="",
            ) for n in range(start, end)
        )  # fmt: skip
        ids = list(Effect.objects.order_by("pk").values_list("pk", flat=True))
        with CaptureQueriesContext(connection) as form:
            answer = bob.post("/unknowns/together", {"do": "resolve", "unknown": ids})
        assert f"Resolve {len(ids)} together" in answer.content.decode()
        with CaptureQueriesContext(connection) as late:
            assert len(unknowns.overdue()) == len(ids)
        counts.append((len(form), len(late)))
    assert counts[0] == counts[1]
    if connection.vendor == "sqlite":  # the other database plans by what it has counted
        counting = unknowns._open("effect", [world.workspace.pk], unknowns.ANY).order_by().values("pk")
        assert "effect_unknown" in counting.explain()


# --- What a verdict may stand on --------------------------------------------------------------------------


def test_offered_are_the_lines_that_can_carry_a_verdict_and_of_which(world: World) -> None:
    a_kind(world.workspace, lookup=LOOK_UP, settle_window_s=3600)
    effect = lost(world, world.run())
    reconcile.apply_answer(effect.pk, Answer("can't tell", "timed out"))
    html = browser(world.bob).get(f"/unknowns/{effect.pk}").content.decode()
    assert '<fieldset class="cite of-acc">' in html, "nothing of it proves anything: only for that verdict"
    reconcile.apply_answer(effect.pk, Answer("absent"))  # inside its settle window
    reconcile.apply_answer(effect.pk, Answer("partial", items=["a"]))
    html = browser(world.bob).get(f"/unknowns/{effect.pk}").content.decode()
    assert '<fieldset class="cite">' in html
    assert re.findall(r'class="check of-(\w+)"', html) == ["part", "acc", "acc"]
