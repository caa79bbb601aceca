"""Columns of text: each redacts, or is named here with the reason why it need not."""

from __future__ import annotations

import json

import pytest
from django.apps import apps
from django.db import models

from effects.models import Effect
from runs import redaction, rules
from runs.access import SET_UP
from runs.columns import Redacting
from runs.models import EvidencePayload, Run
from runs.rules import Rules
from tests.dashboard.test_canaries import CORE
from tests.wire import agent_of
from tests.worlds import World

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I27")]


@pytest.fixture
def world() -> World:
    return World()


OURS = "we write it: ids, digests, words of a fixed list"
KEYED = "a key: refused where it looks like a secret"
SENT = "has to be sent as it is, and is shown by its origin"
SEALED = "sealed with a key outside the database"
CHECKED = "refused where it holds a secret"
WRITTEN = "made of what was redacted before"
EXEMPT: dict[str, str] = {
    "Account.credential": SEALED,
    "Account.secrets": SEALED,
    "Endpoint.secrets": SEALED,
    "Delivery.target": SENT,
    "Endpoint.url": SENT,
    "Account.origin": CHECKED,
    "Account.header": CHECKED,
    "Kind.send": CHECKED,
    "Kind.lookup": CHECKED,
    "Kind.compensate": CHECKED,
    "Delivery.content_type": CHECKED,
    "Policy.match": KEYED,
    "EvidencePayload.body": "written by runs.evidence.record alone, which redacts",
    "Inbound.body": "redacted where it is read",
    "Inbound.message_id": "redacted where it is taken",
    "IdempotencyRecord.body": WRITTEN,
    "Report.body": WRITTEN,
    "User.email": "an address",
    "AuditNote.told": WRITTEN,
}


# Our own lists and words; keys and names, which are refused where they look like a secret; rows of others.
OWN = {
    *(
        "Account.reads",
        "Kind.check_every_s",
        "Kind.retry_after_s",
        "Resolution.attachments",
        "Resolution.lines",
    ),
    *("Run.policy_epochs", "Token.scopes", "Endpoint.events", "Subscription.events"),
    *(
        "DrillRun.report",
        "DrillRun.runtime",
        "EvidencePayload.removed_under",
        "Attachment.removed_under",
        "User.password",
    ),
}
KEYS = {"key", "effect_key", "run_key", "step_key", "worker", "kind_name", "account"}
NAMES = {"Workspace", "Policy", "Kind", "Account", "Endpoint", "Worker"}
SIGNED = {"SealKey", "Statement"}


def test_each_column_of_text_redacts_or_says_why_it_need_not() -> None:
    seen = set()
    for model in apps.get_models():
        if model._meta.app_label not in ("runs", "effects", "dashboard") or model.__name__ in SIGNED:
            continue
        for field in model._meta.concrete_fields:
            long = isinstance(field, models.TextField | models.JSONField) or (field.max_length or 0) > 100
            if not long or isinstance(field, models.BinaryField):
                continue
            name = f"{model.__name__}.{field.name}"
            seen.add(name)
            named = field.name in KEYS or (field.name == "name" and model.__name__ in NAMES)
            known = name in EXEMPT or name in OWN or named or field.name == "kind"
            assert isinstance(field, Redacting) != known, name
    assert set(EXEMPT) - seen <= {"Account.header", "Delivery.content_type"}


def test_a_column_that_redacts_does_so_by_insert_by_update_and_by_many(world: World) -> None:
    run = world.run("canaries", name=f"password={CORE}1")
    assert CORE not in run.name
    Run.objects.filter(pk=run.pk).update(name=f"x password={CORE}2 " + "y" * 290)
    found = Run.objects.get(pk=run.pk).name
    assert CORE not in found
    assert len(found) == 300
    assert redaction.is_redacted(found)


def test_nothing_is_kept_under_a_name_that_a_workspace_added(world: World) -> None:
    run = world.run("canaries")
    opened, other = world.opened(run, "charge:1"), world.opened(run, "charge:2")
    world.report(opened, "applied", result={"customer_no": "K-4711"})
    added = Rules(secret_fields=("Customer-No",))
    rules.change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=0, rules=added)
    world.report(other, "applied", result={"customer_no": "K-4711", "note": "customer_no=K-4711 paid"})
    kept = [
        json.dumps(result)
        for result in Effect.objects.filter(run=run).order_by("key").values_list("result", flat=True)
    ]
    assert ["K-4711" in text for text in kept] == [True, False]
    assert "paid" in kept[1]
    (line,) = EvidencePayload.objects.filter(body__contains="K-4711")  # of the first, before the rule
    assert "paid" not in line.body


def test_a_key_that_looks_like_a_secret_is_refused_in_words(world: World) -> None:
    agent = agent_of(world.workspace)
    said = agent.post("/runs", {"key": f"ghp_{CORE * 3}"})
    assert (said.status, said.problem) == (422, "invalid-request")
    assert "looks like a secret" in said.text
    assert CORE not in said.text
    assert agent.post("/runs", {"key": "books"}, key=f"ghp_{CORE * 3}").status == 400
    stopped = agent.post("/stops", {"run_key": f"ghp_{CORE * 3}"})  # a stop is never refused for it
    assert (stopped.status, stopped.data["waiting"]) == (201, True)
    assert stopped.data["run_key"].startswith("[redacted token ")
    assert any("looks like a secret" in told for told in stopped.data["ignored"])
