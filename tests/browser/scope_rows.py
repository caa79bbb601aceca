"""Rows for the pages of scopes: sessions of Finance, a Treasury to be stopped, an Archive with stops."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from runs import access, policies, scopes
from runs.models import Membership, Role, Session, StopRequest, User, Workspace
from runs.policies import Match
from runs.schedules import What, read_clock, schedule
from runs.scopes import Target
from runs.stops import Wish
from runs.store import database_time
from tests.worlds import World, a_token, a_workspace, in_seconds


def beside(world: World, name: str, people: Mapping[User | None, str]) -> World:
    """Another workspace of the same people, with its own agent."""
    made: Workspace = a_workspace(name)
    for user, role in people.items():
        assert user is not None
        Membership.objects.create(user=user, workspace=made, role=role)
    return replace_world(world, made)


def replace_world(world: World, workspace: Workspace) -> World:
    """The same people in another workspace."""
    other = object.__new__(World)
    vars(other).update(vars(world) | {"workspace": workspace, "agent": a_token(workspace)})
    return other


def scopes_of(world: World, erin: User) -> dict[str, Any]:
    """What tests of scopes look for."""
    people = {world.alice.user: Role.OPERATOR, world.bob.user: Role.REVIEWER, erin: Role.ADMIN}
    told = {name: world.run(f"{name}-0", session=name).pk for name in ("apart", "quiet")}
    for name in ("apart", "quiet"):
        world.run(f"{name}-1", session=name)
    treasury, archive = beside(world, "Treasury", people), beside(world, "Archive", people)
    for number in range(2):
        treasury.opened(treasury.run(f"treasury-{number}"), f"pay:{number}", lease_s=600)
    return {
        "spare_of_a_session": told["apart"],
        "spare_without_scripts": told["quiet"],
        "treasury": treasury.workspace.slug,
        "session": Session.objects.get(workspace=world.workspace, key="nightly").pk,
        "finance": world.workspace.pk,
        "slug": world.workspace.slug,
        **standing(archive, access.person(erin)),
    }


def standing(world: World, erin: access.Actor) -> dict[str, Any]:
    """A policy that holds two runs and is overdue, and one that only observes."""
    for number in range(2):
        world.opened(world.run(f"archive-{number}", labels={"tag": "W" * 60}), f"send:{number}", lease_s=600)
    home = world.workspace.pk
    held = policies.create_policy(
        actor=erin, workspace_id=home, name="no " + "W" * 100, match=Match(labels={"tag": "W" * 60})
    )
    seen = policies.create_policy(
        actor=erin, workspace_id=home, name="no charges", match=Match(kinds=("bank.charge",))
    )
    wish = Wish(mode="cancel", note="n" * 400, review_at=in_seconds(3600))
    stop = scopes.request_scope_stop(actor=erin, wish=wish, target=Target("policy", held.pk)).stop
    StopRequest.objects.filter(pk=stop.pk).update(review_at=in_seconds(-60))
    watch = Wish(observe=True)
    observing = scopes.request_scope_stop(actor=erin, wish=watch, target=Target("policy", seen.pk)).stop
    return {
        "archive": world.workspace.slug,
        "standing": stop.pk,
        "observing": observing.pk,
        "planned": planned(world, erin),
        "policy": held.pk,
    }


def planned(world: World, erin: access.Actor) -> str:
    """A stop of a run that is not there, next March at a time that no clock in Berlin shows."""
    days = (datetime(database_time().year + n, 3, 31, 2, 30) for n in (0, 1))
    sundays = (day - timedelta(days=(day.weekday() + 1) % 7) for day in days)
    moments = (read_clock(day, "Europe/Berlin") for day in sundays)
    when = next(moment for moment in moments if moment.at > in_seconds(60))
    wish = Wish(mode="pause", note="n" * 400)
    what = What("run", run_key="W" * 200)
    return schedule(actor=erin, workspace_id=world.workspace.pk, what=what, wish=wish, when=when).pk
