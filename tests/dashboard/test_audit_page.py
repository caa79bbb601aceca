"""The audit of a workspace: each kind of line by a table by hand, its page, a file that checks itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from dashboard.packs import lines, verify
from dashboard.packs.writing import VERIFIER
from dashboard.pages import audit as audit_page
from dashboard.pages import audit_list
from effects import approvals
from runs import access, audit, keyring, people, policies, tasks
from runs.evidence import Line, record, seal_stream
from runs.models import Evidence, EvidencePayload, Role
from runs.store import database_time
from tests.dashboard.scenes import an_admin, browser, text_of
from tests.flush import without_triggers
from tests.wire import token_text
from tests.worlds import World, a_person, a_review, a_workspace

pytestmark = pytest.mark.django_db
PASSWORD = "a long password"


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(audit, "QUIET_S", 0)
    audit.held.forget()
    yield
    audit.held.forget()


@pytest.fixture
def world() -> World:
    return World()


def written(stream: str) -> list[tuple[str, str, dict[str, Any]]]:
    audit.take_presses()
    tasks.each(audit.place, audit.unplaced())
    tasks.each(audit.write, audit.due())
    bodies = dict(EvidencePayload.objects.filter(stream=stream).values_list("seq", "body"))
    rows = Evidence.objects.filter(stream=stream).order_by("seq")
    return [(row.kind, row.actor, json.loads(bodies.get(row.seq) or "{}")) for row in rows]


# each kind of line ------------------------------------------------------------------------------------

Act = Callable[[World, Client], object]


def take(client: Client, path: str) -> int:
    """Take all of it, as a browser does; the answer's status."""
    answer: Any = client.get(path)
    if answer.streaming:
        b"".join(answer.streaming_content)
    return int(answer.status_code)


def a_token_is_used(world: World, _: Client) -> None:
    _token, text = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="new", scopes=["runs:read"]
    )
    for _n in range(2):
        Client().get("/api/v1/runs", headers={"Authorization": f"Bearer {text}"})


def a_token_may_not(world: World, _: Client) -> None:
    _token, text = people.issue_token(
        actor=access.SET_UP, workspace_id=world.workspace.pk, name="new", scopes=["runs:read"]
    )
    path, shown = f"/api/v1/runs/{world.run().pk}/stops", {"Authorization": f"Bearer {text}"}
    Client().post(path, {}, "application/json", headers=shown)


def revoke(world: World, _: Client) -> None:
    assert world.agent.token is not None
    people.revoke_token(actor=access.SET_UP, workspace_id=world.workspace.pk, token_id=world.agent.token.pk)


def make_policy(world: World, _: Client) -> None:
    policies.create_policy(
        actor=an_admin(world),
        workspace_id=world.workspace.pk,
        name="p",
        match=policies.Match(labels={"a": "b"}),
    )


def sign_in(world: World, _: Client, password: str = PASSWORD) -> Client:
    client = Client()
    assert world.alice.user is not None
    client.post("/sign-in", {"login": world.alice.user.email, "password": password})
    return client


def approve(world: World, _: Client) -> None:
    review = a_review()
    people_of = review.run.workspace
    bob = access.person(a_person("bob", people_of, Role.REVIEWER))
    told = approvals.approve(actor=bob, review_id=review.pk, digest="other", signed_in_s=None)
    assert isinstance(told, approvals.NotDecided)
    assert [(kind, who, body["because"], body["act"]) for kind, who, body in written(people_of.pk)] == [
        ("approval.refused", bob.id, "sign-in", "approve")
    ]


# What was done, the kind of its line, and what its body says: by hand.
TABLE: dict[str, tuple[Act, str, dict[str, Any]]] = {
    "a member lacks the right": (
        lambda w, dana: dana.post(f"/tokens?workspace={w.workspace.slug}", {}),
        "access.refused",
        {"answer": 403, "at": "tokens", "method": "POST", "via": "page", "times": 1},
    ),
    "a member looks for what is not there": (
        lambda w, dana: dana.get("/runs/run_absent/"),
        "access.refused",
        {"answer": 404, "at": "run", "method": "GET", "via": "page", "times": 1},
    ),
    "a token lacks the right": (
        a_token_may_not,
        "access.refused",
        {"answer": 403, "method": "POST", "via": "api", "times": 1},
    ),
    "a token is used": (a_token_is_used, "token.first_used", {"times": 1}),
    "a token is revoked": (revoke, "token.revoked", {}),
    "a policy is made": (make_policy, "policy.created", {}),
    "a person signs in": (sign_in, "person.signed_in", {"address": "127.0.0.1", "times": 1}),
    "a sign-in fails": (
        lambda w, c: sign_in(w, c, "wrong"),
        "person.sign_in_failed",
        {"address": "127.0.0.1", "times": 1},
    ),
    "a person signs out": (
        lambda w, c: sign_in(w, c).post("/sign-out"),
        "person.signed_out",
        {"times": 1},
    ),
    "a list leaves as CSV": (
        lambda w, dana: dana.get(f"/measures.csv?workspace={w.workspace.slug}"),
        "export.made",
        {"what": "measures-csv", "form": "CSV", "times": 1},
    ),
    "a report leaves as JSON": (
        lambda w, dana: dana.get(f"/runs/{w.run().pk}/report.json"),
        "export.made",
        {"what": "report-json", "form": "JSON", "times": 1},
    ),
    "a pack leaves": (
        lambda w, dana: take(dana, f"/runs/{w.run().pk}/pack.zip"),
        "export.made",
        {"what": "run-pack", "form": "pack", "times": 1},
    ),
    "the audit leaves": (
        lambda w, _: take(browser(an_admin(w)), f"/audit.jsonl?workspace={w.workspace.slug}"),
        "export.made",
        {"what": "audit-jsonl", "form": "JSONL", "times": 1},
    ),
    "a run is stopped": (
        lambda w, _: w.stop(w.run()),
        "stop.noted",
        {"scope": "run", "mode": "cancel", "times": 1},
    ),
}


@pytest.mark.parametrize("what", TABLE)
def test_each_leaves_its_line_once_in_the_stream_of_its_workspace(world: World, what: str) -> None:
    act, kind, said = TABLE[what]
    other = a_workspace("Other")
    dana = browser(world.dana)
    assert kind not in [line for line, _, _ in written(world.workspace.pk)] or kind == "person.signed_in"
    before = len(written(world.workspace.pk))
    act(world, dana)
    told = [body for line, _, body in written(world.workspace.pk)[before:] if line == kind]
    assert len(told) == 1, f"exactly one line of {what}"
    assert said.items() <= told[0].items()
    assert written(other.pk) == []


def test_a_refused_approval_says_why(world: World) -> None:
    approve(world, Client())


def test_no_line_holds_what_somebody_typed_and_who_is_unknown_stands_with_the_installation(
    world: World,
) -> None:
    typed = "my-pass-word-in-the-wrong-field@example.org"
    Client().post("/sign-in", {"login": typed, "password": "x"})
    Client().get("/api/v1/runs", headers={"Authorization": "Bearer als_typed"})
    browser(world.dana).get(f"/runs/{typed}/")
    told = written(audit.INSTALLATION)
    assert sorted(kind for kind, _, _ in told) == ["person.sign_in_failed", "token.refused"]
    assert len(written(world.workspace.pk)) > 0
    assert not EvidencePayload.objects.filter(body__contains="typed").exists()
    assert not EvidencePayload.objects.filter(body__contains="pass-word").exists()


# Mallory ----------------------------------------------------------------------------------------------


def test_mallory_leaves_the_same_mark_whether_it_exists_or_not_and_none_in_a_foreign_stream(
    world: World,
) -> None:
    run, mallory = world.run(), browser(world.mallory)
    mallory.get("/help")
    before, counts = len(written(world.workspace.pk)), []
    for path in (f"/runs/{run.pk}/", "/runs/run_absent/"):
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert mallory.get(path).status_code == 404
        counts.append(len([one for one in asked.captured_queries if "audit" in one["sql"]]))
    assert counts[0] > 0
    assert len(written(world.workspace.pk)) == before
    assert world.mallory.user is not None
    home = audit.homes_of(world.mallory.user.pk)
    for stream in home:
        told = [body["times"] for kind, _, body in written(stream) if kind == "access.refused"]
        assert told == [2], "one line for both: they can't be told apart"


def test_only_admins_see_the_audit_and_only_who_runs_it_all_the_installations(world: World) -> None:
    slug = world.workspace.slug
    root = access.person(a_person("root", world.workspace, Role.ADMIN))
    assert root.user is not None
    root.user.is_superuser = True
    root.user.save()
    answers = {
        name: [
            take(browser(who), f"{path}?{query}")
            for path in ("/audit", "/audit.jsonl")
            for query in (f"workspace={slug}", "stream=installation")
        ]
        for name, who in {
            "admin": an_admin(world),
            "bob": world.bob,
            "dana": world.dana,
            "mallory": world.mallory,
            "root": root,
        }.items()
    }
    assert answers == {
        "admin": [200, 404, 200, 404],
        "bob": [403, 404, 403, 404],
        "dana": [403, 404, 403, 404],
        "mallory": [404, 404, 404, 404],
        "root": [200, 200, 200, 200],
    }
    assert "Audit" in text_of(browser(root).get("/help").content.decode())
    assert ">Audit<" not in browser(world.dana).get("/help").content.decode()


# the page ---------------------------------------------------------------------------------------------


def test_the_page_is_narrowed_by_kind_person_and_day_and_goes_on_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    erin, space = browser(an_admin(world)), world.workspace
    lines_ = [Line("token.issued", "user:1", {"n": n}) for n in range(60)]
    record(space, *lines_, Line("policy.created", "user:2", {"policy": "pol_x"}))
    url = f"/audit?workspace={space.slug}"
    first = erin.get(f"{url}&kind=tokens&who=user:1").context["list"]
    assert len(first.rows) == 50
    rest = erin.get(first.older).context["list"]
    assert [row.of.line.actor for row in rest.rows] == ["user:1"] * 10
    assert not rest.older
    seen = [row.of.line.seq for row in [*first.rows, *rest.rows]]
    assert len(set(seen)) == 60
    assert seen == sorted(seen, reverse=True)
    assert [r.of.line.kind for r in erin.get(f"{url}&kind=rules&who=user:2").context["list"].rows] == [
        "policy.created"
    ]
    today = database_time().date()
    for since, until, found in ((0, 0, 50), (1, 2, 0), (-2, -1, 0)):
        days = f"&since={today + timedelta(since)}&until={today + timedelta(until)}"
        assert len(erin.get(f"{url}{days}").context["list"].rows) == found
    monkeypatch.setattr(audit_list, "LOOKED", 10)
    cut = erin.get(f"{url}&who=user:3")
    assert "older ones were not looked at yet" in text_of(cut.content.decode())
    with CaptureQueriesContext(connection) as asked:
        erin.get(f"{url}&since=2020-01-01&until={today}")
    assert len(asked) < 60


def test_tokens_of_one_name_can_be_told_apart(world: World) -> None:
    for _ in range(2):
        token_text(world.workspace, by=world.alice.user)
    html = browser(an_admin(world)).get("/audit").content.decode()
    told = [name for _, name in audit_page.who_can_be_asked_for(world.workspace) if name.startswith("token")]
    assert len(told) == len(set(told)) >= 2
    assert all(name in html for name in told)


def test_a_day_is_found_by_halving(world: World) -> None:
    space, today = world.workspace, database_time().date()
    total = record(space, *[Line("token.issued", "user:1")] * 40)
    with without_triggers(connection) as cursor:
        old = [database_time() - timedelta(days=3), space.pk, 17]
        cursor.execute("UPDATE runs_evidence SET at = %s WHERE stream = %s AND seq < %s", old)
    assert audit_list.first_at(space.pk, today, total) == 17
    assert audit_list.first_at(space.pk, today - timedelta(days=9), total) == 1
    assert audit_list.first_at(space.pk, today + timedelta(days=1), total) == total + 1


def test_the_chain_is_checked_on_the_page_and_what_was_changed_is_named(world: World) -> None:
    erin, space = browser(an_admin(world)), world.workspace
    total = record(space, *[Line("token.issued", "user:1", {"n": n}) for n in range(9)])
    seal_stream(space.pk)
    url = f"/audit?workspace={space.slug}&verify=1"
    page = text_of(erin.get(url).content.decode())
    assert f"{total} entries, chain intact to {database_time():%-d %b %H:}" in page
    assert "An export can’t prove that nothing was left unwritten." in page
    with without_triggers(connection) as cursor:
        cursor.execute(
            "UPDATE runs_evidencepayload SET body = %s WHERE stream = %s AND seq = %s",
            ['{"n":99}', space.pk, total - 2],
        )
    page = text_of(erin.get(url).content.decode())
    assert "the chain is broken" in page
    assert f"Line {total - 2}" in page


# the file ---------------------------------------------------------------------------------------------

Rows = list[dict[str, Any]]


def edited(rows: Rows) -> Rows:
    return [row | ({"actor": "user:9"} if row.get("seq") == 3 else {}) for row in rows]


def swapped(rows: Rows) -> Rows:
    return [row | ({"body": '{"n":99}'} if row.get("seq") == 3 else {}) for row in rows]


def said_removed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"body": None, "removed_at": "2026-01-01T00:00:00+00:00", "removed_under": "a rule"}


def as_sent(rows: Rows) -> str:
    return "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)


# What was done to the file, and what must be said of it; the first is the control.
TAMPERED: dict[str, tuple[Callable[[Rows], Rows], set[str]]] = {
    "nothing": (lambda rows: rows, set()),
    "a line was changed": (edited, {"edited", "file"}),
    "a body was changed": (swapped, {"body", "file"}),
    "a line is gone": (lambda rows: [row for row in rows if row.get("seq") != 3], {"missing", "file"}),
    "the end is gone": (lambda rows: rows[:-3], {"form"}),
    "the lines before the end are gone": (
        lambda rows: [*rows[:5], rows[-1]],
        {"missing", "file"},
    ),
    "two lines changed places": (
        lambda rows: [*rows[:2], rows[3], rows[2], *rows[4:]],
        {"reordered", "file"},
    ),
    "another statement": (
        lambda rows: [*rows[:-1], rows[-1] | {"statement": rows[-1]["statement"].replace("ws_", "ws_0")}],
        {"signature", "statement"},
    ),
    "a line more, which the chain could go on with": (
        lambda rows: [*rows[:-1], rows[-3] | {"seq": 9, "kind": "token.forged"}, rows[-1]],
        {"file"},
    ),
    "a body said to be removed": (
        lambda rows: [said_removed(row) if row.get("seq") == 3 else row for row in rows],
        {"file"},
    ),
    "a line behind the statement": (
        lambda rows: [*rows, rows[-3] | {"seq": 9, "kind": "token.forged"}],
        {"file"},
    ),
}


@pytest.fixture
def keys(tmp_path: Path, settings: Settings) -> None:
    settings.ALLSTOP_KEYS = tmp_path / "keys"
    keyring.prepare(tmp_path / "keys")


@pytest.mark.usefixtures("keys")
@pytest.mark.invariant("I26")
def test_the_file_checks_itself_and_names_what_was_done_to_it(world: World, tmp_path: Path) -> None:
    space = world.workspace
    record(space, *[Line("token.issued", "user:1", {"n": n}) for n in range(6)])
    seal_stream(space.pk)
    record(space, Line("token.revoked", "user:1"))
    answer: Any = browser(an_admin(world)).get(f"/audit.jsonl?workspace={space.slug}")
    rows = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    file, found = tmp_path / "audit.jsonl", {}
    for name, (change, _) in TAMPERED.items():
        file.write_text(as_sent(change(rows)))
        found[name] = {one.what for one in verify.check(str(file), [], []).breaks}
    assert found == {name: said for name, (_, said) in TAMPERED.items()}
    file.write_text(as_sent(rows))
    told = subprocess.run(
        [sys.executable, "-I", VERIFIER, file],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, "intact" in told.stdout) == (0, True), told.stdout


@pytest.mark.usefixtures("keys")
def test_the_file_of_many_lines_is_made_a_few_at_a_time(world: World) -> None:
    record(world.workspace, *[Line("token.issued", "user:1")] * 2_500)
    with CaptureQueriesContext(connection) as asked:
        count = sum(1 for _ in lines.written(world.workspace.pk))
    assert count >= 2_503
    assert len(asked) < 40
