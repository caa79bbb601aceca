"""The page of a workspace's rules: everybody reads them, an admin changes what they have read."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict

from dashboard.pages.rules import read
from runs import rules
from runs.rules import ApprovalRule, CompensationRule, Retention, Rules, rules_of
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


FORM: dict[str, Any] = {
    "version": "0",
    "partial_output": "drop",
    "silent_stop": "pause",
    "cleanup_classes": ["read", "delivery"],
    "release_by_two": "on",
    "forward_stops": "on",
    "kind": ["bank.charge", "", ""],
    "class": ["", "", "external_write"],
    "amount": ["EUR", "", ""],
    "approvals": ["2", "1", "1"],
    "minutes": ["10.5", "1440", "60"],
    "c_kind": ["bank.refund", "", "restore_files"],
    "c_policy": ["approve", "approve", "automatic"],
    "c_approvals": ["2", "1", "1"],
    "c_minutes": ["60", "1440", "1440"],
    "c_after": ["yes", "no", "no"],
    "c_propose": ["drain", "people", "people"],
    "secret_fields": "Kunden-Nummer\r\n\r\n iban ",
    "keep_evidence": "90",
    "keep_notices": "",
}


def test_an_admin_puts_rules_in_force(world: World) -> None:
    erin = browser(an_admin(world))
    path = f"/rules?workspace={world.workspace.slug}"
    assert "Nobody changed the defaults yet." in text_of(erin.get(path).content.decode())
    assert erin.post(path, FORM).status_code == 302
    charge = ApprovalRule(kind="bank.charge", amount="EUR", approvals=2, expires_s=630)
    writes = ApprovalRule.model_validate({"class": "external_write", "expires_s": 3600})
    assert rules_of(world.workspace.pk) == Rules(
        partial_output="drop",
        silent_stop="pause",
        cleanup_classes=("delivery", "read"),
        approvals=(charge, writes),
        release_by_two=True,
        forward_stops=True,
        compensations=(
            CompensationRule(
                kind="bank.refund", approvals=2, expires_s=3600, after_a_stop=True, propose="drain"
            ),
            CompensationRule(kind="restore_files", policy="automatic"),
        ),
        secret_fields=("Kunden-Nummer", "iban"),
        retention=Retention(evidence=90),
    )
    html = erin.get(path).content.decode()
    assert "Version 1, by Erin" in text_of(html)
    assert 'value="10.5"' in html, "what the API set to the second is not rounded by the page"
    assert 'name="release_by_two" checked' in html
    assert 'name="forward_stops" checked' in html
    erin.post(
        path, {**{name: value for name, value in FORM.items() if name != "release_by_two"}, "version": 1}
    )
    assert rules_of(world.workspace.pk).release_by_two is False, "a box that is not ticked is not sent"


def test_whoever_read_an_older_version_is_shown_what_is_in_force(world: World) -> None:
    erin = an_admin(world)
    rules.change_rules(
        actor=erin, workspace_id=world.workspace.pk, version=0, rules=Rules(silent_stop="abandon")
    )
    answer = browser(erin).post("/rules", FORM)
    assert answer.status_code == 409
    assert "somebody else changed the rules meanwhile" in text_of(answer.content.decode())
    assert rules_of(world.workspace.pk).silent_stop == "abandon"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("partial_output", "burn", "Partial output:"),
        ("cleanup_classes", ["approval_wait"], "Cleanup classes:"),
        ("approvals", ["0", "1", "1"], "Approvals, row 1:"),
        ("minutes", ["1e9", "1", "1"], "Approvals, row 1:"),
        ("c_policy", ["always", "approve", "approve"], "Compensations, row 1:"),
        ("c_kind", ["bank.refund", "", "bank.refund"], "Compensations: Give one rule for each kind"),
    ],
)
def test_rules_that_can_not_be_are_named_and_change_nothing(
    world: World, field: str, value: Any, said: str
) -> None:
    answer = browser(an_admin(world)).post("/rules", {**FORM, field: value})
    assert answer.status_code == 422
    assert f"Nothing was changed. {said}" in text_of(answer.content.decode())
    assert rules_of(world.workspace.pk) == Rules()


def test_others_read_them_and_change_nothing(world: World) -> None:
    for person in (world.alice, world.bob, world.dana):
        said = text_of(browser(person).get("/rules").content.decode())
        assert "Only an admin of this workspace changes them." in said
        assert browser(person).post("/rules", FORM).status_code == 403
    assert rules_of(world.workspace.pk) == Rules()


def test_an_empty_row_is_no_rule() -> None:
    assert read(QueryDict("kind=&class=&amount=+&approvals=1&minutes=5"))["approvals"] == []
