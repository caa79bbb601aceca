"""The rows that a browser visits, made through the verbs, by the agents and people they stand for."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from effects import intents, resolve
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Effect
from runs import gate
from runs.evidence import Line, record
from runs.guard import Opened, Waiting
from runs.models import Refusal, Run, Step, Token, User
from runs.store import database_time
from runs.turns import Spend
from tests.browser.bulk_rows import ledger_of
from tests.browser.drill_rows import drills_of
from tests.browser.repair_rows import repairs_of
from tests.browser.scope_rows import scopes_of
from tests.worlds import World, a_kind, a_person, fresh, intention

SPARE = 24
HOSTILE = "books <img src=x onerror=alert(1)> \u202eevil " + "W" * 240
UNBROKEN = {"latin": "W" * 300, "cjk": "\u754c" * 300, "spaces": "a " * 150, "markup": "<b>" * 100}


def hostile(world: World) -> Run:
    """Names as long as they may be, without a space, in every place that shows one; and stopped."""
    run = world.run(
        "k" * 200,
        name=HOSTILE,
        agent="A" * 120,
        runtime="R" * 120,
        ungateable=["u" * 120] * 5,
        session="S" * 200,
    )
    for number, (key, name) in enumerate(UNBROKEN.items()):
        effect = {"title": name, "target": name, "amount": "9" * 60, "plan": plan_bytes(none_because=name)}
        ask = world.ask(run, step_key=f"{key}:{'k' * 180}", step_name=name, worker="w" * 120)
        opened = intents.dispatch(ask, intention(f"{key}:{'k' * 180}", **effect))
        assert isinstance(opened, Opened)
        world.report(opened, ("applied", "unknown")[number % 2], provider_ref="r" * 120, detail="d" * 200)
    world.stop(run, note="n" * 2000)
    for key, name in UNBROKEN.items():
        gate.claim(world.ask(run, step_key=f"later:{key}", step_name=name, worker="w" * 120, seen_version=1))
    drain_run(run.pk)
    return run


def crowded(world: World) -> Run:
    """A run of ten minutes with marks and words all over its timeline, up to its edges."""
    run, now = world.run("crowded"), database_time()

    def at(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    for number, (begin, end, state) in enumerate(CROWD):
        step = Step.objects.create(
            run=run, key=f"s{number}", name=f"Charge {number}", op_class="external_write",
            status="DISPATCHED", created_at=at(begin),
        )  # fmt: skip
        Effect.objects.create(
            run=run, step=step, key=step.key, kind_name="k", op_class=step.op_class, title=step.name,
            settlement=state, provider_ref="ch_3PqWmm0aWWWWMMMM119", why_unknown="no answer in time",
            declared_at=at(begin), dispatched_at=at(begin), settled_at=at(end) if end else None,
            body_digest="", plan_digest="", parameters_digest="",
        )  # fmt: skip
        Refusal.objects.create(
            run=run, workspace_id=run.workspace_id, boundary="dispatch", reason="stopped",
            step_key=f"r{number}", first_at=at(end or 0), last_at=at(end or 0), count=12_345,
        )  # fmt: skip
    record(run, *(Line("effect.looked_up", "system", effect_key="s1") for _ in range(20)))
    world.stop(run)
    return run


CROWD = [
    *((600, 590, "CONFIRMED"), (600, 0, "UNKNOWN"), (590, 3, "CONFIRMED"), (400, 300, "PARTIAL")),
    *((200, 60, "NOT_APPLIED"), (90, 40, "CONFIRMED"), (30, 10, "CONFIRMED"), (5, 1, "CONFIRMED")),
    *((2, 0, "DISPATCHED"), (300, 299, "CONFIRMED")),
]


def flying(world: World, key: str) -> Run:
    """A running run with one effect confirmed, one in flight and two steps queued."""
    run = world.run(key, session="nightly", agent="invoice agent", ungateable=["web_search"])
    world.heartbeat(run)
    world.report(world.opened(run, f"charge:{key}:1"), provider_ref="ch_1")
    world.opened(run, f"charge:{key}:2", lease_s=600)
    for number in range(2):
        gate.register(world.ask(run, step_key=f"queued-{number}"))
    return run


def stopped(world: World) -> Run:
    """A run stopped with one unknown, one partial and several refusals: at rest, not final."""
    run = world.run("stopped", session="nightly", agent="invoice agent", runtime="LangGraph 1.2")
    world.report(world.opened(run, "mail:1"), provider_ref="msg-1")
    world.report(world.opened(run, "file:1"), "partial", provider_ref="212 of 260 rows")
    world.report(world.opened(run, "charge:2"), "unknown", detail="no answer")
    for number in range(5):
        gate.register(world.ask(run, step_key=f"queued-{number}"))
    world.stop(run, note="wrong prices", reason="wrong input")
    world.stop(run, by=world.bob)
    for number in range(3):
        gate.claim(world.ask(run, step_key=f"queued-{number}", seen_version=1))
        world.refused(fresh(run), "charge:3", seen_version=1)
    drain_run(run.pk)
    return run


def asked(world: World, run: Run, key: str, **fields: Any) -> str:
    """A charge that waits for two people, with a body of many lines."""
    body = json.dumps({f"line {n}": "W" * 90 for n in range(30)}).encode()
    new = intention(key, approvals=2, body=body, **{"title": "Charge card", **fields})
    answer = intents.dispatch(world.ask(run, step_key=key), new)
    assert isinstance(answer, Waiting)
    return str(answer.review.pk)


def failing(world: World, run: Run) -> str:
    """A step that only its worker denies, and a model turn that was cut off; names as long as they may be."""
    names = {"title": "W" * 300, "target": HOSTILE}
    ask = world.ask(run, step_key="f" * 200, step_name="W" * 300, worker="w" * 120)
    opened = intents.dispatch(ask, intention("f" * 200, **names))
    assert isinstance(opened, Opened)
    world.report(opened, "not_applied")
    turn = gate.model(world.ask(run, step_key="t" * 200, step_name="W" * 300, op_class="model_turn"))
    assert isinstance(turn, Opened)
    spend = Spend("M" * 120, 2**53 - 1, 2**53 - 1, "9" * 60)
    world.report(turn, "partial", spend=spend, partial_output=f"{HOSTILE}\n" * 50)
    return str(opened.step.pk)


def calm(world: World, key: str, mode: str = "") -> Run:
    """A run with nothing in flight: one effect confirmed, one step queued; perhaps stopped and drained."""
    run = world.run(key, agent="invoice agent")
    world.report(world.opened(run, f"charge:{key}"), provider_ref="ch_1")
    gate.register(world.ask(run, step_key="queued"))
    if mode:
        world.stop(run, mode=mode, note="over night")
        drain_run(run.pk)
    return run


def doubtful(world: World) -> dict[str, str]:
    """Unknown charges, each for one test of the desk; their provider can't be asked from here."""
    a_kind(world.workspace, "desk.charge", lookup={"url": "https://127.0.0.1:9/charges?key={key}"})
    run, found = world.run("desk"), {}
    for name in ("unknown", "disputed", "undecidable", "by_keys", "settled"):
        told = intention(f"desk:{name}", kind="desk.charge", title=f"Charge {name}", amount="€120.00")
        opened = intents.dispatch(world.ask(run, step_key=name), told)
        assert isinstance(opened, Opened)
        world.report(opened, "unknown", detail="no answer in time")
        found[name] = Effect.objects.get(run=run, key=told.key).pk
    told_by: dict[str, Any] = {"actor": world.alice, "subject_id": found["settled"]}
    resolve.attach(**told_by, form="file", file_name="e" * 150 + ".csv", content=b"a,b")
    resolve.resolve(**told_by, verdict="happened", evidence=HOSTILE, seen=0)
    return found


def a_superuser() -> str:
    """Of no workspace: nobody's list is longer for them."""
    root = a_person("root")
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    return root.email


def fill() -> dict[str, Any]:
    """Fill the database; returns what tests look for."""
    world = World()
    paying = world.run("paying")
    names = {"title": "W" * 300, "target": HOSTILE, "amount": "9" * 60, "plan": plan_bytes(kind="W" * 120)}
    running = world.run("hostile", name=HOSTILE, agent="A" * 120)
    erin = a_person("erin", world.workspace, "admin")
    return {
        "paying": paying.pk,
        "review": asked(world, paying, "charge:asked"),
        "hostile_review": asked(world, world.run("hostile paying", name=HOSTILE), "k" * 200, **names),
        "spare": [flying(world, f"spare-{number}").pk for number in range(SPARE)],
        "stopped": stopped(world).pk,
        "hostile": hostile(world).pk,
        "hostile_running": running.pk,
        "hostile_failed": failing(world, running),
        "crowded": crowded(world).pk,
        "calm": calm(world, "calm").pk,
        "paused": calm(world, "paused", mode="pause").pk,
        "token": Token.objects.filter(workspace=world.workspace).values_list("pk", flat=True)[0],
        "empty": world.run("empty").pk,
        "people": {
            **{name: getattr(world, name).user.email for name in ("alice", "bob", "dana", "mallory")},
            "erin": erin.email,
            "root": a_superuser(),
        },
        "dana": world.dana.user.pk if world.dana.user else 0,
        "newcomer": a_person("newcomer", world.workspace, "viewer").email,
        **scopes_of(world, erin),
        **drills_of(erin),
        **ledger_of(world),
        **doubtful(world),
        **repairs_of(world),
        "hostile_unknown": Effect.objects.filter(run__name=HOSTILE, settlement="UNKNOWN")[0].pk,
    }
