"""A press wider or narrower than a run: which verb it calls, and the sentence for the person who pressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from functools import partial

from django.urls import reverse

from dashboard import scope_words, words
from dashboard.pages.facts import name_actors
from dashboard.pages.stop_form import RUN, STEP, standing_wish_of, wish_of
from dashboard.pages.stop_rows import of_effects
from runs import scopes, step_stops, stops
from runs.access import Actor
from runs.models import STANDING, ScopeKind, StopRequest
from runs.scopes import Target
from runs.stops import StopAnswer
from runs.store import database_time

Sent = Mapping[str, str]


def verb_of(actor: Actor, sent: Sent, run_id: str) -> Callable[[], object]:
    """What a press on a run's page asks for. What can't be read means the run that was looked at."""
    what, _, scope_id = sent.get("what", RUN).partition(":")
    if what == STEP and sent.get("step"):
        return partial(
            step_stops.request_step_stop, actor=actor, wish=wish_of(sent), step_id=sent["step"][:40]
        )
    if what in STANDING and scope_id:
        return partial(press_scope, actor, sent, Target(what, scope_id[:40]))
    return partial(stops.request_stop, actor=actor, wish=wish_of(sent), run_id=run_id)


def press_scope(actor: Actor, sent: Sent, target: Target) -> StopAnswer:
    """A press on a session, workspace or policy."""
    wish = standing_wish_of(sent, database_time())
    return scopes.request_scope_stop(actor=actor, wish=wish, target=target)


def tell_scope(answer: StopAnswer) -> tuple[str, str]:
    """The sentence for the person who pressed, and where it leads."""
    stop = answer.stop
    said = _sentence(answer)
    if answer.weaker is not None:
        was = answer.weaker
        said += words.STOP_SUPERSEDES.format(number=was.number, mode=was.mode, who=who(was))
    if answer.answer == "joined" and answer.milder and not stop.observes:
        said += words.STOP_MILDER.format(asked=answer.press.mode, mode=stop.mode)
    if answer.press.ignored:
        said += f" Left out, because it could not be read: {words.listed(answer.press.ignored)}."
    if stop.scope == ScopeKind.STEP:
        return said, reverse("run", args=[stop.run_id])
    return said, reverse("stop-detail", args=[stop.pk])


def _sentence(answer: StopAnswer) -> str:
    stop = answer.stop
    moment = stop.recorded_at.astimezone(UTC).strftime("%H:%M:%S.%f")[:12]
    facts = {"number": stop.number, "who": who(stop), "subject": scope_words.subject(stop), "at": moment[:8]}
    if stop.released_at:
        return scope_words.OVER.format(**facts)
    if answer.answer == "finished":
        return scope_words.STEP_FINISHED.format(**facts)
    if answer.answer == "joined":
        shape = scope_words.OBSERVED_ALREADY if stop.observes else scope_words.JOINED
        return scope_words.capital(shape.format(**facts))
    facts |= {"at": f"{moment} UTC", "means": scope_words.MEANS[_means(stop)]}
    return scope_words.RECORDED.format(**facts)


def _means(stop: StopRequest) -> str:
    if stop.scope == ScopeKind.STEP:
        return "step"
    if stop.observes:
        return "observes"
    return "effects" if of_effects(stop) else "scope"


def who(stop: StopRequest) -> str:
    """The name of the one who asked for it."""
    return words.clean(name_actors([stop.actor]).get(stop.actor, stop.actor))
