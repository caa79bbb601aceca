"""A stop that only observes: nothing is shut, and what it would have refused is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effects import deliveries, queue
from effects import retries as again
from effects.deliveries import Message
from runs import gate, policies, refusals, releases, scopes
from runs.admission import Admitted
from runs.guard import Opened
from runs.models import Evidence, Step, StopRequest, Workspace, WouldRefuse
from runs.policies import Match
from runs.scopes import Target
from runs.stops import StopAnswer, Wish
from runs.wishes import read_wish
from tests.worlds import World, fresh, in_seconds, kinds_of

pytestmark = pytest.mark.django_db


def press(world: World, target: Target | None = None, **wish: Any) -> StopAnswer:
    target = target or Target("workspace", world.workspace.pk)
    given = {"mode": "pause", **wish}
    return scopes.request_scope_stop(actor=world.alice, wish=Wish(**given), target=target)


def watch(world: World, target: Target | None = None, **wish: Any) -> StopRequest:
    return press(world, target, observe=True, **wish).stop


def a_policy(world: World, name: str, match: Match) -> str:
    named: dict[str, Any] = {"workspace_id": world.workspace.pk, "name": name}
    return policies.create_policy(actor=world.alice, match=match, **named).pk


def counted(stop: StopRequest) -> dict[tuple[str, str], int]:
    rows = WouldRefuse.objects.filter(stop=stop)
    return {(row.run.key if row.run else "", row.boundary): row.count for row in rows}


def test_nothing_is_refused_and_each_boundary_is_counted(world: World) -> None:
    run = world.run()
    stop = watch(world)
    workspace = Workspace.objects.get(pk=world.workspace.pk)
    assert (workspace.gate, workspace.epoch, stop.gate_at, stop.fenced_at) == ("OPEN", 1, None, None)
    before = len(kinds_of(run))
    world.opened(run)
    step = world.claimed(run, "next")
    assert isinstance(gate.dispatch(world.ask_of(step)), Opened)
    asked = {"op_class": "model_turn", "boundary": "model"}
    assert isinstance(gate.dispatch(world.ask(run, step_key="think", **asked)), Opened)
    assert isinstance(world.admit("new"), Admitted)
    message = Message("tell:1", "outside", "the chat")
    assert isinstance(deliveries.queue(world.ask(run), message), deliveries.Queued)
    key = run.key
    assert counted(stop) == {
        (key, "dispatch"): 2,
        (key, "claim"): 1,
        (key, "model"): 1,
        (key, "deliver"): 1,
        ("", "admit"): 1,
    }
    assert refusals.would_have_refused(stop).count == 6
    assert refusals.refused_since(stop).count == 0
    assert not [kind for kind in kinds_of(run)[before:] if kind.endswith(".refused")]


def test_a_retry_is_counted_when_it_is_scheduled_and_when_it_is_due_for_what_its_step_sent(
    world: World,
) -> None:
    run = world.run()
    opened = world.opened(run)
    world.report(opened, "not_applied")
    step = world.finish(fresh(opened.step), "failed")
    everything = watch(world)
    matches = {"charges": Match(kinds=("bank.charge",)), "mail": Match(kinds=("mail.send",))}
    charges, mail = (watch(world, Target("policy", a_policy(world, name, matches[name]))) for name in matches)
    assert isinstance(again.decide(actor=world.alice, step=step, seen=1, reason="once more"), Step)
    assert isinstance(queue.fall_due(step.pk), Step)
    assert counted(everything) == counted(charges) == {(run.key, "retry"): 2}
    assert counted(mail) == {}


def test_what_is_refused_anyway_or_not_under_it_is_not_counted(world: World) -> None:
    run, other = world.run(session="nightly"), world.run("other")
    session = run.session
    assert session is not None
    mail = a_policy(world, "no mail", Match(kinds=("mail.send",)))
    nightly, no_mail = watch(world, Target("session", session.pk)), watch(world, Target("policy", mail))
    world.opened(other)
    world.stop(run, mode="pause")
    world.refused(fresh(run))
    theirs = World()
    theirs.opened(theirs.run(session="nightly"))
    assert (counted(nightly), counted(no_mail)) == ({}, {})
    world.admit("another", session="nightly")
    assert (counted(nightly), counted(no_mail)) == ({("", "admit"): 1}, {})


def test_enforcing_is_a_normal_press_on_the_same_scope_and_closes_the_one_that_observed(world: World) -> None:
    run = world.run()
    watching = watch(world, key="k-1")
    assert watch(world, key="k-2").pk == watching.pk, "two who watch are one"
    stop = press(world, key="k-1").stop
    assert (stop.pk != watching.pk, stop.observes) == (True, None), "the same key, yet another wish"
    assert fresh(watching).closed_because == f"enforced by #{stop.number}"
    assert fresh(run).status == "PAUSING"
    world.refused(fresh(run))
    assert counted(watching) == {}
    joined = press(world, observe=True, key="k-3")
    assert (joined.answer, joined.stop) == ("joined", stop)
    assert joined.press.ignored == ["observe: a stop holds this already; it goes on"]
    lines = Evidence.objects.filter(stream=world.workspace.pk, kind__startswith="gate.")
    assert list(lines.order_by("seq").values_list("kind", flat=True)) == ["gate.observed", "gate.shut"]


def test_an_observation_is_ended_by_one_person_and_counts_no_more(world: World) -> None:
    run = world.run()
    stop = watch(world)
    world.opened(run)
    releases.release(actor=world.bob, stop_id=stop.pk, reason="seen enough")
    world.opened(run, "charge:8")
    assert counted(stop) == {(run.key, "dispatch"): 1}
    assert (fresh(stop).closed_because, fresh(run).status) == ("released", "ACTIVE")
    assert Workspace.objects.get(pk=world.workspace.pk).gate == "OPEN"


# --- Reading the wish -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "means"),
    [
        *((True, True), (False, False), (None, False), ("true", True), ("on", True), ("", False)),
        *(("maybe", None), (2, None), ([True], None), ({}, None), ("TRUE", None)),
    ],
)
def test_whoever_can_not_be_read_wants_to_stop_and_not_to_watch(told: Any, means: bool | None) -> None:
    wish = read_wish(json.dumps({"mode": "cancel", "observe": told}).encode(), {})
    assert wish.observe is bool(means)
    assert wish.ignored == ([] if means is not None else ["observe: true or false; taken as false"])


def test_moments_that_can_not_be_read_are_named_and_refuse_nothing() -> None:
    told = {"mode": "pause", "review_at": "tomorrow", "ends_at": "2026-12-01T02:00:00+02:00"}
    wish = read_wish(json.dumps(told).encode(), {})
    assert wish.ignored == ["review_at: not a moment with its zone"]
    assert (wish.review_at, wish.ends_at and wish.ends_at.isoformat()) == (None, "2026-12-01T00:00:00+00:00")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert read_wish(b"mode=pause&review_at=&ends_at=&observe=", form).ignored == []


def test_a_stop_of_a_run_neither_observes_nor_ends_by_itself_and_says_so(world: World) -> None:
    run = world.run()
    answer = world.stop(run, observe=True, ends_at=in_seconds(60))
    assert answer.press.ignored == [
        "ends_at: only a stop of a scope has that; recorded as a stop without it",
        "observe: only a stop of a scope has that; recorded as a stop without it",
    ]
    assert fresh(run).status == "CANCELLING"
