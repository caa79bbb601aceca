"""Idempotency-Key: the answer is kept with the work, in one transaction, and replayed."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from effects.models import Effect
from runs import idempotency, store
from runs.evidence import canonical, digest
from runs.models import IdempotencyRecord, Permit, Refusal, Run, Step
from runs.store import database_time
from tests.wire import Said, Wire, agent_of, effect_body
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


def test_a_post_that_creates_needs_a_key(agent: Wire) -> None:
    said = agent.call("POST", "/runs", {"key": "close-books"})
    assert (said.status, said.problem) == (400, "idempotency-key-missing")
    assert "Idempotency-Key" in said.data["detail"]
    assert not Run.objects.exists()


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "two words", "é"])
def test_a_key_that_cannot_be_used_is_refused(agent: Wire, key: str) -> None:
    said = agent.call("POST", "/runs", {"key": "close-books"}, key=key)
    assert (said.status, said.problem) == (400, "idempotency-key-invalid")


def test_the_same_request_gets_the_same_answer_and_nothing_is_done_twice(agent: Wire) -> None:
    run = agent.run()
    path, body = f"/runs/{run['id']}/effects", effect_body(run)
    first = agent.post(path, body, key="k-1")
    again = agent.post(path, dict(reversed(body.items())), key='"k-1"')
    assert (first.status, again.status) == (201, 201)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.text == first.text, "the same permit, with its token"
    assert Permit.objects.count() == Effect.objects.count() == 1


def test_another_request_under_the_same_key_is_refused(agent: Wire) -> None:
    run = agent.run()
    path = f"/runs/{run['id']}/effects"
    agent.post(path, effect_body(run), key="k-1")
    other_body = agent.post(path, effect_body(run, "charge:8"), key="k-1")
    other_path = agent.post(f"/runs/{run['id']}/complete", {"seen_version": 1}, key="k-1")
    assert [said.problem for said in (other_body, other_path)] == ["idempotency-key-reused"] * 2
    assert [said.status for said in (other_body, other_path)] == [422, 422]
    assert Effect.objects.count() == 1


def test_what_was_asked_is_kept_keyed_so_that_no_short_secret_is_guessed_from_it(agent: Wire) -> None:
    body = {"key": "close-books", "name": "PIN=4711"}
    assert agent.post("/runs", body, key="k-1").status == 201
    kept = IdempotencyRecord.objects.get(key="k-1")
    assert "4711" not in kept.body
    assert kept.request_digest != digest(canonical(["POST", "/api/v1/runs", body])), (
        "anybody could try all PINs"
    )
    assert agent.post("/runs", body, key="k-1").replayed
    assert agent.post("/runs", {**body, "name": "PIN=4712"}, key="k-1").problem == "idempotency-key-reused"


def test_two_tokens_do_not_share_keys(world: World, agent: Wire) -> None:
    agent.run()
    other = agent_of(world.workspace)
    agent.post("/runs", {"key": "one"}, key="same")
    assert other.post("/runs", {"key": "two"}, key="same").data["key"] == "two"


def test_a_refusal_is_kept_and_counted_once(agent: Wire) -> None:
    run = agent.run()
    agent.stop(run)
    first = agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1")
    again = agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1")
    assert (first.status, again.status, again.replayed) == (409, 409, True)
    assert again.text == first.text
    assert again.headers["Content-Type"] == "application/problem+json"
    assert Refusal.objects.get().count == 1
    later = agent.effect(run)
    assert (later.replayed, later.data["refusal_count"]) == (False, 2)


def test_what_changed_nothing_is_not_kept(agent: Wire) -> None:
    run = agent.run()
    step = agent.claimed(run)
    path, body = f"/runs/{run['id']}/complete", {"seen_version": 1}
    assert agent.post(path, body, key="k-1").problem == "not-quiet"
    agent.post(f"/steps/{step['id']}/release", {"claim_token": step["claim_token"]})
    assert agent.post(path, body, key="k-1").data["status"] == "COMPLETED"
    assert agent.post(path, body, key="k-1").replayed


def test_a_claim_whose_answer_was_lost_is_given_again(agent: Wire) -> None:
    run = agent.run()
    body = {"key": "pay", "class": "read", "claim": {"worker": "w-1", "seen_version": 1}}
    first = agent.post(f"/runs/{run['id']}/steps", body, key="k-1")
    again = agent.post(f"/runs/{run['id']}/steps", body, key="k-1")
    assert again.data["claim_token"] == first.data["claim_token"]
    other = agent.post(f"/runs/{run['id']}/steps", body, key="k-2")
    assert (other.status, other.data["claim_token"], other.data["status"]) == (200, None, "CLAIMED")


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("I8")
def test_a_commit_whose_answer_was_lost_is_found_again_by_its_key(
    agent: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, commit = agent.run(), connection._commit  # type: ignore[attr-defined]

    def commit_and_lose() -> None:
        commit()
        raise OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_commit", commit_and_lose)
        lost = agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1")
    assert (lost.status, lost.problem) == (503, "store-unavailable")
    assert lost.headers["Retry-After"] == "1"
    found = agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1")
    assert (found.status, found.replayed) == (201, True)
    assert agent.look(found.data["permit"]).data["look"] == "open"
    assert Permit.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_neither_work_nor_key_is_kept_when_the_answer_cannot_be(
    agent: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = agent.run()
    kept = IdempotencyRecord.objects.count()
    with monkeypatch.context() as patch:
        patch.setattr("effects.api.permit_out", lambda *_: 1 / 0)
        said = agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1")
    assert (said.status, said.problem) == (500, "internal-error")
    assert "ZeroDivision" not in said.text
    assert IdempotencyRecord.objects.count() == kept
    assert not Permit.objects.exists()
    assert agent.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1").status == 201


def test_a_key_whose_answer_is_still_being_made_asks_to_wait(agent: Wire) -> None:
    run = agent.run()
    path, body = f"/runs/{run['id']}/steps", {"key": "pay", "class": "read"}
    agent.post(path, body, key="k-1")
    IdempotencyRecord.objects.filter(key="k-1").update(status=None)
    said = agent.post(path, body, key="k-1")
    assert (said.status, said.problem) == (409, "idempotency-key-in-progress")


def test_old_answers_are_forgotten(agent: Wire) -> None:
    agent.run()
    agent.run("other")
    old = IdempotencyRecord.objects.order_by("pk").first()
    assert old is not None
    IdempotencyRecord.objects.filter(pk=old.pk).update(created_at=database_time() - timedelta(days=8))
    assert idempotency.forget() == 1
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.race
def test_twins_at_the_same_moment_come_to_one_permit_and_one_answer(agent: Wire) -> None:
    run, twins = agent.run(), 6
    barrier, answers = threading.Barrier(twins), list[Said]()

    def ask() -> None:
        twin = Wire(agent.token)
        barrier.wait()
        try:
            answers.append(twin.post(f"/runs/{run['id']}/effects", effect_body(run), key="k-1"))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(twins)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [said.status for said in answers] == [201] * twins
    assert len({said.text for said in answers}) == 1
    assert sum(not said.replayed for said in answers) == 1
    assert Permit.objects.count() == Step.objects.count() == 1


def test_work_alongside_a_verb_is_done_again_with_it_and_only_in_its_block() -> None:
    done: list[Any] = []
    tries = iter([OperationalError("database is locked"), None])

    @store.verb
    def work() -> str:
        failure = next(tries, None)
        if failure is not None and connection.vendor == "sqlite":
            raise failure
        return "worked"

    with store.alongside(done.append):
        assert work() == "worked"
    assert done == ["worked"]
    work()
    assert done == ["worked"]
