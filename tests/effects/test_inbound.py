"""Webhooks in: genuine or nothing, once, and evidence that settles its own effects and starts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import accounts, drain, hooks, inbound, intents, signing
from effects.models import Compensation, Effect, Inbound, Kind, Settlement
from runs import access
from runs.models import Evidence, EvidencePayload, RunStatus, Step, StepStatus
from runs.store import database_time, new_id
from tests.effects.hooking import READS, Teller, an_account
from tests.worlds import (
    World,
    a_compensation,
    a_kind,
    a_permit,
    a_run,
    a_step,
    an_effect,
    fresh,
    in_seconds,
    intention,
    kinds_of,
)

pytestmark = pytest.mark.django_db
KEY = "charge:7"


@pytest.fixture(autouse=True)
def bucket() -> None:
    hooks.refused.forget()


@pytest.fixture
def bank(world: World) -> Teller:
    return Teller(*an_account(world.workspace))


@pytest.fixture
def kind(world: World, bank: Teller) -> Kind:
    return a_kind(world.workspace, account="bank", updated_at=in_seconds(-600))


def stands(
    kind: Kind,
    settlement: str,
    ground: str = "",
    permit: str = "REPORTED",
    run: str = "ACTIVE",
    **fields: Any,
) -> Effect:
    """An effect of the kind in this settlement, of which one call was made a minute ago."""
    step = a_step(a_run(run, kind.workspace), status=StepStatus.UNKNOWN, op_class=kind.op_class)
    asked = {"effect_key": KEY, "ended_at": in_seconds(-50)}
    given = a_permit(step, permit, **asked) if settlement not in ("DECLARED", "NOT_STARTED") else None
    told = {
        "kind": kind,
        "ground": ground,
        "dispatched_at": in_seconds(-60),
        **fields,
    }
    if settlement in ("CONFIRMED", "PARTIAL", "NOT_APPLIED", "NOT_STARTED"):
        told["settled_at"] = in_seconds(-30)
    return an_effect(step, settlement, given, key=KEY, **told)


def written() -> tuple[int, int]:
    return Inbound.objects.count(), Evidence.objects.count()


# --- what it settles: by hand, from the contract ------------------------------------------------------------

#   stands as      on ground     its holder   the provider says   then stands as   it became
TABLE = [
    ("DECLARED", "", "", "succeeded", "DECLARED", "waiting"),
    ("DISPATCHED", "", "OPEN", "succeeded", "CONFIRMED", "settled"),
    ("DISPATCHED", "", "OPEN", "in part", "PARTIAL", "settled"),
    ("DISPATCHED", "", "OPEN", "failed", "DISPATCHED", "waiting"),
    ("UNKNOWN", "", "REPORTED", "succeeded", "CONFIRMED", "settled"),
    ("UNKNOWN", "", "REPORTED", "in part", "PARTIAL", "settled"),
    ("UNKNOWN", "", "REPORTED", "failed", "NOT_APPLIED", "settled"),
    ("UNKNOWN", "", "LOST", "succeeded", "CONFIRMED", "settled"),
    ("UNKNOWN", "", "LOST", "failed", "NOT_APPLIED", "settled"),
    ("UNKNOWN", "", "LOST", "pending", "UNKNOWN", "unread"),
    ("ACCEPTED_UNKNOWN", "", "LOST", "succeeded", "CONFIRMED", "settled"),
    ("CONFIRMED", "reported", "REPORTED", "succeeded", "CONFIRMED", "recorded"),
    ("CONFIRMED", "reported", "REPORTED", "failed", "UNKNOWN", "settled"),
    ("CONFIRMED", "webhook", "REPORTED", "failed", "UNKNOWN", "settled"),
    ("CONFIRMED", "inspected", "REPORTED", "failed", "CONFIRMED", "recorded"),
    ("PARTIAL", "looked up", "REPORTED", "succeeded", "UNKNOWN", "settled"),
    ("NOT_APPLIED", "reported", "REPORTED", "succeeded", "UNKNOWN", "settled"),
    ("NOT_APPLIED", "looked up", "REPORTED", "failed", "NOT_APPLIED", "recorded"),
    ("NOT_STARTED", "", "", "succeeded", "UNKNOWN", "settled"),
    ("NOT_STARTED", "", "", "failed", "NOT_STARTED", "recorded"),
]


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(("was", "ground", "permit", "says", "then", "became"), TABLE)
def test_what_a_webhook_settles(
    kind: Kind, bank: Teller, was: str, ground: str, permit: str, says: str, then: str, became: str
) -> None:
    effect = stands(kind, was, ground, permit or "REPORTED")
    assert bank.tell(KEY, says) == became
    now = fresh(effect)
    assert now.settlement == then
    assert now.contradicted == (then == "UNKNOWN" != was)
    if became == "settled":
        assert "webhook.received" in kinds_of(effect.run)
        assert now.ground == ("webhook" if then != "UNKNOWN" else ground)
    if became in ("waiting", "unread"):
        assert "webhook.received" not in kinds_of(effect.run)


def test_that_it_was_refused_proves_nothing_where_two_calls_were_made(kind: Kind, bank: Teller) -> None:
    """It may speak of the first; the control is the table's row with one call."""
    effect = stands(kind, "UNKNOWN", attempt=2)
    a_permit(effect.step, "REPORTED", effect_key=KEY)
    assert bank.tell(KEY, "failed") == "recorded"
    assert fresh(effect).settlement == "UNKNOWN"
    assert bank.tell(KEY, "succeeded") == "settled"
    assert fresh(effect).settlement == "CONFIRMED"


def test_what_it_says_of_the_effect_is_kept(kind: Kind, bank: Teller) -> None:
    effect = stands(kind, "UNKNOWN", permit="LOST")
    bank.tell(KEY, "in part", id="ch_1", missing=["row 3"], objects=2)
    now = fresh(effect)
    assert (now.provider_ref, now.items, now.counted, now.seen_twice) == ("ch_1", ["row 3"], 2, 2)
    line = Evidence.objects.get(stream=effect.run_id, kind="webhook.received")
    told = json.loads(EvidencePayload.objects.get(stream=line.stream, seq=line.seq).body)
    row = Inbound.objects.get()
    assert (line.ground, line.effect_key) == ("webhook", KEY)
    assert told["observed"]["digest"] == row.digest
    assert told["observed"]["message"] == row.message_id
    assert told["observed"]["fields"]["data.status"] == "in part"
    assert row.subject_id == effect.pk
    assert row.applied_at is not None


def test_one_of_an_abandoned_run_settles_and_the_run_stays_abandoned(kind: Kind, bank: Teller) -> None:
    effect = stands(kind, "UNKNOWN", permit="LOST", run="ABANDONED")
    assert bank.tell(KEY) == "settled"
    assert fresh(effect).settlement == "CONFIRMED"
    assert fresh(effect.run).status == RunStatus.ABANDONED


def test_one_that_settles_the_last_unknown_closes_the_run(world: World, kind: Kind, bank: Teller) -> None:
    """As every evidence does: UNKNOWN goes to CANCELLED, and no other way."""
    run = world.run()
    world.report(world.opened(run), "unknown")
    world.stop(run)
    assert drain.drain_run(run.pk) == RunStatus.UNKNOWN
    bank.tell(KEY)
    assert fresh(run).status == RunStatus.CANCELLED


def test_the_same_key_in_two_runs_is_one_object_at_the_provider(kind: Kind, bank: Teller) -> None:
    """That it is there is true of both; that one call was refused may speak of either."""
    first, second = stands(kind, "UNKNOWN", permit="LOST"), stands(kind, "UNKNOWN", permit="LOST")
    assert bank.tell(KEY, "failed") == "recorded"
    assert {fresh(first).settlement, fresh(second).settlement} == {"UNKNOWN"}
    assert bank.tell(KEY) == "settled"
    assert {fresh(first).settlement, fresh(second).settlement} == {"CONFIRMED"}


#   the compensation   its permit   the provider says   then stands as   it became
REPAIRS = [
    ("APPROVED", "REPORTED", "succeeded", "APPROVED", "waiting"),
    ("DISPATCHED", "REPORTED", "succeeded", "VERIFIED", "settled"),
    ("DISPATCHED", "OPEN", "failed", "DISPATCHED", "waiting"),
    ("DISPATCHED", "REPORTED", "failed", "FAILED", "settled"),
    ("UNKNOWN", "LOST", "succeeded", "VERIFIED", "settled"),
    ("UNKNOWN", "LOST", "in part", "FAILED", "settled"),
]


@pytest.mark.parametrize(("state", "permit", "says", "then", "became"), REPAIRS)
def test_what_a_webhook_says_of_a_compensation(
    kind: Kind, bank: Teller, state: str, permit: str, says: str, then: str, became: str
) -> None:
    effect = stands(kind, "CONFIRMED", "reported", run="CANCELLED")
    own = new_id("cmp")  # its key is its id
    asked = {"dispatched_at": in_seconds(-60), "unknown_since": in_seconds(-9)}
    repair = a_compensation(effect, state, id=own, key=own, kind=kind, **asked)
    step = a_step(effect.run, "UNKNOWN" if state == "UNKNOWN" else "DISPATCHED")
    given = a_permit(step, permit, effect_key=repair.key, guard="compensate")
    Compensation.objects.filter(pk=repair.pk).update(permit=given)
    assert bank.tell(repair.key, says) == became
    assert Compensation.objects.get(pk=repair.pk).state == then
    assert fresh(effect).settlement == "CONFIRMED"  # the original stays what it was


# --- whose it is --------------------------------------------------------------------------------------------


def test_only_effects_of_the_account_and_its_workspace_hear_it(
    world: World, kind: Kind, bank: Teller
) -> None:
    ours = stands(kind, "UNKNOWN", permit="LOST")
    an_account(world.workspace, "other bank")
    other = stands(a_kind(world.workspace, "other.charge", account="other bank"), "UNKNOWN", permit="LOST")
    none = stands(a_kind(world.workspace, "plain.charge"), "UNKNOWN", permit="LOST")
    an_account(world.elsewhere)  # of the same name
    foreign = stands(a_kind(world.elsewhere, account="bank"), "UNKNOWN", permit="LOST")
    assert bank.tell(KEY) == "settled"
    assert fresh(ours).settlement == "CONFIRMED"
    assert {fresh(one).settlement for one in (other, none, foreign)} == {"UNKNOWN"}
    assert not Evidence.objects.filter(stream__in=[other.run_id, none.run_id, foreign.run_id]).exists()


def test_one_for_a_key_of_others_waits_as_one_for_a_key_that_nobody_has(
    world: World, kind: Kind, bank: Teller
) -> None:
    """So the sender learns nothing of what there is."""
    mallory = Teller(*an_account(world.elsewhere))
    stands(kind, "UNKNOWN", permit="LOST")
    answers = [mallory.post(mallory.body(key)) for key in (KEY, "charge:none")]
    assert {(one.status_code, one.content) for one in answers} == {(200, b'{"answer":"taken"}')}
    assert {one.became for one in Inbound.objects.all()} == {"waiting"}


# --- genuine or nothing -------------------------------------------------------------------------------------


Sent = tuple[bytes, dict[str, str], str]


def wrong(bank: Teller, name: str) -> Sent:
    """A webhook that is not genuine, in one way; `header:value` puts that value there."""
    body = bank.body(KEY)
    right = bank.headers(body)
    if name in TO:
        return body, right, TO[name]
    if name in OTHERWISE:
        return OTHERWISE[name](bank, body)
    header, _, value = name.partition(":")
    return body, {**right, header: value}, ""


def with_changed(bank: Teller, body: bytes, header: str, value: str) -> Sent:
    right = bank.headers(body)
    return body, {**right, header: value.format(right[header])}, ""


TO = {"unknown account": f"acc_{'0' * 32}", "no account at all": "x%00y"}
OTHERWISE: dict[str, Callable[[Teller, bytes], Sent]] = {
    "another secret": lambda t, body: (body, Teller(t.account, signing.new_secret()).headers(body), ""),
    "too old": lambda t, body: (body, t.headers(body, late_s=303), ""),
    "too early": lambda t, body: (body, t.headers(body, late_s=-305), ""),
    "other bytes": lambda t, body: (body + b" ", t.headers(body), ""),
    "another id": lambda t, body: with_changed(t, body, "webhook-id", "msg-of-others"),
    "another time": lambda t, body: with_changed(t, body, "webhook-timestamp", "1796000000"),
    "only v1a": lambda t, body: with_changed(t, body, "webhook-signature", "v1a,{}"),
    "no headers": lambda t, body: (body, {}, ""),
}
WRONG = [
    *("another secret", "too old", "too early", "other bytes", "another id", "another time"),
    *("unknown account", "no account at all", "only v1a", "no headers"),
    *("webhook-signature:", "webhook-signature:v1", "webhook-signature:v1,", "webhook-signature:v1,é%00"),
    *("webhook-signature:,,, v1,=", "webhook-timestamp:", "webhook-timestamp:now", "webhook-timestamp:1e9"),
    *("webhook-timestamp:٣", "webhook-timestamp:-5", f"webhook-timestamp:{'9' * 5000}"),
    *("webhook-id:", f"webhook-id:{'m' * 300}", "webhook-id:a\tb"),
]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_genuine_gets_one_answer_and_changes_nothing(kind: Kind, bank: Teller, name: str) -> None:
    effect, before = stands(kind, "UNKNOWN", permit="LOST"), written()
    body, headers, to = wrong(bank, name)
    answer = bank.post(body, headers, to)
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/webhook-refused")
    assert answer.json()["detail"].startswith("No account of this address, no signature that fits")
    assert written() == before
    assert fresh(effect).settlement == Settlement.UNKNOWN
    assert bank.tell(KEY) == "settled"  # the control: the same, genuine


@pytest.mark.parametrize("late_s", [-290, 290])
def test_five_minutes_either_way_is_now(kind: Kind, bank: Teller, late_s: int) -> None:
    body = bank.body(KEY)
    assert bank.post(body, bank.headers(body, late_s=late_s)).status_code == 200


def test_of_several_signatures_one_that_fits_is_enough(kind: Kind, bank: Teller) -> None:
    body = bank.body(KEY)
    headers = bank.headers(body)
    headers["webhook-signature"] = f"v1,bm90IG91cnM= v1a,x {headers['webhook-signature']}"
    assert bank.post(body, headers).status_code == 200


def test_a_secret_of_another_workspace_does_not_fit(world: World, bank: Teller) -> None:
    mallory = Teller(*an_account(world.elsewhere))
    body = bank.body(KEY)
    assert bank.post(body, mallory.headers(body)).status_code == 401
    assert not Inbound.objects.exists()


def test_two_secrets_are_in_force_until_the_older_is_ended(world: World, bank: Teller) -> None:
    named = {"workspace_id": world.workspace.pk, "account_id": bank.account.pk}
    put = accounts.rotate_secret(actor=access.SET_UP, **named)
    newer, body = Teller(put.account, put.secret), bank.body(KEY)
    assert [one.post(body).status_code for one in (bank, newer)] == [200, 200]
    accounts.end_old_secrets(actor=access.SET_UP, **named)
    assert [one.post(body).status_code for one in (bank, newer)] == [401, 200]


def test_a_secret_sealed_with_a_key_that_is_lost_fits_nothing(bank: Teller, settings: Settings) -> None:
    settings.SECRET_KEY = "another one"
    assert bank.post(bank.body(KEY)).status_code == 401


def test_an_unknown_account_costs_the_same_work(
    bank: Teller, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same statements and the same comparison: what differs is not to be told from outside."""
    compared: list[int] = []
    fits = signing.fits

    def counting(in_force: Any, *args: Any) -> bool:
        compared.append(len(in_force))
        return fits(in_force, *args)

    monkeypatch.setattr(signing, "fits", counting)
    for name in ("another secret", "unknown account"):
        body, headers, to = wrong(bank, name)
        with django_assert_num_queries(2):
            assert bank.post(body, headers, to).status_code == 401
    assert compared == [1, 1]


def test_a_replay_is_known_and_changes_nothing(kind: Kind, bank: Teller) -> None:
    effect = stands(kind, "UNKNOWN", permit="LOST")
    body = bank.body(KEY)
    headers = bank.headers(body)
    assert bank.post(body, headers).json() == {"answer": "taken"}
    before = written()
    assert bank.post(body, headers).json() == {"answer": "known"}
    other = bank.body(KEY, "failed")  # the same id, signed anew over other bytes
    assert bank.post(other, bank.headers(other, headers["webhook-id"])).json() == {"answer": "known"}
    assert written() == before
    assert fresh(effect).settlement == "CONFIRMED"


def test_the_same_id_of_two_accounts_is_two_messages(world: World, bank: Teller) -> None:
    other = Teller(*an_account(world.workspace, "other bank"))
    body = bank.body(KEY)
    assert [one.post(body, one.headers(body, "msg-1")).json()["answer"] for one in (bank, other)] == [
        "taken",
        "taken",
    ]


def test_too_many_that_are_refused_wait_and_hold_up_none_that_is_genuine(bank: Teller) -> None:
    body = bank.body(KEY)
    answers = [bank.post(body, {}).status_code for _ in range(32)]
    assert set(answers[:30]) == {401}
    assert set(answers[30:]) == {429}
    assert bank.post(body).status_code == 200


def test_only_a_post_is_taken(bank: Teller) -> None:
    answer = bank.client.get(f"/hooks/{bank.account.pk}")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


# --- bodies -------------------------------------------------------------------------------------------------

BODIES = {
    "a page": b"<!doctype html><p>no",
    "nothing": b"",
    "not UTF-8": b"\xff\xfe",
    "very deep": b"[" * 100_000,
    "deep, but whole": b"[" * 40 + b"]" * 40,
    "a number too long": b'{"data": {"key": ' + b"9" * 9_000 + b"}}",
    "not a number": b'{"data": {"key": "charge:7", "status": NaN}}',
    "half a character": b'{"data": {"key": "\\ud800", "status": "succeeded"}}',
    "a key that is no text": b'{"data": {"key": 7, "status": "succeeded"}}',
    "a key that no effect can have": json.dumps({"data": {"key": "k" * 201, "status": "succeeded"}}).encode(),
    "a word that says nothing": b'{"data": {"key": "charge:7", "status": "pending"}}',
    "a list": b"[1, 2]",
    "null": b"null",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_genuine_one_that_can_not_be_read_is_kept_and_settles_nothing(
    kind: Kind, bank: Teller, name: str
) -> None:
    effect = stands(kind, "UNKNOWN", permit="LOST")
    body = BODIES[name]
    headers = bank.headers(body)
    assert bank.post(body, headers).status_code == 200
    assert bank.inbound(headers).became == "unread"
    assert fresh(effect).settlement == "UNKNOWN"


def test_one_that_is_too_large_is_not_read(bank: Teller) -> None:
    body = bank.body(KEY) + b" " * 256 * 1024
    assert bank.post(body).status_code == 413
    fits = bank.body(KEY).ljust(256 * 1024)
    assert bank.post(fits).status_code == 200


def test_no_secret_in_a_message_is_kept(kind: Kind, bank: Teller) -> None:
    effect = stands(kind, "UNKNOWN", permit="LOST")
    bank.tell(KEY, "succeeded", id="sk_live_abcdefghijkl", password="hunter22", note="Bearer abcdefghijkl")
    kept = Inbound.objects.get().body + str(fresh(effect).provider_ref)
    kept += "".join(EvidencePayload.objects.filter(stream=effect.run_id).values_list("body", flat=True))
    assert "succeeded" in kept
    assert not [secret for secret in ("sk_live_abc", "hunter22", "abcdefghijkl") if secret in kept]


def test_an_account_that_reads_nothing_keeps_what_comes(world: World) -> None:
    silent = Teller(*an_account(world.workspace, "silent", reads={}))
    assert silent.tell(KEY) == "unread"


# --- before its effect --------------------------------------------------------------------------------------


def test_one_that_comes_before_its_effect_is_taken_at_the_dispatch(
    world: World, kind: Kind, bank: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.run()
    assert bank.tell(KEY) == "waiting"
    opened = world.opened(run)
    waiting = inbound.of_effect(opened.subject.pk)
    assert len(waiting) == 1
    assert inbound.to_apply() == waiting
    assert inbound.apply_waiting(waiting[0]) == "settled"
    assert fresh(opened.subject).settlement == "CONFIRMED"
    assert inbound.apply_waiting(waiting[0]) == ""
    assert inbound.to_apply() == []


def test_one_that_says_no_before_the_dispatch_proves_nothing_of_it(
    world: World, kind: Kind, bank: Teller
) -> None:
    run = world.run()
    assert bank.tell(KEY, "failed") == "waiting"
    opened = world.opened(run)
    assert inbound.to_apply() == []  # its holder is at work
    world.report(opened, "unknown")
    [waiting] = inbound.to_apply()
    assert inbound.apply_waiting(waiting) == "recorded"
    assert fresh(opened.subject).settlement == "UNKNOWN"


def test_one_that_says_no_while_its_holder_is_at_work_waits_for_it(
    world: World, kind: Kind, bank: Teller
) -> None:
    opened = world.opened(world.run())
    assert bank.tell(KEY, "failed") == "waiting"
    world.report(opened, "unknown")
    assert [inbound.apply_waiting(one) for one in inbound.to_apply()] == ["settled"]
    assert fresh(opened.subject).settlement == "NOT_APPLIED"


def test_one_whose_kind_has_another_account_by_now_holds_up_no_other(
    world: World, kind: Kind, bank: Teller
) -> None:
    first, second = world.opened(world.run()), world.opened(world.run(), "charge:8")
    for key in (KEY, "charge:8"):
        assert bank.tell(key, "failed") == "waiting"
    for opened in (first, second):
        world.report(opened, "unknown")
    assert len(inbound.to_apply()) == 2, "the control"
    other = a_kind(world.workspace, "bank.other", account="other")
    Effect.objects.filter(pk=first.subject.pk).update(kind=other)
    [waiting] = inbound.to_apply(1)
    assert inbound.apply_waiting(waiting) == "settled"
    assert [fresh(one.subject).settlement for one in (first, second)] == ["UNKNOWN", "NOT_APPLIED"]
    assert inbound.to_apply() == []
    Effect.objects.filter(pk=first.subject.pk).update(kind=kind)
    assert [inbound.apply_waiting(one) for one in inbound.to_apply()] == ["settled"]


def test_the_sweep_finds_what_came_while_the_dispatch_committed(
    world: World, kind: Kind, bank: Teller
) -> None:
    """As if neither had seen the other: the row is there, and nothing was marked."""
    bank.tell(KEY)
    opened = world.opened(world.run())
    Inbound.objects.update(subject_id="")
    [waiting] = inbound.to_apply()
    assert inbound.apply_waiting(waiting) == "settled"
    assert fresh(opened.subject).settlement == "CONFIRMED"


def test_what_nothing_claims_in_a_day_expires_and_is_never_applied(
    world: World, kind: Kind, bank: Teller
) -> None:
    bank.tell(KEY)
    assert inbound.over() == []
    Inbound.objects.update(expires_at=in_seconds(-1))
    opened = world.opened(world.run())
    assert inbound.to_apply() == []
    assert inbound.over() == [bank.account.pk]
    assert inbound.forget(bank.account.pk) == 1
    assert Inbound.objects.get().became == "expired"
    assert inbound.over() == []
    assert fresh(opened.subject).settlement == "DISPATCHED"


def test_what_is_older_than_thirty_days_is_forgotten(bank: Teller) -> None:
    bank.tell(KEY, "pending")
    old = int((database_time() - inbound.KEPT).timestamp() * 1000) - 1
    Inbound.objects.update(id=f"inb_{old:012x}{'0' * 20}")
    assert inbound.over() == [bank.account.pk]
    assert inbound.forget(bank.account.pk) == 1
    assert not Inbound.objects.exists()


def test_a_dispatch_of_a_kind_without_an_account_asks_nothing_more(
    world: World, kind: Kind, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    a_kind(world.workspace, "plain.charge")
    run = world.run()
    world.opened(run, "first")  # its worker is known from here on
    counts = []
    for key, name in (("a", "plain.charge"), ("b", "bank.charge")):
        with django_assert_max_num_queries(60) as asked:
            intents.dispatch(world.ask(run, step_key=key), intention(key, kind=name))
        counts.append(len(asked))
    assert counts[1] == counts[0] + 2


# --- it starts nothing --------------------------------------------------------------------------------------


@pytest.mark.invariant("I17")
@pytest.mark.parametrize("status", ["PAUSED", "CANCELLING", "CANCELLED", "UNKNOWN", "COMPLETED", "FAILED"])
@pytest.mark.parametrize("says", ["succeeded", "failed"])
def test_a_webhook_starts_and_resumes_nothing(kind: Kind, bank: Teller, status: str, says: str) -> None:
    Kind.objects.update(retry_after_s=[1.0])
    effect = stands(kind, "UNKNOWN", permit="LOST", run=status)
    a_step(effect.run, "PENDING" if status == "PAUSED" else "WITHHELD", key="next")
    before = {step.key: step.status for step in Step.objects.filter(run=effect.run)}
    assert bank.tell(KEY, says) == "settled"
    after = {step.key: step.status for step in Step.objects.filter(run=effect.run)}
    moved = {key for key, now in after.items() if before[key] != now}
    assert moved == {effect.step.key}
    assert after[effect.step.key] in ("SUCCEEDED", "PARTIAL", "FAILED")
    now = fresh(effect.run)
    assert now.cancel_version == effect.run.cancel_version
    assert now.status == {"UNKNOWN": "CANCELLED", "CANCELLING": "CANCELLED"}.get(status, status)


def test_a_webhook_plans_no_retry_where_a_look_up_would(
    world: World, kind: Kind, bank: Teller, settings: Settings
) -> None:
    """The control is the same by a look-up, in the tests of retries."""
    Kind.objects.update(provider="http", retry_after_s=[1.0])
    effect = stands(kind, "UNKNOWN", permit="LOST")
    assert bank.tell(KEY, "failed") == "settled"
    assert fresh(effect.step).status == StepStatus.FAILED
    assert fresh(effect.step).due_at is None


# --- jobs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def job(world: World, bank: Teller) -> Kind:
    return a_kind(
        world.workspace, "train", account="bank", op_class="external_job", updated_at=in_seconds(-600)
    )


def test_how_far_a_job_is_comes_by_webhook_too(job: Kind, bank: Teller) -> None:
    effect = stands(job, "UNKNOWN", permit="LOST")
    assert bank.tell(KEY, None, job="running") == "settled"
    now = fresh(effect)
    assert (now.settlement, now.ground, now.job_state) == ("CONFIRMED", "webhook", "running")
    bank.tell(KEY, None, job="completed")
    bank.tell(KEY, None, job="running")  # which came late
    assert (fresh(effect).settlement, fresh(effect).job_state) == ("CONFIRMED", "completed")
    assert [kind for kind in kinds_of(effect.run) if kind.startswith("job.")] == [
        "job.running",
        "job.completed",
    ]


def test_that_a_job_failed_does_not_say_that_it_was_never_taken(job: Kind, bank: Teller) -> None:
    effect = stands(job, "UNKNOWN", permit="LOST")
    bank.tell(KEY, None, job="failed")
    assert (fresh(effect).settlement, fresh(effect).job_state) == ("UNKNOWN", "failed")


def test_words_of_the_account_say_how_far_a_job_is(world: World, job: Kind, bank: Teller) -> None:
    reads = {**READS, "jobs": {"running": ["working"], "completed": ["done"]}}
    named = {"workspace_id": world.workspace.pk, "name": "bank"}
    accounts.put_account(actor=access.SET_UP, new=accounts.New(reads=reads), **named)
    effect = stands(job, "CONFIRMED", "reported")
    bank.tell(KEY, None, job="done")
    assert fresh(effect).job_state == "completed"


@pytest.mark.parametrize(("says", "then"), [("succeeded", "VERIFIED"), ("failed", "UNKNOWN")])
def test_no_effect_takes_the_place_of_the_compensation_whose_id_it_has_for_a_key(
    kind: Kind, bank: Teller, says: str, then: str
) -> None:
    """That one of them was refused may speak of either."""
    original, own = stands(kind, "CONFIRMED", "reported", run="CANCELLED"), new_id("cmp")
    asked = {"dispatched_at": in_seconds(-60), "unknown_since": in_seconds(-9)}
    repair = a_compensation(original, "UNKNOWN", id=own, key=own, kind=kind, **asked)
    a_permit(a_step(original.run, "UNKNOWN"), "LOST", effect_key=own, guard="compensate")
    step = a_step(a_run("ACTIVE", kind.workspace), "DISPATCHED")
    an_effect(step, "DECLARED", key=own, kind=kind)
    bank.tell(own, says)
    assert fresh(repair).state == then
