"""What people say of an unknown, of each matter: what it becomes, what is no evidence, who may not.

The tables are written by hand from the contract.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from effects import deliveries, resolve, retries
from effects.close import outcome_of
from effects.models import Attachment, Effect, Resolution
from effects.resolve import NotResolved, Resolved
from runs import access
from runs.access import NotAllowed, NotFound
from runs.evidence import Line, record
from runs.guard import Refusal
from runs.models import Evidence, EvidencePayload, Membership, Permit, Role, Run, Step
from tests.effects.unknowns import (
    MATTERS,
    TEXT,
    a_stop,
    again,
    an_unknown,
    attached,
    looked_up,
    now,
    recorded,
    said,
    say,
    settled,
)
from tests.texts import SAYS_NOTHING
from tests.worlds import (
    World,
    a_kind,
    a_run,
    a_step,
    a_token,
    an_effect,
    fresh,
    in_seconds,
    kinds_of,
)

pytestmark = pytest.mark.django_db

# What each verdict makes of each matter, and of the step of its call; None: it can't be said of it.
BECOMES: dict[tuple[str, str], tuple[str, str] | None] = {
    ("effect", "happened"): ("CONFIRMED", "SUCCEEDED"),
    ("effect", "did not happen"): ("NOT_APPLIED", "FAILED"),
    ("effect", "partly happened"): ("PARTIAL", "PARTIAL"),
    ("effect", "cannot be determined"): ("ACCEPTED_UNKNOWN", "FAILED"),
    ("delivery", "happened"): ("HANDED_OVER", "SUCCEEDED"),
    ("delivery", "did not happen"): ("NOT_HANDED_OVER", "FAILED"),
    ("delivery", "partly happened"): None,
    ("delivery", "cannot be determined"): ("ACCEPTED_UNKNOWN", "UNKNOWN"),
    ("compensation", "happened"): ("VERIFIED", "SUCCEEDED"),
    ("compensation", "did not happen"): ("FAILED", "FAILED"),
    ("compensation", "partly happened"): ("FAILED", "PARTIAL"),
    ("compensation", "cannot be determined"): ("ACCEPTED_UNKNOWN", "UNKNOWN"),
}


def step_of(row: Any) -> Step:
    step: Step = fresh(fresh(row.permit).step)
    return step


def payload(run: Run, kind: str) -> dict[str, Any]:
    line = Evidence.objects.filter(stream=run.pk, kind=kind).order_by("-seq")[0]
    told: dict[str, Any] = json.loads(EvidencePayload.objects.get(stream=run.pk, seq=line.seq).body)
    return told


# --- What a verdict makes of it ---------------------------------------------------------------------------


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(("matter", "verdict"), BECOMES)
def test_a_verdict_settles_on_the_ground_that_a_person_decided(
    world: World, matter: str, verdict: str
) -> None:
    row, expected = an_unknown(world, matter), BECOMES[matter, verdict]
    answer = say(row, world.alice, verdict)
    if expected is None:
        assert (said(answer), now(row)) == ("verdict", "UNKNOWN")
        return
    assert isinstance(answer, Resolved)
    if verdict == "cannot be determined":
        assert (answer.waits, now(row)) == (True, "UNKNOWN")
        answer = resolve.agree(actor=world.bob, resolution_id=answer.resolution.pk)
        assert isinstance(answer, Resolved)
    row = again(row)
    assert (answer.state, now(row), step_of(row).status) == (expected[0], *expected)
    assert (row.ground, answer.resolution.settled_as) == ("decided", expected[0])
    kinds = kinds_of(row.run)
    assert kinds[0] == "resolution.recorded"
    assert f"{matter}.{expected[0].lower()}" in kinds
    assert answer.resolution.in_force_at is not None


def test_the_evidence_of_a_verdict_is_kept_with_it(world: World) -> None:
    row = an_unknown(world)
    paper, line = attached(row, world.bob), looked_up(row, "partial")
    made = recorded(row, world.alice, "partly happened", items=["a"], attachments=[paper.pk], lines=[line])
    told = payload(row.run, "resolution.recorded")
    assert (told["evidence"], told["items"], told["verdict"]) == (TEXT, ["a"], "partly happened")
    assert (told["attachments"], told["lines"], told["number"]) == ([paper.pk], [line], 1)
    assert (made.items, again(row).items, made.person) == (["a"], ["a"], world.alice.user)


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("status", ["PAUSED", "CANCELLED", "COMPLETED", "FAILED", "ABANDONED", "ACTIVE"])
def test_a_verdict_leaves_the_status_of_its_run_alone(world: World, status: str) -> None:
    row = an_unknown(world, run=a_run(status, world.workspace))
    assert said(say(row, world.alice)) == "CONFIRMED"
    assert fresh(row.run).status == status


def test_the_last_verdict_lets_a_run_that_rested_unknown_be_cancelled(world: World) -> None:
    one = an_unknown(world)
    other, stop = an_unknown(world, "delivery", run=one.run), a_stop(one.run)
    say(one, world.alice)
    assert (fresh(one.run).status, fresh(stop).closed_at) == ("UNKNOWN", None)
    say(other, world.alice, "did not happen")
    assert (fresh(one.run).status, fresh(stop).closed_because) == ("CANCELLED", "its run is final")


# --- Two people accept it as unknown ------------------------------------------------------------------------


@pytest.mark.invariant("I13")
def test_a_stop_closes_when_each_unknown_left_is_accepted_and_the_status_stays(world: World) -> None:
    one = an_unknown(world)
    other, stop = an_unknown(world, "delivery", run=one.run), a_stop(one.run)
    for row in (one, other):
        assert fresh(stop).closed_at is None
        made = recorded(row, world.alice, "cannot be determined")
        assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "ACCEPTED_UNKNOWN"
    run = fresh(one.run)
    assert (run.status, fresh(stop).closed_because) == (
        "UNKNOWN",
        "what is unknown was accepted",
    )
    assert outcome_of(run) == "ended with an accepted unknown"


@pytest.mark.parametrize(("by", "why"), [("alice", "same_person"), ("carol", "own_yes")])
def test_nobody_agrees_with_themselves_nor_about_their_own_run(world: World, by: str, why: str) -> None:
    row = an_unknown(world, owner=world.carol.user)
    first = world.bob if by == "carol" else world.alice
    made = recorded(row, first, "cannot be determined")
    if by == "alice":  # she may approve by now, and still recorded it herself
        Membership.objects.filter(user=world.alice.user).update(role=Role.REVIEWER)
    assert said(resolve.agree(actor=getattr(world, by), resolution_id=made.pk)) == why
    assert now(row) == "UNKNOWN"


def test_who_may_not_approve_may_not_agree(world: World) -> None:
    made = recorded(an_unknown(world), world.bob, "cannot be determined")
    for actor, error in ((world.alice, NotAllowed), (world.dana, NotAllowed), (world.mallory, NotFound)):
        with pytest.raises(error):
            resolve.agree(actor=actor, resolution_id=made.pk)
    assert Resolution.objects.get(pk=made.pk).in_force_at is None


def test_evidence_that_came_first_leaves_nothing_to_agree_to(world: World) -> None:
    row = an_unknown(world)
    made = recorded(row, world.alice, "cannot be determined")
    later = recorded(row, world.carol, "happened")
    assert Resolution.objects.get(pk=made.pk).withdrawn_why == "another verdict was recorded"
    ended = payload(row.run, "resolution.withdrawn")
    assert (ended["resolution"], ended["by"]) == (made.pk, world.alice.id)
    assert kinds_of(row.run).index("resolution.withdrawn") < kinds_of(row.run).index("effect.confirmed")
    assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "withdrawn"
    assert (now(row), later.number) == ("CONFIRMED", 2)


def test_an_agreement_to_what_was_unknown_before_does_not_count(world: World) -> None:
    row = an_unknown(world)
    made = recorded(row, world.alice, "cannot be determined")
    Effect.objects.filter(pk=row.pk).update(unknown_since=in_seconds(1))  # known meanwhile, and again not
    assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "changed"


def test_what_waits_is_withdrawn_by_whoever_said_it_and_once(world: World) -> None:
    row = an_unknown(world)
    made = recorded(row, world.alice, "cannot be determined")
    assert said(resolve.withdraw(actor=world.bob, resolution_id=made.pk)) == "not_yours"
    assert said(resolve.withdraw(actor=world.alice, resolution_id=made.pk, why="I found it")) == "UNKNOWN"
    assert said(resolve.withdraw(actor=world.alice, resolution_id=made.pk)) == "withdrawn"
    assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "withdrawn"
    assert kinds_of(row.run)[-1] == "resolution.withdrawn"


# --- What is no evidence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", SAYS_NOTHING)
def test_a_text_that_says_nothing_is_refused(world: World, text: str) -> None:
    row = an_unknown(world)
    assert (said(say(row, world.alice, evidence=text)), now(row)) == ("evidence", "UNKNOWN")
    assert not Resolution.objects.exists()
    assert said(say(row, world.alice, evidence=text + "r")) == "CONFIRMED"


PARTLESS: list[Any] = [
    *(None, [], "", " ", ".", "\u3164", [""], ["\u200b"], 7 * [""], [[]], [{}]),
    *({}, {"": ""}, {"": "a"}, {"": 3}, {"a": ""}, {".": 3}, {"a": None}, {"a": []}, {"a": {"": "b"}}),
    *(3, True),
]
PARTS: list[Any] = ["a", ["a", ""], {"a": "b"}, {"a": 3}, {"a": False}, {"": "", "a": ["b"]}, {"a": {"b": 1}}]


@pytest.mark.parametrize("items", PARTS)
def test_a_part_that_is_named_is_enough(world: World, items: Any) -> None:
    row = an_unknown(world)
    assert said(say(row, world.alice, "partly happened", items=items)) == "PARTIAL"


@pytest.mark.parametrize("items", PARTLESS)
def test_a_part_that_is_not_named_is_refused(world: World, items: Any) -> None:
    row = an_unknown(world)
    assert said(say(row, world.alice, "partly happened", items=items)) == "items"


def test_evidence_of_something_else_is_refused(world: World) -> None:
    row, other = an_unknown(world), an_unknown(world)
    beside = an_unknown(world, run=row.run)
    theirs = attached(other, world.bob)
    for more in (
        {"attachments": [theirs.pk]},
        {"attachments": ["att_none"]},
        {"lines": [looked_up(beside, "present")]},
        {"lines": [looked_up(row, "present") + 100]},
    ):
        assert said(say(row, world.alice, **more)) == "foreign", more
    mine = attached(row, world.bob)
    assert (
        said(say(row, world.alice, attachments=[mine.pk], lines=[looked_up(row, "present")])) == "CONFIRMED"
    )


def test_what_people_said_before_is_no_evidence_of_itself(world: World) -> None:
    row = an_unknown(world)
    recorded(row, world.alice, "cannot be determined")
    line = Evidence.objects.get(stream=row.run_id, kind="resolution.recorded").seq
    assert said(say(row, world.alice, lines=[line])) == "foreign"


# On one's own run: what is cited, and whether that is enough to say that it happened.
OWN = {
    "nothing": "own_run",
    "an attachment of one's own": "own_run",
    "a line that found nothing": "own_run",
    "a line that can't tell": "own_run",
    "the report of the worker": "own_run",
    "a look-up that one's own agent answered": "own_run",
    "an attachment of somebody else": "CONFIRMED",
    "a line that found it": "CONFIRMED",
    "a webhook": "CONFIRMED",
}


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("cited", OWN)
def test_on_ones_own_run_a_word_alone_is_no_evidence(world: World, cited: str, by_token: bool) -> None:
    row = an_unknown(world, owner=None if by_token else world.alice.user)
    agent = a_token(world.workspace)
    assert agent.token is not None
    type(agent.token).objects.filter(pk=agent.token.pk).update(created_by=world.alice.user)
    if by_token:
        record(fresh(row.run), Line("run.admitted", agent.id))
    cite: dict[str, Callable[[], dict[str, Any]]] = {
        "nothing": dict,
        "an attachment of one's own": lambda: {"attachments": [attached(row, world.alice).pk]},
        "a line that found nothing": lambda: {"lines": [looked_up(row, "absent")]},
        "a line that can't tell": lambda: {"lines": [looked_up(row, "can't tell")]},
        "the report of the worker": lambda: {"lines": [looked_up(row, "present", "reported")]},
        "a look-up that one's own agent answered": lambda: {
            "lines": [looked_up(row, "present", answered_by=agent.id)]
        },
        "an attachment of somebody else": lambda: {"attachments": [attached(row, world.bob).pk]},
        "a line that found it": lambda: {"lines": [looked_up(row, "present")]},
        "a webhook": lambda: {"lines": [looked_up(row, "present", "webhook")]},
    }
    assert said(say(row, world.alice, **cite[cited]())) == OWN[cited]
    if OWN[cited] == "own_run":
        assert said(say(row, world.carol)) == "CONFIRMED"  # who is nobody's owner needs no more than a text


# --- While it may still happen ------------------------------------------------------------------------------

# How its call ended · whether its kind fences keys · what is cited → "it did not happen". By the contract a
# look-up that found nothing proves it of a lost holder only where the key is fenced; that a kind could fence
# it, and nobody asked, is no look-up.
STILL = {
    ("REPORTED", False, ""): "NOT_APPLIED",
    ("REPORTED", False, "line"): "NOT_APPLIED",
    ("OPEN", False, "line"): "may_be_sent",
    ("OPEN", True, "line"): "may_be_sent",
    ("LOST", False, ""): "lost_holder",
    ("LOST", False, "quote"): "lost_holder",
    ("LOST", False, "reference"): "NOT_APPLIED",
    ("LOST", False, "line"): "lost_holder",
    ("LOST", True, ""): "lost_holder",
    ("LOST", True, "quote"): "lost_holder",
    ("LOST", True, "line"): "NOT_APPLIED",
}


@pytest.mark.invariant("I10")
@pytest.mark.parametrize(("permit", "fences", "cited"), STILL)
def test_that_it_did_not_happen_cant_be_said_while_it_may_still_be_sent(
    world: World, permit: str, fences: bool, cited: str
) -> None:
    kind = a_kind(world.workspace, key_fencing=fences, settle_window_s=60, updated_at=in_seconds(-700))
    row = an_unknown(world, permit=permit, kind=kind)
    more: dict[str, Any] = {}
    if cited == "line":
        more["lines"] = [looked_up(row, "absent")]
    elif cited:
        more["attachments"] = [attached(row, world.bob, cited, "not in the export").pk]
    assert said(say(row, world.alice, "did not happen", **more)) == STILL[permit, fences, cited]


@pytest.mark.parametrize("since", [5, 120])
def test_inside_the_settle_window_it_may_still_appear(world: World, since: int) -> None:
    row = an_unknown(world, kind=a_kind(world.workspace, settle_window_s=60))
    Permit.objects.filter(pk=row.permit_id).update(ended_at=in_seconds(-since))
    expected = "in_window" if since < 60 else "NOT_APPLIED"
    assert said(say(row, world.alice, "did not happen")) == expected
    if since < 60:  # that it happened can be seen at once
        assert said(say(row, world.alice, "happened")) == "CONFIRMED"


@pytest.mark.invariant("I9")
def test_that_it_did_not_happen_starts_no_retry_by_itself(world: World) -> None:
    kind = a_kind(world.workspace, provider="http", retry_after_s=[1])
    row = an_unknown(world, run=a_run("ACTIVE", world.workspace), kind=kind)
    assert said(say(row, world.alice, "did not happen")) == "NOT_APPLIED"
    step = step_of(row)
    assert step.status == "FAILED"
    asked: dict[str, Any] = {"step": step, "seen": row.run.cancel_version, "delay_s": 0}
    answer = retries.schedule(actor=world.agent, worker="w-1", **asked)
    assert isinstance(answer, Refusal)
    assert answer.reason == "unverified"
    assert isinstance(retries.decide(actor=world.alice, reason="the export shows none", **asked), Step)


# --- Who may, and what they saw -----------------------------------------------------------------------------


@pytest.mark.parametrize("matter", MATTERS)
def test_who_may_not_resolve(world: World, matter: str) -> None:
    row = an_unknown(world, matter)
    for actor, error in (
        (world.dana, NotAllowed),
        (world.mallory, NotFound),
        (world.agent, NotAllowed),
        (world.foreign_agent, NotFound),
    ):
        for verb in (
            lambda actor=actor: say(row, actor),
            lambda actor=actor: resolve.take(actor=actor, subject_id=row.pk),
            lambda actor=actor: resolve.attach(actor=actor, subject_id=row.pk, form="quote", text="x"),
        ):
            with pytest.raises(error):
                verb()
    for nothing in ("eff_none", "res_1", "", "run_1"):
        with pytest.raises(NotFound):
            resolve.resolve(actor=world.alice, subject_id=nothing, verdict="happened", evidence=TEXT, seen=0)
    assert now(row) == "UNKNOWN"
    assert not Resolution.objects.exists()


def test_a_person_who_comes_in_by_the_api_decides_nothing(world: World) -> None:
    row = an_unknown(world)
    assert world.alice.user is not None
    by_api = access.Actor(world.alice.id, user=world.alice.user, via="api")
    assert said(say(row, by_api)) == "token"


@pytest.mark.parametrize("verdict", ["maybe", "", "HAPPENED"])
def test_nothing_else_can_be_said(world: World, verdict: str) -> None:
    assert said(say(an_unknown(world), world.alice, verdict)) == "verdict"


def test_a_draft_that_did_not_see_the_newest_verdict_changes_nothing(world: World) -> None:
    row = an_unknown(world)
    first = recorded(row, world.bob, "cannot be determined")
    answer = say(row, world.alice, "happened", seen=0)
    assert isinstance(answer, NotResolved)
    assert (answer.reason, answer.by, now(row)) == ("changed", first, "UNKNOWN")
    assert said(say(row, world.alice, "happened", seen=1)) == "CONFIRMED"


def test_what_became_known_meanwhile_is_not_overwritten_by_a_draft(world: World) -> None:
    row = settled(world, "NOT_APPLIED", "webhook")
    assert (said(say(row, world.alice, "happened")), now(row)) == ("settled", "NOT_APPLIED")


@pytest.mark.parametrize("settlement", ["DECLARED", "DISPATCHED"])
def test_what_is_not_unknown_is_not_resolved(world: World, settlement: str) -> None:
    row = an_effect(a_step(a_run("ACTIVE", world.workspace), "DISPATCHED"), settlement)
    assert said(say(row, world.alice)) == "not_unknown"


# --- Corrections --------------------------------------------------------------------------------------------


def test_a_second_person_corrects_what_another_decided_and_both_stay(world: World) -> None:
    row = an_unknown(world)
    first = recorded(row, world.alice, "happened")
    assert said(say(row, world.alice, "did not happen", correct=True)) == "same_person"
    assert said(say(row, world.bob, "happened", correct=True)) == "same"
    second = recorded(row, world.bob, "did not happen", correct=True)
    row = again(row)
    assert (now(row), second.supersedes, second.number) == ("NOT_APPLIED", first, 2)
    assert isinstance(row, Effect)
    assert row.contradicted
    kinds = kinds_of(row.run)
    assert kinds[-3:] == ["resolution.recorded", "effect.unknown", "effect.not_applied"]
    assert kinds.count("resolution.recorded") == 2


@pytest.mark.parametrize(("state", "ground"), [("CONFIRMED", "looked up"), ("CONFIRMED", "reported")])
def test_what_a_provider_said_is_put_in_doubt_by_two_people_and_settled_by_none(
    world: World, state: str, ground: str
) -> None:
    row = settled(world, state, ground)
    made = recorded(row, world.alice, "did not happen", correct=True)
    assert (now(row), made.in_force_at) == (state, None)
    assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "UNKNOWN"
    row = again(row)
    assert isinstance(row, Effect)
    assert (row.settlement, row.contradicted, row.ground) == ("UNKNOWN", True, ground)
    assert Resolution.objects.get(pk=made.pk).settled_as == "UNKNOWN"


def test_a_correction_that_waits_falls_when_it_is_settled_anew(world: World) -> None:
    row = settled(world, "CONFIRMED", "looked up")
    made = recorded(row, world.alice, "did not happen", correct=True)
    Effect.objects.filter(pk=row.pk).update(settled_at=in_seconds(1))
    assert said(resolve.agree(actor=world.bob, resolution_id=made.pk)) == "settled"


def test_what_was_accepted_as_unknown_is_settled_by_evidence(world: World) -> None:
    for matter, becomes in (("effect", "CONFIRMED"), ("delivery", "HANDED_OVER")):
        row = an_unknown(world, matter)
        made = recorded(row, world.alice, "cannot be determined")
        resolve.agree(actor=world.bob, resolution_id=made.pk)
        assert said(say(row, world.alice, "happened", correct=True)) == "same_person"
        assert said(say(row, world.carol, "happened", correct=True)) == becomes


def test_what_a_compensation_came_to_is_not_corrected(world: World) -> None:
    row = an_unknown(world, "compensation")
    recorded(row, world.alice, "happened")
    assert said(say(row, world.bob, "did not happen", correct=True)) == "no_correction"


def test_a_delivery_that_a_second_person_corrects_may_be_tried_again(world: World) -> None:
    row = an_unknown(world, "delivery", run=a_run("ACTIVE", world.workspace))
    recorded(row, world.alice, "happened")
    assert said(say(row, world.bob, "did not happen", correct=True)) == "NOT_HANDED_OVER"
    assert kinds_of(row.run)[-2:] == ["delivery.unknown", "delivery.not_handed_over"]
    assert not isinstance(deliveries.retry(actor=world.agent, delivery_id=row.pk), Refusal)


# --- Several ------------------------------------------------------------------------------------------------


def several(world: World, rows: list[Any], content: bytes = b"id,state\n", by: Any = None) -> dict[str, Any]:
    return resolve.resolve_many(
        actor=by or world.alice,
        subject_ids=[row.pk for row in rows],
        verdict="happened",
        evidence="All of them are in the export",
        file_name="export.csv",
        content=content,
    )


def test_several_are_resolved_on_one_export_and_a_second_person(world: World) -> None:
    rows = [an_unknown(world) for _ in range(3)]
    foreign = an_unknown(World())
    answers = several(world, [*rows, foreign])
    assert said(answers.pop(foreign.pk)) == "not_found"
    assert [(said(one), one.waits) for one in answers.values()] == [("UNKNOWN", True)] * 3
    [export] = Attachment.objects.all()
    made = [one.resolution for one in answers.values()]
    assert {tuple(one.attachments) for one in made} == {(export.pk,)}
    ids = [one.pk for one in made]
    assert {said(one) for one in resolve.agree_many(actor=world.bob, resolution_ids=ids).values()} == {
        "CONFIRMED"
    }
    assert {now(row) for row in rows} == {"CONFIRMED"}


def test_several_without_an_export_are_not_resolved(world: World) -> None:
    rows = [an_unknown(world) for _ in range(2)]
    assert {said(one) for one in several(world, rows, b"").values()} == {"export"}
    assert not Resolution.objects.exists()


@pytest.mark.parametrize("by", ["alice", "carol"])
def test_several_at_once_end_nobodys_verdict_that_waits(world: World, by: str) -> None:
    """They were not shown it; not their own either."""
    row, free = an_unknown(world), an_unknown(world)
    waiting = recorded(row, world.alice, "cannot be determined")
    found = several(world, [row, free], by=getattr(world, by))
    refused = found[row.pk]
    assert isinstance(refused, NotResolved)
    assert (refused.reason, refused.by) == ("waits", waiting)
    assert said(found[free.pk]) == "UNKNOWN"
    assert isinstance(found[free.pk], Resolved)
    assert Resolution.objects.get(pk=waiting.pk).withdrawn_at is None
    assert said(resolve.agree(actor=world.bob, resolution_id=waiting.pk)) == "ACCEPTED_UNKNOWN"
