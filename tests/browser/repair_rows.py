"""Compensations for a browser: charges that happened, and refunds of them that wait for three people."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from effects import compensate, ends, intents
from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Compensation, Effect, Review
from runs.access import SET_UP
from runs.guard import Opened
from runs.models import Halt
from runs.rules import CompensationRule, Rules, change_rules
from tests.worlds import World, a_kind, intention

BANK = "https://127.0.0.1:9/refunds"
MEMO = '{"charge":"{ref}",  "memo": "für \u00bd & <b>Ada</b>"}\n'  # its spaces and its end count too
BODY = '{"charge": "{key}", "minor": 12000, "currency": "EUR"}'


def repairs_of(world: World) -> dict[str, Any]:
    """Reviews by what their test does with them; `mended` is the run, `repairable` an effect without one."""
    names = {"title": "Refund of {amount} to {target}", "body": BODY, "risks": "W" * 300}
    a_kind(world.workspace, "shop.charge", compensate={"kind": "shop.refund", **names})
    send, lookup = {"url": BANK, "method": "POST"}, {"url": f"{BANK}?key={{key}}"}
    a_kind(world.workspace, "shop.refund", provider="http", send=send, lookup=lookup)
    refunds = CompensationRule(kind="shop.refund", approvals=3, after_a_stop=True)
    wanted = Rules(compensations=(refunds, CompensationRule(kind="post.refund", approvals=2)))
    change_rules(actor=SET_UP, workspace_id=world.workspace.pk, version=0, rules=wanted)
    run = world.run("mended")
    for number, customer in enumerate(("Nordhaven AG", "Südlicht SE", "W" * 300, "Klippenhof")):
        told = intention(
            f"shop:{number}",
            kind="shop.charge",
            title=f"Charge of €120.00, order {number}",
            amount="€120.00",
            target=customer,
            plan=plan_bytes(kind="shop.refund"),
        )
        opened = intents.dispatch(world.ask(run, step_key=told.key), told)
        assert isinstance(opened, Opened)
        world.report(opened, provider_ref=f"ch_{number}")
    world.stop(run)
    drain_run(run.pk)
    effects = list(Effect.objects.filter(run=run).order_by("pk"))
    made = [compensate.propose(actor=world.agent, effect_id=effect.pk) for effect in effects[:3]]
    assert all(isinstance(one, Compensation) for one in made), made
    asked = [one.pk for one in Review.objects.filter(run=run).order_by("pk")]
    named = dict(zip(("repair_signed", "repair_changed", "repair_hostile"), asked, strict=True))
    halt = Halt.objects.order_by("pk").first()
    sent = {"repair_sent": sent_by_us(world)}
    return {
        **named,
        **sent,
        "mended": run.pk,
        "repairable": effects[3].pk,
        "halt": halt.pk if halt else "",
    }


def sent_by_us(world: World) -> str:
    """The review of a refund that goes to the site's own bank, as soon as two people say yes."""
    [bank] = settings.ALLSTOP_OUTBOUND_ORIGINS
    a_kind(
        world.workspace, "post.charge", compensate={"kind": "post.refund", "title": "Refund", "body": MEMO}
    )
    look = {"url": f"{bank}/refunds?key={{key}}"}
    a_kind(world.workspace, "post.refund", provider="http", send={"url": f"{bank}/refunds"}, lookup=look)
    run, told = (
        world.run("refunded"),
        intention("post:1", kind="post.charge", plan=plan_bytes(kind="post.refund")),
    )
    opened = intents.dispatch(world.ask(run, step_key=told.key), told)
    assert isinstance(opened, Opened)
    world.report(opened, provider_ref="ch_9")
    ends.complete(actor=world.agent, run_id=run.pk, seen=run.cancel_version)
    made = compensate.propose(actor=world.agent, effect_id=Effect.objects.get(run=run).pk)
    assert isinstance(made, Compensation), made
    return str(Review.objects.get(subject_id=made.pk).pk)
