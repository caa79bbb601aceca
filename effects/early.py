"""Webhooks that came before their effect: it meets them when it is declared or dispatched."""

from __future__ import annotations

from functools import partial

from django.db import transaction

from runs import wake

from .models import Account, Effect, Inbound, Kind


def met(effect: Effect, kind: Kind | None) -> None:
    """What waits for this effect is taken after the commit (inbound.apply_waiting). Two statements, and only
    for kinds with an account; what came while this one commits is found by the sweep.
    """
    if kind is None or not kind.account:
        return
    mine = Account.objects.filter(workspace_id=kind.workspace_id, name=kind.account)
    account = mine.values_list("pk", flat=True).first()
    rows = Inbound.objects.filter(account_id=account, effect_key=effect.key, became="waiting")
    if account and rows.update(subject_id=effect.pk):
        transaction.on_commit(partial(wake.run_soon, "effects.tasks.take_waiting", effect.pk), robust=True)
