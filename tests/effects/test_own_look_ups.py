"""Agents' own look-ups: we ask them by a signed question, or they come for what is due."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import asking, duplicates, kinds, lookup, polled, reconcile, repair
from effects.duplicates import Known
from effects.kinds import BadKind, NewKind
from effects.models import Compensation, Effect, Kind
from effects.providers import own
from effects.reconcile import Answer
from effects.verdicts import NotResolved
from runs import access, people
from runs.models import Evidence, EvidencePayload, Run
from tests.effects.answering import Answering
from tests.effects.hooking import an_account
from tests.effects.repairing import approved, dispatched, fall_due, report, with_refunds
from tests.receiver import is_genuine
from tests.wire import ALL, Wire
from tests.worlds import (
    World,
    a_kind,
    a_permit,
    a_run,
    a_step,
    a_token,
    an_effect,
    fresh,
    in_seconds,
    kinds_of,
)

pytestmark = pytest.mark.django_db
KEY = "charge:7"


@pytest.fixture(autouse=True)
def one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the test's own transaction stays open."""
    for module in (lookup, own, repair):
        monkeypatch.setattr(module, "close_old_connections", lambda: None)


@pytest.fixture
def agent(settings: Settings) -> Iterator[Answering]:
    with Answering() as agent:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [agent.origin]
        yield agent


@pytest.fixture
def secret(world: World) -> str:
    return an_account(world.workspace)[1]


@pytest.fixture
def called(world: World, agent: Answering, secret: str) -> Kind:
    return a_kind(
        world.workspace,
        account="bank",
        lookup={"callback": f"{agent.origin}/look"},
        updated_at=in_seconds(-9_000),
        settle_window_s=60,
    )


@pytest.fixture
def polls(world: World) -> Kind:
    return a_kind(world.workspace, lookup={"poll": True}, updated_at=in_seconds(-9_000), settle_window_s=60)


def unknown(kind: Kind, run: Run, key: str = KEY, **fields: Any) -> Effect:
    """One whose holder said long ago that it can't say, and whose look-up is due."""
    step = a_step(run, "UNKNOWN", key=key)
    permit = a_permit(step, "REPORTED", effect_key=key, ended_at=in_seconds(-500))
    due = {
        "next_check_at": in_seconds(-1),
        "check_until": in_seconds(3_600),
        "dispatched_at": in_seconds(-600),
    }
    return an_effect(
        step,
        "UNKNOWN",
        permit,
        **{"key": key, "kind": kind, "attempt": 1, "unknown_since": in_seconds(-500), **due, **fields},
    )


# --- we ask the agent ---------------------------------------------------------------------------------------

#   the agent's answer                                            then stands as
ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"answer": "present", "ref": "ch_1", "count": 1}, "CONFIRMED"),
    ({"answer": "partial", "items": ["row 3"]}, "PARTIAL"),
    ({"answer": "absent"}, "NOT_APPLIED"),
    ({"answer": "can't tell", "detail": "the bank is away"}, "UNKNOWN"),
]


@pytest.mark.parametrize(("said", "then"), ANSWERS)
def test_an_agent_is_asked_by_a_signed_question(
    world: World, agent: Answering, secret: str, called: Kind, said: dict[str, Any], then: str
) -> None:
    effect = unknown(called, world.run())
    agent.body = json.dumps(said).encode()
    assert lookup.check_effect(effect.pk) == then
    [asked] = agent.heard
    told = EvidencePayload.objects.filter(stream=effect.run_id, body__contains='"answered_by":"callback"')
    assert told.exists(), "an agent said so, in its provider's place"
    assert is_genuine(secret, asked.headers, asked.body)
    question = json.loads(asked.body)
    assert (question["key"], question["kind"], question["attempt"]) == (KEY, "bank.charge", 1)
    assert fresh(effect).ground == ("looked up" if then != "UNKNOWN" else "")


BROKEN = {
    "an error": (500, b'{"answer": "absent"}'),
    "a redirect": (302, b'{"answer": "absent"}'),
    "a page": (200, b"<html>no such charge</html>"),
    "another word": (200, b'{"answer": "gone"}'),
    "nothing": (200, b""),
    "a list": (200, b'["absent"]'),
    "more than is asked for": (200, b'{"answer": "absent", "trust_me": true}'),
    "items of what is absent": (200, b'{"answer": "absent", "items": [1]}'),
    "a fence around what is there": (200, b'{"answer": "present", "fenced": true}'),
    "a count below nothing": (200, b'{"answer": "present", "count": -1}'),
    "too large": (200, b'{"answer": "absent", "detail": "' + b"x" * 300_000 + b'"}'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_is_can_not_tell_and_never_absent(
    world: World, agent: Answering, called: Kind, name: str
) -> None:
    """The control is the table above: with these rows an "absent" would settle it."""
    effect = unknown(called, world.run())
    agent.status, agent.body = BROKEN[name]
    assert lookup.check_effect(effect.pk) == "UNKNOWN"
    told = EvidencePayload.objects.get(
        stream=effect.run_id, seq=Evidence.objects.get(stream=effect.run_id, kind="effect.looked_up").seq
    )
    assert json.loads(told.body)["answer"] == "can't tell"
    assert fresh(effect).next_check_at is not None


def test_outbound_rules_hold_for_it(world: World, called: Kind, settings: Settings) -> None:
    settings.ALLSTOP_OUTBOUND_ORIGINS = []
    effect = unknown(called, world.run())
    assert lookup.check_effect(effect.pk) == "UNKNOWN"


#   what a kind says                                                       what is wrong
NO_KIND: list[tuple[dict[str, Any], str]] = [
    ({"lookup": {"callback": "https://agent.example/look"}}, "account"),
    ({"lookup": {"callback": "http://agent.example/look"}, "account": "bank"}, "lookup.callback"),
    ({"lookup": {"callback": "https://127.0.0.1/look"}, "account": "bank"}, "lookup.callback"),
    ({"lookup": {"callback": "https://a.example/", "poll": True}, "account": "bank"}, "lookup"),
    ({"lookup": {"poll": True, "url": "https://a.example/{key}"}}, "lookup"),
    ({"lookup": {"poll": False}}, "lookup"),
]


@pytest.mark.parametrize(("fields", "named"), NO_KIND)
def test_what_no_kind_may_say_of_its_own_look_ups(
    world: World, secret: str, fields: dict[str, Any], named: str
) -> None:
    new = NewKind("c", ["t"], "i", "c", "d", "w", op_class="external_write", **fields)
    with pytest.raises(BadKind) as error:
        kinds.register_kind(actor=world.agent, workspace_id=world.workspace.pk, name="k", new=new)
    assert error.value.field == named


# --- the agent comes for what is due ------------------------------------------------------------------------


def the_wire(world: World, *scopes: str, run: Run | None = None) -> Wire:
    _, token = people.issue_token(
        actor=access.SET_UP,
        workspace_id=world.workspace.pk,
        name="agent",
        scopes=list(scopes or ALL),
        run=run,
    )
    return Wire(token)


def test_an_agent_takes_what_is_due_and_says_what_it_saw(world: World, polls: Kind) -> None:
    effect, wire = unknown(polls, world.run()), the_wire(world)
    [one] = wire.get("/look-ups?kind=bank.charge").data["items"]
    assert (one["effect_id"], one["key"], one["attempt"], one["class"]) == (
        effect.pk,
        KEY,
        1,
        "external_write",
    )
    assert wire.get("/look-ups").data["items"] == []  # it is taken for 30 seconds
    said = wire.post(
        f"/effects/{effect.pk}/look-ups", {"turn": one["turn"], "answer": "present", "ref": "ch_1"}
    )
    assert (said.status, said.data["settlement"], said.data["ground"]) == (200, "CONFIRMED", "looked up")
    line = Evidence.objects.get(stream=effect.run_id, kind="effect.looked_up")
    assert line.actor.startswith("token:")  # who answered is kept
    again = wire.post(f"/effects/{effect.pk}/look-ups", {"turn": one["turn"], "answer": "absent"})
    assert again.problem == "no-turn"


def test_a_turn_that_is_over_or_was_never_given_changes_nothing(world: World, polls: Kind) -> None:
    effect, wire = unknown(polls, world.run()), the_wire(world)
    [one] = wire.get("/look-ups").data["items"]
    Effect.objects.update(turn_until=in_seconds(-1))
    turns = [one["turn"], "1.", "x", "1.2026-01-01T00:00:00", f"{'9' * 30}.2026-01-01T00:00:00+00:00", "٣.x"]
    for turn in turns:
        said = wire.post(f"/effects/{effect.pk}/look-ups", {"turn": turn, "answer": "present"})
        assert said.problem in ("no-turn", "invalid-request"), said.text
    assert fresh(effect).settlement == "UNKNOWN"
    assert "effect.looked_up" not in kinds_of(effect.run)


def test_of_two_who_come_each_gets_another(world: World, polls: Kind) -> None:
    run = world.run()
    both = {unknown(polls, run, key).pk for key in ("a", "b")}
    first, second = (polled.take(world.agent, world.workspace.pk, limit=1) for _ in range(2))
    assert {turn.row.pk for turn in [*first, *second]} == both
    assert polled.take(world.agent, world.workspace.pk) == []


def test_an_answer_counts_as_of_when_its_turn_began(world: World, polls: Kind) -> None:
    """Asked inside the settle window, and answered after it: an absence then proves nothing."""
    run = world.run()
    early, late = unknown(polls, run, "early"), unknown(polls, run, "late")
    turns = {turn.row.pk: turn for turn in polled.take(world.agent, world.workspace.pk)}
    Effect.objects.filter(pk=early.pk).update(dispatched_at=in_seconds(-70))
    Kind.objects.update(settle_window_s=100)
    for effect in (early, late):
        polled.answer(actor=world.agent, effect_id=effect.pk, turn=turns[effect.pk].id, said=Answer("absent"))
    assert [fresh(one).settlement for one in (early, late)] == ["UNKNOWN", "NOT_APPLIED"]


def test_only_a_token_that_may_write_and_of_that_workspace_or_run(world: World, polls: Kind) -> None:
    run, other = world.run(), world.run("other")
    mine, others = unknown(polls, run, "a"), unknown(polls, other, "b")
    bound = the_wire(world, "runs:write", run=run)
    [one] = bound.get("/look-ups").data["items"]
    assert one["effect_id"] == mine.pk
    [two] = the_wire(world).get("/look-ups").data["items"]
    assert two["effect_id"] == others.pk
    body = {"turn": two["turn"], "answer": "present"}
    assert bound.post(f"/effects/{others.pk}/look-ups", body).problem == "not-found"
    assert the_wire(world, "runs:read").get("/look-ups").problem == "not-allowed"
    assert the_wire(world, "runs:read").post(f"/effects/{others.pk}/look-ups", body).problem == "not-allowed"
    assert polled.take(world.foreign_agent, world.elsewhere.pk) == []
    with pytest.raises(access.NotFound):
        polled.answer(
            actor=world.foreign_agent, effect_id=others.pk, turn=two["turn"], said=Answer("present")
        )
    assert fresh(others).settlement == "UNKNOWN"


def test_a_signed_in_person_takes_nobody_s_turn(world: World, polls: Kind) -> None:
    effect, wire = unknown(polls, world.run()), Wire()
    assert world.alice.user is not None
    wire.client.force_login(world.alice.user)
    assert wire.get("/look-ups").status == 403
    assert fresh(effect).turn_until is None


def test_nobody_else_asks_while_its_schedule_goes_on_and_then_it_ends(world: World, polls: Kind) -> None:
    effect = unknown(polls, world.run())
    assert reconcile.due() == []
    Effect.objects.update(check_until=in_seconds(-1))
    assert reconcile.due() == [effect.pk]
    assert lookup.check_effect(effect.pk) == "UNKNOWN"
    assert kinds_of(effect.run)[-2:] == ["effect.looked_up", "reconcile.ended"]
    assert (fresh(effect).next_check_at, reconcile.due()) == (None, [])
    assert polled.take(world.agent, world.workspace.pk) == []


def test_nobody_is_asked_about_an_abandoned_run(world: World, polls: Kind) -> None:
    unknown(polls, a_run("ABANDONED", world.workspace))
    assert polled.take(world.agent, world.workspace.pk) == []


def test_what_another_kind_is_looked_up_by_no_agent_answers(world: World) -> None:
    kind = a_kind(world.workspace, lookup={"url": "https://bank.example/{key}"})
    until = in_seconds(20)
    effect = unknown(kind, world.run(), turn_until=until)
    token = a_token(world.workspace)
    with pytest.raises(polled.NoTurn):
        polled.answer(actor=token, effect_id=effect.pk, turn=f"1.{until.isoformat()}", said=Answer("present"))
    assert polled.take(token, world.workspace.pk) == []


def test_what_an_agent_saw_is_kept_without_secrets(world: World, polls: Kind) -> None:
    effect, wire = unknown(polls, world.run()), the_wire(world)
    [one] = wire.get("/look-ups").data["items"]
    seen = {"observed": {"password": "hunter22", "state": "booked"}, "detail": "Bearer abcdefghijkl"}
    wire.post(f"/effects/{effect.pk}/look-ups", {"turn": one["turn"], "answer": "present", **seen})
    kept = "".join(EvidencePayload.objects.filter(stream=effect.run_id).values_list("body", flat=True))
    assert "booked" in kept
    assert "hunter22" not in kept
    assert "abcdefghijkl" not in kept


# --- and of compensations -----------------------------------------------------------------------------------


def reported_done(world: World) -> Compensation:
    """A refund whose holder said so, and of which its agent alone can say whether it is there."""
    made = approved(with_refunds(world, lookup={"poll": True}))
    report(dispatched(made), "applied")
    return fall_due(fresh(made))


#   what the agent saw                                       then it stands as
OF_REFUNDS: list[tuple[dict[str, Any], str]] = [
    ({"answer": "present", "ref": "re_1"}, "VERIFIED"),
    ({"answer": "partial", "items": ["half"]}, "FAILED"),
    ({"answer": "absent"}, "FAILED"),
    ({"answer": "can't tell"}, "DISPATCHED"),
]


@pytest.mark.parametrize(("seen", "then"), OF_REFUNDS)
def test_an_agent_is_asked_about_a_compensation_under_its_own_key(
    world: World, seen: dict[str, Any], then: str
) -> None:
    made, wire = reported_done(world), the_wire(world)
    assert (made.state, repair.due()) == ("DISPATCHED", []), "verified by nobody else"
    [one] = wire.get("/look-ups?kind=bank.refund").data["items"]
    assert (one["matter"], one["effect_id"], one["key"]) == ("compensation", made.pk, made.key)
    assert wire.get("/look-ups").data["items"] == []
    body = {"turn": one["turn"], **seen}
    assert wire.post(f"/effects/{made.effect_id}/look-ups", body).problem == "no-turn"
    told = wire.post(f"/compensations/{made.pk}/look-ups", body)
    assert (told.status, told.data["state"], fresh(made).state) == (200, then, then)
    line = Evidence.objects.get(stream=made.run_id, kind="compensation.looked_up")
    kept = json.loads(EvidencePayload.objects.get(stream=made.run_id, seq=line.seq).body)
    assert kept["answered_by"] == line.actor
    assert line.actor.startswith("token:")
    assert wire.post(f"/compensations/{made.pk}/look-ups", body).problem == "no-turn"


def test_effects_and_compensations_have_their_turns_beside_each_other(world: World) -> None:
    made = reported_done(world)
    polls = a_kind(world.workspace, "bank.book", lookup={"poll": True}, updated_at=in_seconds(-9_000))
    older = unknown(polls, world.run("other"), next_check_at=in_seconds(-5))
    for pk in (older.pk, made.pk):
        [turn] = polled.take(world.agent, world.workspace.pk, limit=1)
        assert turn.row.pk == pk
    assert polled.take(world.agent, world.workspace.pk) == []


def test_a_compensation_that_nobody_comes_for_is_unknown_when_its_schedule_is_over(world: World) -> None:
    made = reported_done(world)
    Compensation.objects.update(check_until=in_seconds(-1))
    assert repair.due() == [made.pk]
    assert repair.check(made.pk) == "UNKNOWN"
    stands = fresh(made)
    assert (stands.why_unknown, stands.next_check_at) == ("reported done, not verified", None)
    assert polled.take(world.agent, world.workspace.pk) == []
    told = asking.check_now(actor=world.alice, subject_id=made.pk)
    assert isinstance(told, NotResolved)
    assert told.reason == "polled"


def test_of_a_compensation_too_only_who_may_write_there_answers(world: World) -> None:
    made, other = reported_done(world), world.run("other")
    assert the_wire(world, "runs:write", run=other).get("/look-ups").data["items"] == []
    [one] = the_wire(world).get("/look-ups").data["items"]
    body = {"turn": one["turn"], "answer": "present"}
    path = f"/compensations/{made.pk}/look-ups"
    assert the_wire(world, "runs:write", run=other).post(path, body).problem == "not-found"
    assert the_wire(world, "runs:read").post(path, body).problem == "not-allowed"
    assert fresh(made).state == "DISPATCHED"


# --- duplicates ---------------------------------------------------------------------------------------------


def test_duplicates_are_those_that_were_seen_of_those_that_could_be_counted(
    world: World, polls: Kind
) -> None:
    run = world.run()
    # what each look-up counted, in turn
    said: dict[str, list[int | None]] = {"a": [1], "b": [2, 1], "c": [None], "d": [3], "e": []}
    for key, counts in said.items():
        effect = unknown(polls, run, key)
        for count in counts:
            reconcile.apply_answer(effect.pk, Answer("present", count=count))
    assert duplicates.known(run_id=run.pk) == Known(seen_twice=2, counted=3, uncounted=1)
    assert duplicates.known(kind_id=polls.pk) == duplicates.known(workspace_id=world.workspace.pk)
    assert duplicates.known(workspace_id=world.elsewhere.pk) == Known()
    [b] = Effect.objects.filter(key="b")
    assert (b.counted, b.seen_twice) == (2, 2)  # the most that was seen
    assert duplicates.known(run_id=run.pk).sentence == (
        "2 of 3 keys counted at the provider had 2 objects or more; 1 more could not be counted"
    )
