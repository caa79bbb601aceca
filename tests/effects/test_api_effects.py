"""Runs, effects, reports and kinds over the API."""

from __future__ import annotations

import hashlib

import pytest

from effects.drain import drain_run
from effects.models import Effect, Kind
from effects.reconcile import PRESENT, Answer, apply_answer
from runs.models import Evidence, Gate, Run, Step, Workspace
from tests.wire import Json, Wire, agent_of, effect_body, kind_body
from tests.worlds import World, fresh

pytestmark = pytest.mark.django_db
SEEN = {"worker": "w-1", "seen_version": 1}


@pytest.fixture
def agent(world: World) -> Wire:
    return agent_of(world.workspace)


@pytest.fixture
def run(agent: Wire) -> Json:
    return agent.run()


# --- Runs -------------------------------------------------------------------------------------------------


def test_a_run_is_registered_once_and_attached_to_afterwards(agent: Wire) -> None:
    body = {"key": "nightly-7", "name": "Nightly", "session": "november", "labels": {"team": "finance"}}
    first, again = agent.post("/runs", {**body, "worker": "w-1"}), agent.post("/runs", body)
    assert (first.status, again.status) == (201, 200)
    assert again.data["id"] == first.data["id"]
    assert (first.data["status"], first.data["outcome"], first.data["stop"]) == ("ACTIVE", "not ended", None)
    assert (first.data["session"], first.data["labels"]) == ("november", {"team": "finance"})
    assert first.data["url"].endswith(f"/runs/{first.data['id']}/")
    other = agent.post("/runs", {**body, "name": "Another"})
    assert (other.status, other.problem) == (422, "run-key-reused")
    assert "Use another key" in other.data["detail"]


def test_a_run_under_a_shut_gate_is_refused(world: World, agent: Wire) -> None:
    Workspace.objects.filter(pk=world.workspace.pk).update(gate=Gate.SHUT)
    said = agent.post("/runs", {"key": "late"})
    assert (said.status, said.problem, said.data["boundary"]) == (409, "stopped", "admit")
    assert not Run.objects.exists()


def test_runs_are_found_by_status_session_words_and_doubt(agent: Wire) -> None:
    ledger = agent.run("ledger", name="Close the ledger", session="november")
    agent.run("mail", name="Send the mail")
    agent.report(agent.permitted(ledger)["permit"], "unknown")
    agent.stop(ledger)
    drain_run(ledger["id"])
    found = {
        query: [run["key"] for run in agent.get(f"/runs?{query}").data["items"]]
        for query in (
            "status=UNKNOWN",
            "status=ACTIVE",
            "session=november",
            "q=LEDGER",
            "q=%25",
            "has_unknown=true",
            "has_unknown=false",
        )
    }
    assert found == {
        "status=UNKNOWN": ["ledger"],
        "status=ACTIVE": ["mail"],
        "session=november": ["ledger"],
        "q=LEDGER": ["ledger"],
        "q=%25": [],
        "has_unknown=true": ["ledger"],
        "has_unknown=false": ["mail"],
    }
    assert agent.get(f"/runs/{ledger['id']}").data["outcome"] == "awaiting verification"


def test_completing_names_what_is_still_open(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    path = f"/runs/{run['id']}/complete"
    said = agent.post(path, {"seen_version": 1})
    assert (said.status, said.problem) == (409, "not-quiet")
    assert said.data["permits"] == [{"id": permit["id"], "effect_key": "charge:7"}]
    assert [step["status"] for step in said.data["steps"]] == ["DISPATCHED"]
    agent.report(permit)
    assert agent.post(path, {"seen_version": 2}).problem == "stale-version"
    done = agent.post(path, {"seen_version": 1, "summary": "All paid."})
    assert (done.status, done.data["status"], done.data["outcome"]) == (200, "COMPLETED", "completed")
    assert done.data["summary"] == "All paid."


def test_a_stop_that_came_first_is_the_answer_to_completing_and_failing(agent: Wire, run: Json) -> None:
    stop = agent.stop(run).data
    for verb in ("complete", "fail"):
        said = agent.post(f"/runs/{run['id']}/{verb}", {"seen_version": 1})
        assert (said.status, said.problem) == (409, "stopped")
        assert said.data["current_version"] == 2
    assert agent.get(f"/runs/{run['id']}").data["stop"]["id"] == stop["id"]


def test_failing_leaves_what_was_in_flight_unknown(agent: Wire, run: Json) -> None:
    effect = agent.permitted(run)["effect"]
    said = agent.post(f"/runs/{run['id']}/fail", {"summary": "It broke."})
    assert (said.data["status"], said.data["outcome"]) == ("FAILED", "awaiting verification")
    assert agent.get(f"/effects/{effect['id']}").data["settlement"] == "UNKNOWN"


# --- Effects ----------------------------------------------------------------------------------------------


def test_an_effect_is_recorded_with_its_bytes_before_it_is_permitted(agent: Wire, run: Json) -> None:
    body = '{"amount": 1e2, "to": "a", "to": "b", "note": "é"}'
    said = agent.effect(run, body=body, title="Charge €100", target="card 7", amount="€100")
    assert said.status == 201
    effect, permit = said.data["effect"], said.data["permit"]
    assert effect["body_digest"] == hashlib.sha256(body.encode()).hexdigest()
    assert bytes(Effect.objects.get().body) == body.encode()
    assert (effect["settlement"], effect["plan"]) == ("DISPATCHED", {"none_because": "a test"})
    assert (permit["effect_id"], permit["effect_key"], permit["attempt"]) == (effect["id"], "charge:7", 1)


def test_a_known_key_is_answered_and_never_sent_twice(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    waiting = agent.effect(run)
    assert (waiting.status, waiting.data["known"], waiting.data["permit"]) == (200, "must_wait", None)
    assert waiting.data["what_to_do"].startswith("Do not send")
    agent.report(permit, result={"charge": "ch_1"})
    settled = agent.effect(run)
    assert (settled.data["known"], settled.data["result"]) == ("settled", {"charge": "ch_1"})
    other = agent.effect(run, body='{"amount": 101}')
    assert (other.status, other.problem) == (422, "effect-key-reused")


def test_a_declared_effect_is_dispatched_by_the_holder_of_its_step(agent: Wire, run: Json) -> None:
    step = agent.claimed(run)
    held = {"id": step["id"], "claim_token": step["claim_token"]}
    declared = agent.effect(run, dispatch=False, step=held)
    assert (declared.status, declared.data["permit"], declared.data["queued"]) == (201, None, False)
    assert declared.data["effect"]["settlement"] == "DECLARED"
    again = agent.effect(run, dispatch=False, step=held)
    assert (again.status, again.data["effect"]["id"]) == (200, declared.data["effect"]["id"])
    path = f"/effects/{declared.data['effect']['id']}/dispatch"
    assert agent.post(path, {"step_claim_token": "forged", **SEEN}).problem == "lost-claim"
    said = agent.post(path, {"step_claim_token": step["claim_token"], **SEEN})
    assert (said.status, said.data["effect"]["settlement"]) == (201, "DISPATCHED")


def test_an_effect_of_a_kind_that_we_send_is_queued(agent: Wire, run: Json) -> None:
    agent.put("/kinds/bank.charge", kind_body(provider="http", send={"url": "https://bank.example/charges"}))
    said = agent.effect(run)
    assert (said.status, said.data["permit"], said.data["queued"]) == (201, None, True)
    assert (said.data["effect"]["settlement"], said.data["effect"]["queued"]) == ("DECLARED", True)
    assert Effect.objects.get().queued_at is not None
    agent.run("other")
    assert agent.effect(agent.run("other"), kind="unregistered").data["permit"] is not None


def test_an_effect_under_a_step_of_another_run_is_not_found(agent: Wire, run: Json) -> None:
    step = agent.claimed(agent.run("other"))
    said = agent.effect(run, step={"id": step["id"], "claim_token": step["claim_token"]})
    assert said.problem == "not-found"
    assert not Effect.objects.exists()


@pytest.mark.parametrize(
    ("outcome", "settlement", "step"),
    [
        ("applied", "CONFIRMED", "SUCCEEDED"),
        ("partial", "PARTIAL", "PARTIAL"),
        ("not_applied", "NOT_APPLIED", "FAILED"),
        ("unknown", "UNKNOWN", "UNKNOWN"),
        ("not_sent", "DECLARED", "PENDING"),
    ],
)
def test_a_report_settles_its_effect(
    agent: Wire, run: Json, outcome: str, settlement: str, step: str
) -> None:
    permit = agent.permitted(run)["permit"]
    told = {"items": [1, 2], "provider_ref": "ch_1", "detail": "two\nlines", "usage": {"tokens": 7}}
    said = agent.report(permit, outcome, reported_at="2026-01-01T00:00:00Z", **told)
    assert said.status == 200
    assert said.data["effect"]["settlement"] == settlement
    assert said.data["permit"]["outcome"] == outcome
    assert said.data["late"] is False
    assert Step.objects.get().status == step
    again = agent.report(permit, outcome)
    assert (again.status, again.data["effect"]["settlement"]) == (200, settlement)


def test_a_report_of_another_holder_or_with_another_word_changes_nothing(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    forged = agent.report({**permit, "claim_token": "forged"})
    assert (forged.status, forged.problem) == (409, "lost-claim")
    assert forged.data["what_to_do"]
    agent.report(permit, "applied")
    other = agent.report(permit, "not_applied")
    assert (other.status, other.problem) == (409, "already-reported")
    assert Effect.objects.get().settlement == "CONFIRMED"


@pytest.mark.invariant("I11")
def test_a_late_report_settles_the_effect_and_never_moves_the_run(agent: Wire, run: Json) -> None:
    permit = agent.permitted(run)["permit"]
    agent.post(f"/runs/{run['id']}/fail", {})
    said = agent.report(permit, "applied")
    assert (said.status, said.data["late"], said.data["effect"]["settlement"]) == (200, True, "CONFIRMED")
    assert Run.objects.get().status == "FAILED"


def test_effects_are_read_one_by_one_and_as_a_list(agent: Wire, run: Json) -> None:
    effects = [agent.permitted(run, f"charge:{number}")["effect"] for number in range(3)]
    listed = agent.get(f"/runs/{run['id']}/effects?limit=2").data
    rest = agent.get(f"/runs/{run['id']}/effects?limit=2&cursor={listed['next_cursor']}").data
    assert [e["id"] for e in listed["items"] + rest["items"]] == [e["id"] for e in reversed(effects)]
    assert agent.get(f"/effects/{effects[0]['id']}").data["key"] == "charge:0"


def test_an_unknown_effect_shows_what_a_look_up_found(agent: Wire, run: Json) -> None:
    agent.put("/kinds/bank.charge", kind_body(lookup={"url": "https://bank.example/charges?key={key}"}))
    effect = agent.permitted(run)
    agent.report(effect["permit"], "unknown", detail="no answer")
    before = agent.get(f"/effects/{effect['effect']['id']}").data
    assert (before["settlement"], before["why_unknown"]) == ("UNKNOWN", "no answer")
    assert before["next_check_at"] is not None
    apply_answer(effect["effect"]["id"], Answer(PRESENT, provider_ref="ch_9"))
    after = agent.get(f"/effects/{effect['effect']['id']}").data
    assert (after["settlement"], after["ground"], after["provider_ref"]) == ("CONFIRMED", "looked up", "ch_9")


# --- Kinds ------------------------------------------------------------------------------------------------


def test_a_kind_is_registered_changed_and_left_alone(world: World, agent: Wire) -> None:
    lookup = {
        "url": "https://bank.example/charges/{key}?at=bank",
        "present_if": {"status": 200, "json_path": "state", "equals": "booked"},
        "absent_status": [404, 410],
        "key_path": "key",
    }
    body = kind_body(title="Charge a card", lookup=lookup, check_every_s=[5, 10.5], key_fencing=True)
    first, same = agent.put("/kinds/bank.charge", body), agent.put("/kinds/bank.charge", body)
    changed = agent.put("/kinds/bank.charge", {**body, "settle_window_s": 120})
    assert (first.status, same.status, changed.status) == (201, 200, 200)
    assert (first.data["lookup"], first.data["check_every_s"]) == (lookup, [5.0, 10.5])
    assert (first.data["key"], first.data["class"]) == ("The effect key.", "external_write")
    assert changed.data["settle_window_s"] == 120
    assert agent.get("/kinds/bank.charge").data == changed.data
    assert [kind["name"] for kind in agent.get("/kinds").data["items"]] == ["bank.charge"]
    lines = Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="kind.").order_by("seq")
    assert [line.kind for line in lines] == ["kind.registered", "kind.changed"]


@pytest.mark.parametrize(
    "answer", ["commits", "tells_apart", "key", "compensation", "durable_before_pause", "when_unknown"]
)
def test_each_of_the_six_answers_is_needed(agent: Wire, answer: str) -> None:
    body = kind_body()
    empty = [] if answer == "tells_apart" else ""
    blank = ["  "] if answer == "tells_apart" else "   "
    for said in (
        agent.put("/kinds/k", {name: value for name, value in body.items() if name != answer}),
        agent.put("/kinds/k", {**body, answer: empty}),
        agent.put("/kinds/k", {**body, answer: blank}),
    ):
        assert (said.status, said.problem) == (422, "invalid-request")
        assert said.data["errors"][0]["field"].startswith(answer)
    assert not Kind.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://bank.example/charges?key={key}",
        "ftp://bank.example/{key}",
        "https://bank.example/charges",
        "https://{key}.bank.example/charges",
        "https://bank.example/{key}/{other}",
        "https://bank.example/{key}#part",
        "https://user:secret@bank.example/{key}",
        "https://169.254.169.254/{key}",
        "https://[::ffff:10.0.0.1]/{key}",
        "https://127.0.0.1/{key}",
        "https://bank.example:99999/{key}",
        "https:///{key}",
        "gopher://bank.example/{key}",
        "not an address {key}",
        "https://bank.example/{key} ",
        "http://127.0.0.1:9000.evil.example/{key}",
    ],
)
def test_a_look_up_goes_to_a_public_address_by_https_and_carries_the_key(agent: Wire, url: str) -> None:
    said = agent.put("/kinds/bank.charge", kind_body(lookup={"url": url}))
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"] == "lookup.url"
    assert "secret" not in said.text
    assert not Kind.objects.exists()


def test_the_origins_of_the_installation_are_exempt_from_https(
    agent: Wire, settings: pytest.FixtureRequest
) -> None:
    settings.ALLSTOP_OUTBOUND_ORIGINS = ["http://127.0.0.1:9000"]  # type: ignore[attr-defined]
    mine = agent.put("/kinds/a", kind_body(lookup={"url": "http://127.0.0.1:9000/charges?key={key}"}))
    other = agent.put("/kinds/b", kind_body(lookup={"url": "http://127.0.0.1:9001/charges?key={key}"}))
    assert (mine.status, other.status) == (201, 422)


def test_only_a_kind_that_we_send_says_where_to(agent: Wire) -> None:
    sending = {"url": "https://bank.example/charges"}
    assert agent.put("/kinds/a", kind_body(provider="http")).data["errors"][0]["field"] == "send"
    assert agent.put("/kinds/a", kind_body(send=sending)).data["errors"][0]["field"] == "send"
    said = agent.put("/kinds/a", kind_body(provider="http", send=sending))
    assert (said.status, said.data["send"]) == (201, sending)


def test_a_kind_that_changes_leaves_effects_as_they_were_declared(agent: Wire, run: Json) -> None:
    agent.put("/kinds/bank.charge", kind_body())
    effect = Effect.objects.get(pk=agent.permitted(run)["effect"]["id"])
    agent.put("/kinds/bank.charge", {**kind_body(), "class": "delivery"})
    assert fresh(effect).op_class == "external_write"
    assert effect_body(run)["kind"] == "bank.charge"


def test_a_kind_that_our_executor_sends_may_leave_answers_to_its_provider(agent: Wire) -> None:
    send = {"url": "https://bank.example/charges"}
    own = {"class": "external_write", "provider": "http", "send": send, "commits": "At midnight."}
    said = agent.put("/kinds/bank.charge", own)
    assert (said.status, said.data["commits"]) == (201, "At midnight.")
    assert said.data["defaults"] == [
        "tells_apart",
        "key",
        "compensation",
        "durable_before_pause",
        "when_unknown",
    ]
    assert said.data["tells_apart"] == ["CONFIRMED", "PARTIAL", "NOT_APPLIED"]
    assert "Idempotency-Key" in said.data["key"]
    again = agent.put("/kinds/bank.charge", {**own, "key": "   "})
    assert (again.status, again.data["errors"][0]["field"]) == (422, "key")
