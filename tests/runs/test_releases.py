"""Releasing a standing stop: with a reason, once it is fenced, by two people where the rules say so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from runs import access, fanout, releases, rules, scopes
from runs.access import Actor, NotAllowed, NotFound
from runs.models import Evidence, Membership, Release, Role, StopRequest, Workspace
from runs.releases import Asked, NoReason, NotFenced, NotStanding, Released, SamePerson, TwoPeople
from runs.scopes import Target
from runs.stops import Wish
from runs.store import database_time
from tests.worlds import World, a_person, a_token, fresh, in_seconds

pytestmark = pytest.mark.django_db


def press(world: World, **wish: Any) -> StopRequest:
    given = {"mode": "pause", **wish}
    target = Target("workspace", world.workspace.pk)
    return scopes.request_scope_stop(actor=world.alice, wish=Wish(**given), target=target).stop


def release(stop: StopRequest, by: Actor, reason: str = "prices are right again") -> Released | Asked:
    return releases.release(actor=by, stop_id=stop.pk, reason=reason)


def gate_of(world: World) -> str:
    return Workspace.objects.get(pk=world.workspace.pk).gate


def kinds_of(world: World, stop: StopRequest) -> list[str]:
    lines = Evidence.objects.filter(stream=world.workspace.pk, stop_id=stop.pk).order_by("seq")
    return list(lines.values_list("kind", flat=True))


def sweep() -> None:
    """What the sweep of effects/tasks.py does about end dates."""
    for stop_id in releases.over():
        releases.end(stop_id)


def an_admin(world: World) -> Actor:
    return access.person(a_person("erin", world.workspace, Role.ADMIN))


def by_two(world: World) -> None:
    asked: dict[str, Any] = {"workspace_id": world.workspace.pk, "version": 0}
    rules.change_rules(actor=an_admin(world), rules=rules.Rules(release_by_two=True), **asked)


# --- One person -------------------------------------------------------------------------------------------


def test_a_release_has_a_reason_and_is_about_a_stop_that_stands(world: World) -> None:
    run = world.run()
    stop = press(world)
    for reason in ("", " \n\t", ".", "\u3164"):
        with pytest.raises(NoReason):
            release(stop, world.bob, reason)
    answer = release(stop, world.bob)
    assert isinstance(answer, Released)
    assert (answer.release.asked_by, answer.release.granted_by) == (world.bob.id, "")
    assert answer.release.granted_at is not None
    assert (gate_of(world), fresh(run).status) == ("OPEN", "PAUSING")
    assert (fresh(stop).released_at is not None, fresh(stop).closed_at) == (True, None), "its run is held"
    with pytest.raises(NotStanding):
        release(stop, world.bob)
    with pytest.raises(NotStanding):
        release(world.stop(run, mode="cancel").stop, world.bob)
    with pytest.raises(NotFound):
        releases.release(actor=world.bob, stop_id="stp_0", reason="right")
    assert kinds_of(world, stop) == [
        *("gate.shut", "compensations.halted", "stop.fenced", "gate.released"),
    ]


def test_a_release_of_a_stop_that_was_superseded_is_refused_and_leaves_the_gate_shut(world: World) -> None:
    milder, stronger = press(world), press(world, mode="cancel")
    with pytest.raises(NotStanding):
        release(milder, world.bob)
    assert gate_of(world) == "SHUT"
    release(stronger, world.bob)
    assert gate_of(world) == "OPEN"


@pytest.mark.invariant("I19")
def test_a_release_waits_until_every_run_was_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    with monkeypatch.context() as patched:
        patched.setattr(fanout, "fence", lambda *args, **named: False)
        stop = press(world)
    with pytest.raises(NotFenced, match="Still being fenced: 0 of 1"):
        release(stop, world.bob)
    assert (gate_of(world), Release.objects.count()) == ("SHUT", 0)
    assert fanout.fence(stop.pk)
    release(fresh(stop), world.bob)
    assert gate_of(world) == "OPEN"


# --- Two people -------------------------------------------------------------------------------------------


def test_a_wish_is_over_once_the_rules_ask_for_one_person_again_and_that_one_decides(world: World) -> None:
    by_two(world)
    stop = press(world)
    release(stop, world.bob)
    asked: dict[str, Any] = {"workspace_id": world.workspace.pk, "version": 1}
    rules.change_rules(actor=an_admin(world), rules=rules.Rules(), **asked)
    release(stop, world.carol)
    assert gate_of(world) == "OPEN"
    assert releases.open_wish(stop) is None
    assert kinds_of(world, stop)[-3:] == ["release.voided", "gate.released", "stop.closed"]


def test_by_two_the_first_asks_and_a_second_grants(world: World) -> None:
    by_two(world)
    stop = press(world)
    asked = release(stop, world.bob)
    assert isinstance(asked, Asked)
    assert (gate_of(world), fresh(stop).released_at) == ("SHUT", None)
    with pytest.raises(SamePerson):
        release(stop, world.bob)
    with pytest.raises(NotAllowed):
        release(stop, world.alice)
    with pytest.raises(TwoPeople):
        release(stop, a_token(world.workspace, "gate:write"))
    granted = release(stop, world.carol, "I looked too")
    assert isinstance(granted, Released)
    assert (granted.release.asked_by, granted.release.granted_by) == (world.bob.id, world.carol.id)
    assert gate_of(world) == "OPEN"
    assert kinds_of(world, stop)[-4:-1] == ["stop.fenced", "gate.release_asked", "gate.released"]


def test_nobody_is_asked_for_a_second_person_to_stop(world: World) -> None:
    by_two(world)
    assert press(world).gate_at is not None
    assert gate_of(world) == "SHUT"


@pytest.mark.parametrize("mode", ["pause", "cancel"])
def test_another_press_voids_a_release_that_waits_for_its_second_person(world: World, mode: str) -> None:
    by_two(world)
    stop = press(world)
    release(stop, world.bob)
    again = press(world, mode=mode)
    assert Release.objects.get().void_at is not None
    asked = release(again, world.carol)
    assert isinstance(asked, Asked), "asked for anew, of the stop as it is now"
    assert gate_of(world) == "SHUT"
    assert "release.voided" in kinds_of(world, stop)


def test_a_first_person_who_may_not_release_any_more_counts_no_longer(world: World) -> None:
    by_two(world)
    stop = press(world)
    release(stop, world.bob)
    Membership.objects.filter(user=world.bob.user).update(role=Role.VIEWER)
    assert isinstance(release(stop, world.carol), Asked)
    assert gate_of(world) == "SHUT"
    assert isinstance(release(stop, an_admin(world)), Released)


# --- Review and end ---------------------------------------------------------------------------------------


def test_a_review_is_moved_ahead_by_whoever_may_stop_with_evidence(world: World) -> None:
    stop = press(world, review_at=in_seconds(60))
    later = in_seconds(3600)
    moved = releases.extend(actor=world.alice, stop_id=stop.pk, review_at=later)
    assert moved.review_at == later
    with pytest.raises(releases.InThePast):
        releases.extend(actor=world.alice, stop_id=stop.pk, review_at=in_seconds(-1))
    with pytest.raises(NotAllowed):
        releases.extend(actor=world.dana, stop_id=stop.pk, review_at=later)
    with pytest.raises(NotFound):
        releases.extend(actor=world.mallory, stop_id=stop.pk, review_at=later)
    assert kinds_of(world, stop)[-1] == "gate.extended"
    release(stop, world.bob)
    with pytest.raises(NotStanding):
        releases.extend(actor=world.alice, stop_id=stop.pk, review_at=later)


def test_at_its_end_date_the_sweep_releases_a_stop_by_itself_and_not_before(world: World) -> None:
    by_two(world)
    stop = press(world, ends_at=database_time() + timedelta(hours=1))
    sweep()
    assert (gate_of(world), releases.end(stop.pk)) == ("SHUT", None)
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=in_seconds(-1))
    release(stop, world.bob)  # half of two: the end date does not wait for the other half
    sweep()
    assert (gate_of(world), fresh(stop).released_at is not None) == ("OPEN", True)
    decided = Release.objects.get(granted_at__isnull=False)
    assert (decided.asked_by, decided.reason) == ("system", "its end date")
    assert releases.end(stop.pk) is None


def test_an_end_date_waits_for_the_fence_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    monkeypatch.setattr(fanout, "fence", lambda *args, **named: False)
    stop = press(world, ends_at=in_seconds(3600))
    StopRequest.objects.filter(pk=stop.pk).update(ends_at=in_seconds(-1))
    assert releases.over() == []
    StopRequest.objects.filter(pk=stop.pk).update(fenced_at=database_time())
    assert releases.over() == [stop.pk]
