"""One check of an UNKNOWN effect: take the turn, ask the provider, record what the answer means."""

from __future__ import annotations

import logging

from django.db import close_old_connections

from . import jobs, providers, reconcile
from .models import Effect
from .reconcile import CANT_TELL, Answer

log = logging.getLogger(__name__)


def check_effect(effect_id: str) -> str | None:
    """Ask once, outside any transaction; returns the settlement afterwards, None when not due.

    A look-up that fails for whatever reason is "can't tell": recorded, and the schedule goes on to
    its end.
    """
    turn = reconcile.take_turn(effect_id)
    if turn is None:
        return None
    effect, asked = turn
    close_old_connections()  # a slow provider must not hold one of the pool's few
    return reconcile.apply_answer(effect_id, ask(effect), asked=asked)


def ask_job(effect_id: str) -> str | None:
    """Ask once how far a job is, outside any transaction; returns its state, None when not due."""
    effect = jobs.take_turn(effect_id)
    if effect is None:
        return None
    close_old_connections()
    try:
        heard = providers.ask_job(effect)
    except Exception as error:
        log.exception("the job of %s could not be asked about", effect.pk)
        return jobs.apply(effect_id, "", f"the question failed: {type(error).__name__}")
    return jobs.apply(effect_id, heard.state, heard.detail)


def ask(effect: Effect) -> Answer:
    """What its provider holds. Whatever goes wrong is "can't tell"."""
    try:
        return providers.look_up(effect)
    except Exception as error:  # a kind whose look-up makes no sense must not be asked for ever
        log.exception("the look-up of %s failed", effect.pk)
        return Answer(CANT_TELL, f"the look-up failed: {type(error).__name__}")
