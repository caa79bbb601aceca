"""Secrets, planted in every field that a stranger may fill, and looked for wherever anything shows."""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session as SignIn
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, models
from django.test import Client
from pypdf import PdfReader

from dashboard import logs, reports
from dashboard.api import schema_text
from dashboard.pages.urls import urlpatterns
from effects import hooks, reconcile
from effects.models import Attachment, Effect, Inbound, Resolution, Review, SignOff
from runs.models import Run, User
from tests.dashboard.scenes import an_admin, browser
from tests.dashboard.test_api_mallory import BODIES, one_of_everything
from tests.dashboard.test_api_schema import operations
from tests.effects.hooking import Teller, an_account
from tests.kept import kept
from tests.wire import ALL, Json, Wire, agent_of, kind_body
from tests.worlds import World, a_delivery, in_seconds

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I27")]

CORE = "CanaryKey7"  # in each canary, and nowhere else
_count = itertools.count(100)
SHAPES = (
    "ghp_{core}{n}{core}{core}",
    "sk_live_{core}{n}",
    "password={core}{n}",
    "Authorization: Bearer {core}{n}",
    "https://bob:{core}{n}@example.org/",
    "https://example.org/?access_token={core}{n}",
    "eyJhbGciOiJI.eyJzdWIiOiJj.{core}{n}",
    "-----BEGIN PRIVATE KEY-----{core}{n}-----END PRIVATE KEY-----",
)
# What names a thing that must be there, or is a moment or a proof: it can't be a text that one chooses.
NAMED = re.compile(
    r"(^|_)(id|ids|token|turn|cursor|at|local|zone|parent|scope|policy|step|session_id|stop_id|attachments"
    r"|lines|account|secret|credential|seq|version|digest|events|reversible|provider|class|provider_id)$"
)


def canary() -> str:
    n = next(_count)
    return SHAPES[n % len(SHAPES)].format(core=CORE, n=n)


# --- Bodies from the schema ------------------------------------------------------------------------------


@cache
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema_text())["components"]["schemas"]
    return found


def resolved(schema: Json) -> Json:
    for several in ("allOf", "anyOf", "oneOf"):
        if several in schema and "properties" not in schema:
            known = [one for one in map(resolved, schema[several]) if one.get("type") != "null"]
            return max(known, key=lambda one: one.get("type") in ("string", "object", "array"))
    return schemas()[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def planted(schema: Json, base: Any, path: str, refused: set[str], put: set[str]) -> Any:
    """A value for a schema with a canary in each text; `base` where one was refused or can't be chosen."""
    schema, name = resolved(schema), path.rpartition(".")[2]
    if (
        path in SKIPPED
        or is_refused(path, refused)
        or NAMED.search(name)
        or {"enum", "const", "format", "pattern"} & set(schema)
    ):
        return base
    kind = schema.get("type")
    if kind == "string":
        put.add(path)
        return canary()
    if kind == "object" and "properties" in schema:
        return planted_object(schema, base or {}, path, refused, put)
    if kind == "object" or not kind:  # any JSON
        put.add(path)
        texts = isinstance(schema.get("additionalProperties"), dict)
        return {"note": canary()} if texts else {"note": [canary()], "client_secret": f"{CORE}-by-name"}
    items = resolved(schema.get("items", {}))
    if kind == "array" and items.get("type") == "string" and "enum" not in items:
        return [planted(schema["items"], "", path + ".0", refused, put)]
    return base


def is_refused(path: str, refused: set[str]) -> bool:
    return any(one == path or one.startswith(f"{path}.") for one in refused)


def planted_object(schema: Json, base: Json, path: str, refused: set[str], put: set[str]) -> Json:
    made = {}
    for name, inner in schema["properties"].items():
        value = planted(inner, base.get(name), f"{path}.{name}", refused, put)
        if value not in (None, {}):
            made[name] = value
    return made


# --- Where things show ------------------------------------------------------------------------------------


def texts_of_the_database() -> Iterator[tuple[str, str]]:
    """Every value of every column that is no row of bytes, as the database holds it."""
    for model in apps.get_models(include_auto_created=True):
        columns = [f.column for f in model._meta.concrete_fields if not isinstance(f, models.BinaryField)]
        named = ", ".join(connection.ops.quote_name(column) for column in map(str, columns))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {named} FROM {connection.ops.quote_name(str(model._meta.db_table))}")
            for row in cursor.fetchall():
                for column, value in zip(columns, row, strict=True):
                    yield f"{model._meta.db_table}.{column}", str(value)


def addresses(ids: dict[str, str]) -> Iterator[str]:
    """Every page, export and reading call whose parts are known."""
    yield from (path for path in pages(ids) if "sign-out" not in path)
    for method, path, _ in operations():
        known = filled(path, ids, r"{(\w+)}")
        if method == "get" and "?" not in known:
            yield known
    yield from ("/api/v1/openapi.json", "/metrics", f"/runs/{ids['run_id']}/?tab=evidence")


def pages(ids: dict[str, str]) -> Iterator[str]:
    paths = (filled(f"/{pattern.pattern}", ids, r"<\w+:(\w+)>") for pattern in urlpatterns)
    return (path for path in paths if "?" not in path)


def filled(path: str, ids: dict[str, str], part: str) -> str:
    """An address with the ids of this scene in it; "?" where it has none."""
    named = {
        **ids,
        "name": "ops" if "/endpoints/" in path else "bank" if "/accounts/" in path else "bank.charge",
    }
    return re.sub(part, lambda found: named.get(found[1], "?"), path)


def read(path: str, whole: bytes) -> str:
    """What an answer says: of a PDF its text, of a pack each file in it."""
    if whole.startswith(b"%PDF"):
        reader = PdfReader(io.BytesIO(whole))
        return "".join([str(reader.metadata), *(page.extract_text() for page in reader.pages)])
    if whole.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(whole)) as pack:
            return "".join(name + pack.read(name).decode(errors="replace") for name in pack.namelist())
    return whole.decode(errors="replace")


def shown(client: Client, ids: dict[str, str], only: str = "") -> Iterator[tuple[str, str]]:
    for path in (one for one in addresses(ids) if re.search(only, one)):
        for headers in ({}, {"HX-Request": "true"}) if path.endswith(ids["run_id"] + "/") else ({},):
            answer = client.get(path, headers=headers)
            whole = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
            assert answer.status_code != 500, path
            if answer.status_code == 200 or path.startswith("/api/"):
                SEEN.add(path)
            yield path, read(path, whole)


SEEN: set[str] = set()  # what was really shown to whoever looked


def leaks(found: Iterator[tuple[str, str]]) -> set[str]:
    return {place for place, text in found if CORE in text}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    written = io.StringIO()
    handlers = []
    for kind in ("json", "text"):
        handler = logging.StreamHandler(written)
        handler.setFormatter(logs.formatter(kind))
        logging.getLogger().addHandler(handler)
        handlers.append(handler)
    yield written
    for handler in handlers:
        logging.getLogger().removeHandler(handler)


Scene = tuple[World, dict[str, str]]


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: Any) -> Iterator[Callable[[], Scene]]:
    yield from kept(django_db_blocker, set_the_scene)


def set_the_scene() -> Scene:
    world = World()
    return world, one_of_everything(world)


@pytest.fixture
def world(scene: Callable[[], Scene], db: None) -> World:
    return scene()[0]


@pytest.fixture
def ids(scene: Callable[[], Scene], db: None) -> dict[str, str]:
    return scene()[1]


# --- The scene ---------------------------------------------------------------------------------------------

BASES: dict[str, Json] = {
    **BODIES,
    "add_run": {"key": "a-run"},
    "put_kind": kind_body(),
    "put_endpoint": {"url": "https://example.org/", "events": ["stop.closed"]},
    "add_policy": {"name": "of-canaries", "match": {"labels": {"team": "canaries"}}},
    "add_effect": {
        **BODIES["add_effect"],
        "key": "charge:planted",
        "step": {"key": "charge:planted"},
        "plan": {"kind": "bank.refund"},
    },
    "add_scheduled_stop": {"scope": "workspace"},
    "report_permit": {"outcome": "applied"},
    "answer_look_up": {"answer": "present"},
    "turn_endpoint": {"on": True},
    "put_rules": {"version": 0},
    "stop_any": {"run_key": "not-registered"},
}
# Planted by themselves where they can be; each with the reason why a canary here would stop the whole call.
SKIPPED = {
    "add_effect.plan.none_because": "one of it and a plan is given",
    "report_permit.partial_output": "of model turns only, which redact it by their column",
    "answer_look_up.items": "of a partial answer only; the same type as a report's items",
    "put_kind.lookup": "its own shape; refused where it holds a secret, below",
    "put_kind.send": "its own shape; refused where it holds a secret",
    "put_kind.tells_apart": "answers of a fixed shape, refused where they hold a secret",
    "put_account.reads": "paths into answers",
    "put_endpoint.url": "an address that can be called: in_addresses_that_are_called",
    "add_policy.match": "keys and labels: refused where they look like a secret",
    "put_rules.cleanup_classes": "words of a fixed list",
    "put_rules.secret_fields": "names: what is planted here would change what is redacted",
    "heartbeat.claim_tokens": "our own tokens, compared and not kept",
    "heartbeat.confirmed": "our own versions",
}
MUST_BE_TRIED = {"add_run", "add_step", "add_effect", "report_permit", "add_delivery", "stop_run", "fail_run"}


def ends_something(operation: tuple[str, str, Json]) -> bool:
    return re.search("stop|complete|fail|shut|release|deadline", operation[2]["operationId"]) is not None


def bodies_of(told: Json) -> Json | None:
    body = told.get("requestBody")
    return resolved(body["content"]["application/json"]["schema"]) if body else None


def plant_everywhere(agent: Wire, ids: dict[str, str]) -> tuple[set[str], set[str]]:
    """Send each writing call with canaries: (fields that were sent one, those that refused one)."""
    sent: set[str] = set()
    refusing: set[str] = set()
    for method, path, told in sorted(operations(), key=ends_something):
        schema, name = bodies_of(told), told["operationId"]
        if method == "get" or schema is None or "properties" not in schema:
            continue
        address = re.sub(r"{(\w+)}", lambda part: ids.get(part[1], "bank.charge"), path)
        base = {**BASES.get(name, {}), **ids_in(name, ids)}
        refused: set[str] = set()
        for _ in range(6):
            put: set[str] = set()
            body = planted_object(schema, base, name, refused, put)
            said = agent.call(method.upper(), address.removeprefix("/api/v1"), body, key=f"c-{next(_count)}")
            assert said.status < 500 or said.status == 503, (name, said.text)
            named = refused_fields(name, said.data) if said.status in (400, 422) else set()
            if not named - refused:
                break
            refused |= named
        sent |= put
        refusing |= refused
    return sent, refusing


def ids_in(name: str, ids: dict[str, str]) -> Json:
    soon = {"at": in_seconds(7200).isoformat()}
    more = {"report_permit": {"claim_token": ids["claim_token"]}, "add_scheduled_stop": soon}
    return more.get(name, {})


def refused_fields(name: str, problem: Any) -> set[str]:
    errors = (problem or {}).get("errors") or []
    return {
        ".".join([name, *re.findall(r"[\w-]+", str(one.get("field", one.get("where", ""))))])
        for one in errors
    }


@pytest.mark.only("sqlite")
def test_no_secret_that_is_sent_anywhere_is_stored_or_shown(
    world: World,
    ids: dict[str, str],
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    agent = agent_of(world.workspace, *ALL, "resume:write", "gate:write")
    admin, page = browser(a_keeper(world, ids)), browser(world.alice)
    with django_capture_on_commit_callbacks() as told:
        in_answers(world)
        in_webhooks(world)
        in_addresses_that_are_called(agent, ids)
        sent, refusing = plant_everywhere(agent, ids)
        in_forms(world, page, ids)
        in_every_form(admin, ids)
    assert len(sent) > 60, sorted(sent)
    assert {name.partition(".")[0] for name in sent} >= MUST_BE_TRIED, sorted(sent)
    assert {"add_run.key", "add_step.key", "add_effect.key", "heartbeat.worker"} <= refusing
    signed = kind_body(lookup={"url": f"https://x.example/{{key}}?sig={CORE}"})
    assert agent.put("/kinds/bank.x", signed).status == 422
    in_errors_headers_and_addresses(agent, page, monkeypatch)
    assert leaks(texts_of_the_database()) == CALLED
    assert leaks(drafts()) == set()
    assert leaks(shown(admin, ids, only="^/(?!api/)")) == set()
    assert leaks(shown(page_of(agent), ids, only="^/(api/|metrics)")) == set()
    assert {path for path in must_be_seen(ids) if path not in SEEN} == set()
    hints = [str(one) for one in told if after_commit(one) in ("poke", "run_soon")]
    assert len(hints) > 30
    assert leaks((one, one) for one in hints) == set(), "what sockets and workers are told"
    for one in told:
        if after_commit(one) in ("_log", "_log_many"):
            one()
    assert CORE not in log.getvalue()
    assert "[redacted " in log.getvalue()


def after_commit(call: Any) -> str:
    """The name of what a transaction left to do."""
    return str(getattr(call, "func", call).__name__)


# What has to be called is stored; nowhere else is it found.
CALLED = {"effects_delivery.target", "dashboard_endpoint.url"}


def must_be_seen(ids: dict[str, str]) -> Iterator[str]:
    run = f"/runs/{ids['run_id']}"
    yield from (f"{run}/report.pdf", f"{run}/report.json", f"{run}/pack.zip", f"{run}/evidence")
    yield from ("/audit", "/audit.jsonl", "/measures.csv", "/notices", "/rules", "/reviews", "/unknowns")
    yield from (f"/unknowns/{ids['subject_id']}", f"/unknowns/attachments/{ids['attachment_id']}")
    yield from (f"/notices/{ids['endpoint_id']}", f"/people/{ids['user_id']}/erase", "/api/v1/endpoints/ops")


def a_keeper(world: World, ids: dict[str, str]) -> Any:
    """Erin, an admin and a superuser: whoever is shown the most."""
    erin = an_admin(world)
    assert erin.user is not None
    User.objects.filter(pk=erin.user.pk).update(is_superuser=True)
    ids["user_id"] = world.bob.id.removeprefix("user:")
    return erin


def drafts() -> Iterator[tuple[str, str]]:
    """What sign-in sessions hold: packed in their column, so that looking at the column finds nothing."""
    for session in SignIn.objects.all():
        yield "a session", str(session.get_decoded())


def in_webhooks(world: World) -> None:
    hooks.refused.forget()
    bank = Teller(*an_account(world.workspace))
    more = {"id": canary(), "missing": [canary()], "password": CORE, "note": canary()}
    assert bank.tell("charge:7", "succeeded", **more)
    assert Inbound.objects.filter(account=bank.account, body__contains="[redacted ").exists()


def in_addresses_that_are_called(agent: Wire, ids: dict[str, str]) -> None:
    """The rest of an address is often a secret, and no form of it tells."""
    where = f"https://hooks.example.org/T0/{CORE}"
    told = agent.put("/endpoints/ops", {"url": where, "events": ["stop.closed"]})
    run = Run.objects.get(pk=ids["run_id"])
    ids["endpoint_id"] = told.data["endpoint"]["id"]
    body = f'{{"pin": "{CORE}", "note": "{canary()}"}}'.encode()
    a_delivery(run, "UNKNOWN", channel="webhook", target=where, body=body, unknown_since=in_seconds(-60))
    a_delivery(run, "QUEUED", channel="webhook", target=where, body=body)


def in_forms(world: World, page: Client, ids: dict[str, str]) -> None:
    """What people type into forms that have to be right to be taken; each is recorded, so it can be seen."""
    unknown = f"/unknowns/{ids['subject_id']}"
    page.post(f"{unknown}/attach", {"form": "quote", "text": canary(), "evidence": canary()})
    file = SimpleUploadedFile(f"ghp_{CORE * 3}.txt", canary().encode(), "text/plain")
    page.post(f"{unknown}/attach", {"file": file, "evidence": canary()})
    ids["attachment_id"] = Attachment.objects.get(form="file").pk
    page.post(f"{unknown}/resolve", {"verdict": "happened", "evidence": canary()})
    row = reports.issue(ids["run_id"])
    assert row is not None
    asked = {"version": row.version, "digest": row.digest, "note": canary()}
    page.post(f"/runs/{ids['run_id']}/report/sign", asked)
    page.post(f"/reviews/{ids['review_id']}/approve", {"digest": "x", "comment": canary()})
    browser(world.bob).post(f"/reviews/{ids['review_id']}/reject", {"reason": canary()})
    browser(world.bob).post(f"/stops/{ids['stop_id']}/release", {"reason": canary()})
    counts = [model.objects.count() for model in (Attachment, Resolution, SignOff)]
    assert counts == [2, 1, 1]
    assert Review.objects.get(pk=ids["review_id"]).closed_at is not None


TEXTS = re.compile(r'<(?:textarea|input)(?![^>]*type="(?:hidden|radio|checkbox|file)")[^>]*name="(\w+)"')
WORDS = {
    "mode": "cancel",
    "do": "resolve",
    "verdict": "happened",
    "form": "link",
    "version": "0",
    "role": "viewer",
}
LEFT_OUT = re.compile(
    r"sign-|/password|/theme|/erase|/remove|/revoke|/role|first-run|drills/|/gate|everywhere"
)


def in_every_form(page: Client, ids: dict[str, str]) -> None:
    """Each form with a canary in every text that any form has: whatever it does with them, it keeps none."""
    templates = Path(__file__).parents[2] / "templates"
    named = {name for file in templates.rglob("*.html") for name in TEXTS.findall(file.read_text())}
    assert named > {"reason", "note", "comment", "evidence", "text", "wish", "secret_fields"}
    broken, led = set(), set()
    for path in (one for one in pages(ids) if LEFT_OUT.search(one) is None):
        answer = page.post(path, {**{name: canary() for name in sorted(named)}, **WORDS})
        broken |= {path} if answer.status_code >= 500 else set()
        led |= {path} if CORE in answer.headers.get("Location", "") else set()
    assert broken == set()
    assert led == {"/runs/stop"}, "its list is narrowed by an address, as it was typed"


def page_of(agent: Wire) -> Client:
    """The same addresses as an agent's token reads them."""
    return Client(headers={"Authorization": f"Bearer {agent.token}"})


def in_answers(world: World) -> None:
    """What providers say: to a look-up, to our own call, in a webhook."""
    opened = world.opened(Run.objects.get(key="close-books"), "charge:answered")
    world.report(opened, "unknown", detail=f"it said {canary()}")
    effect = Effect.objects.get(key="charge:answered")
    answer = reconcile.Answer(
        "can't tell", canary(), {"said": canary(), "password": CORE}, provider_ref=canary()
    )
    reconcile.apply_answer(effect.pk, answer)
    assert Effect.objects.get(pk=effect.pk).why_unknown.startswith("it said ")


def in_errors_headers_and_addresses(agent: Wire, page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Cookie": f"sessionid={CORE}", "X-Api-Key": canary(), "User-Agent": canary()}
    run = Run.objects.get(key="close-books")
    agent.stop({"id": run.pk}, {"note": canary()}, **headers, Idempotency_Key=f"ghp_{CORE * 3}")
    agent.post("/stops", {"run_key": f"ghp_{CORE * 3}", "note": canary()})
    agent.post("/stops", {"scope": "session", "session": f"ghp_{CORE * 3}"})
    agent.get(f"/runs?cursor={canary()}", **headers)
    page.get(f"/nowhere?token={CORE}&x={canary()}", headers={"X-Request-Id": f"ghp_{CORE * 3}"})
    page.post(f"/runs/{run.pk}/stop", {"note": canary(), "mode": "cancel"}, headers=headers)

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"could not call {canary()} with password={CORE}\n{canary()}")

    page.raise_request_exception = False  # for this one error
    with monkeypatch.context() as patched:
        patched.setattr("runs.access.find_run", broken)
        agent.get(f"/runs/{run.pk}/report", **headers)
        page.get(f"/runs/{run.pk}/")
    page.raise_request_exception = True
    logging.getLogger("celery.worker").error("Task failed: %s", canary(), exc_info=RuntimeError(canary()))


@pytest.mark.only("sqlite")
def test_what_got_past_would_be_found(world: World, ids: dict[str, str]) -> None:
    """The control: one name that nothing redacted is found wherever it shows, also in a PDF and in a pack."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET name = %s WHERE id = %s", [canary(), ids["run_id"]])
    assert leaks(texts_of_the_database()) == {"runs_run.name"}
    run = f"/runs/{ids['run_id']}/"
    found = leaks(shown(browser(world.alice), ids, only="^/runs/"))
    assert {run, "/runs/", f"{run}report.pdf", f"{run}report.json", f"{run}pack.zip"} <= found
    assert f"/api/v1/runs/{ids['run_id']}" in leaks(
        shown(page_of(agent_of(world.workspace)), ids, only="^/api/v1/runs/")
    )
