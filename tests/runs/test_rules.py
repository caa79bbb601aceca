"""The rules of a workspace: written by admins, one version after the other, each change on record."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from runs import access, rules
from runs.access import Actor, NotAllowed, NotFound
from runs.models import EvidencePayload, Role, RulesRow
from runs.rules import ApprovalRule, CompensationRule, Rules, RulesChanged, rules_of
from tests.wire import Wire, agent_of
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db
WRITES = ("runs:read", "rules:write")


@pytest.fixture
def admin(world: World) -> Actor:
    return access.person(a_person("erin", world.workspace, Role.ADMIN))


def told(world: World) -> list[dict[str, object]]:
    lines = EvidencePayload.objects.filter(stream=world.workspace.pk).order_by("seq")
    return [body for body in (json.loads(line.body) for line in lines) if "now" in body]


def test_without_a_row_the_defaults_hold(world: World, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(1):  # type: ignore[operator]
        now = rules_of(world.workspace.pk)
    assert (now.partial_output, now.cleanup_classes) == ("keep", ("read", "workspace_change"))
    assert (now.silent_stop, now.approvals) == (None, ())
    assert not RulesRow.objects.exists()


def test_a_change_keeps_before_and_after_in_the_workspaces_stream(world: World, admin: Actor) -> None:
    put = rules.change_rules(
        actor=admin, workspace_id=world.workspace.pk, version=0, rules=Rules(partial_output="drop")
    )
    assert (put.version, put.rules.partial_output, put.changed_by) == (1, "drop", admin.id)
    assert told(world) == [
        {"version": 1, "was": {"partial_output": "keep"}, "now": {"partial_output": "drop"}}
    ]
    again = rules.change_rules(
        actor=admin, workspace_id=world.workspace.pk, version=0, rules=Rules(partial_output="drop")
    )
    assert (again.version, len(told(world))) == (1, 1), "the same rules again are no change"
    assert rules_of(world.elsewhere.pk).partial_output == "keep"


def test_whoever_read_an_older_version_changes_nothing(world: World, admin: Actor) -> None:
    first = Rules(silent_stop="pause")
    rules.change_rules(actor=admin, workspace_id=world.workspace.pk, version=0, rules=first)
    with pytest.raises(RulesChanged) as caught:
        rules.change_rules(
            actor=admin, workspace_id=world.workspace.pk, version=0, rules=Rules(silent_stop="cancel")
        )
    assert (caught.value.standing.version, rules_of(world.workspace.pk)) == (1, first)


def test_only_admins_change_rules(world: World) -> None:
    for actor in (world.alice, world.bob, world.dana, world.agent):
        with pytest.raises(NotAllowed):
            rules.change_rules(actor=actor, workspace_id=world.workspace.pk, version=0, rules=Rules())
    for actor in (world.mallory, world.foreign_agent):
        with pytest.raises(NotFound):
            rules.change_rules(actor=actor, workspace_id=world.workspace.pk, version=0, rules=Rules())


def test_the_strictest_rule_that_matches_an_effect_decides() -> None:
    charge = ApprovalRule(kind="bank.charge", approvals=1)
    writes = ApprovalRule.model_validate({"class": "external_write", "approvals": 2, "expires_s": 600})
    euros = ApprovalRule(kind="bank.charge", amount="EUR", approvals=2, expires_s=60)
    now = Rules(approvals=(charge, writes, euros))
    assert now.approval_for("bank.charge", "external_write", "100 eur") == euros
    assert now.approval_for("bank.charge", "external_write", "") == writes
    assert now.approval_for("bank.charge", "external_job", "100") == charge
    assert now.approval_for("mail", "delivery", "") is None


def test_a_compensation_is_permitted_by_the_rule_of_its_very_kind_or_by_none() -> None:
    refund, mail = CompensationRule(kind="bank.refund"), CompensationRule(kind="mail", policy="never")
    assert (refund.policy, refund.approvals, refund.after_a_stop, refund.propose) == (
        "approve",
        1,
        False,
        "people",
    )
    now = Rules(compensations=(refund, mail))
    assert now.compensation_for("bank.refund") == refund
    assert [now.compensation_for(kind) for kind in ("bank.refund2", "bank", "mail", "")] == [None] * 4
    assert Rules().compensation_for("bank.refund") is None


# the wire ---------------------------------------------------------------------------------------------


def test_rules_are_read_and_put_over_the_api(world: World) -> None:
    agent, reader = agent_of(world.workspace, *WRITES), agent_of(world.workspace)
    assert reader.get("/rules").data["version"] == 0
    body = {"version": 0, "approvals": [{"class": "external_write", "approvals": 2}]}
    put = agent.put("/rules", body)
    assert (put.status, put.data["version"]) == (200, 1)
    assert put.data["approvals"] == [
        {"kind": "", "class": "external_write", "amount": "", "approvals": 2, "expires_s": 86_400}
    ]
    assert agent.put("/rules", body).data == put.data, "an answer that was lost is had again"
    stale = agent.put("/rules", {"version": 0, "silent_stop": "pause"})
    assert (stale.status, stale.problem) == (409, "rules-changed")
    assert stale.data["rules"] == put.data == reader.get("/rules").data
    assert reader.put("/rules", {**body, "version": 1}).problem == "not-allowed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partial_output", "burn"),
        ("cleanup_classes", ["approval_wait"]),
        ("cleanup_classes", "read"),
        ("silent_stop", "kill"),
        ("approvals", [{"approvals": 1}]),
        ("approvals", [{"kind": "a", "approvals": 0}]),
        ("approvals", [{"kind": "a", "expires_s": "60"}]),
        ("approvals", [{"kind": "a", "who": "me"}]),
        ("compensations", [{"policy": "approve"}]),
        ("compensations", [{"kind": ""}]),
        ("compensations", [{"kind": "a", "policy": "always"}]),
        ("compensations", [{"kind": "a", "approvals": 0}]),
        ("compensations", [{"kind": "a", "approvals": 10}]),
        ("compensations", [{"kind": "a", "after_a_stop": 1}]),
        ("compensations", [{"kind": "a", "propose": "agent"}]),
        ("compensations", [{"kind": "a"}, {"kind": "a", "policy": "never"}]),
        ("version", "0"),
        ("policy", "x"),
    ],
)
def test_rules_that_can_not_be_are_refused(world: World, field: str, value: object) -> None:
    said = agent_of(world.workspace, *WRITES).put("/rules", {"version": 0, field: value})
    assert (said.status, said.problem) == (422, "invalid-request")
    assert said.data["errors"][0]["field"].startswith(field)
    assert not RulesRow.objects.exists()


def test_a_person_reads_the_rules_of_their_own_workspaces_only(world: World) -> None:
    client = Client()
    assert world.dana.user is not None
    client.force_login(world.dana.user)
    assert Wire(client=client).get("/rules").data["workspace_id"] == world.workspace.pk
    foreign = Wire(client=client).get(f"/rules?workspace_id={world.elsewhere.pk}")
    absent = Wire(client=client).get(f"/rules?workspace_id=ws_{'0' * 32}")
    assert (foreign.status, foreign.text) == (404, absent.text)
