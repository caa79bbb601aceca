"""The order in which the rows of notices are locked: an endpoint before its postings, whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.models import Endpoint, Notice, Posting
from dashboard.notices import endpoints, postings
from dashboard.notices.postings import Came
from runs import access
from runs.models import Role
from runs.store import Now
from tests.worlds import World, a_person

pytestmark = pytest.mark.django_db

WAYS: dict[str, Callable[[Any, Posting], Any]] = {
    "a try is noted": lambda admin, posting: postings.note(posting.pk, Came(False, "answered 500")),
    "it is turned off": lambda admin, posting: endpoints.turn(actor=admin, on=False, **_named(posting)),
    "a notice is sent again": lambda admin, posting: endpoints.send_again(
        actor=admin, workspace_id=posting.notice.workspace_id, posting_id=posting.pk
    ),
}


def _named(posting: Posting) -> dict[str, str]:
    assert posting.endpoint_id is not None
    return {"workspace_id": posting.notice.workspace_id, "endpoint_id": posting.endpoint_id}


def _locked(statements: list[dict[str, str]]) -> list[str]:
    """The tables of endpoints and postings, in the order in which a statement first locks or changes them."""
    found: list[str] = []
    for sql in (one["sql"] for one in statements):
        table = next((t for t in ("endpoint", "posting") if f'"dashboard_{t}"' in sql.split("WHERE")[0]), "")
        if table and table not in found and (sql.startswith("UPDATE") or "FOR NO KEY UPDATE" in sql):
            found.append(table)
    return found


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I20")
@pytest.mark.parametrize("way", WAYS)
def test_an_endpoint_is_locked_before_its_postings(way: str) -> None:
    world = World()
    admin = access.person(a_person("erin", world.workspace, Role.ADMIN))
    endpoint = Endpoint.objects.create(workspace=world.workspace, name="ops", url="https://example.org/")
    notice = Notice.objects.create(workspace=world.workspace, event="test", told_at=Now())
    posting = Posting.objects.create(notice=notice, endpoint=endpoint, next_at=Now())
    with CaptureQueriesContext(connection) as told:
        WAYS[way](admin, posting)
    assert _locked(told.captured_queries) == ["endpoint", "posting"]
