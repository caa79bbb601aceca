"""Providers: who sends an effect, and who can be asked what became of it.

Each module answers the six questions (`QUESTIONS`) and send · look_up · inspect · compensate · check;
shape.py says what these mean. Only our executor calls send() and compensate().
"""

from __future__ import annotations

from effects.models import Effect, Kind
from effects.models import Provider as Name
from effects.new_kind import is_own
from effects.reconcile import CANT_TELL, Answer
from effects.settle import Told

from . import browser, email, http, job, model, outside, own, workspace
from .shape import Inspection, NoSender, Provider, Ready, Sendable, inspection_of

PROVIDERS: dict[str, Provider] = {
    Name.HTTP: http,
    Name.WORKSPACE: workspace,
    Name.JOB: job,
    Name.EMAIL: email,
    Name.BROWSER: browser,
    Name.MODEL: model,
    Name.OUTSIDE: outside,
}


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """Send through the kind's provider. Raises NoSender, and what `ready` raises."""
    provider = _provider_of(kind)
    return provider.send(effect, kind, ready)


def compensate(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """Send a compensation through its own kind's provider. Raises as send() does."""
    provider = _provider_of(kind)
    return provider.compensate(effect, kind, ready)


def look_up(effect: Sendable) -> Answer:
    """Ask the provider of a kind what it holds."""
    kind = effect.kind
    if getattr(effect, "asks_about_id", None):
        return Answer(CANT_TELL, "whether it was asked to cancel can't be looked up")
    if kind is None or not kind.lookup or kind.provider not in PROVIDERS:
        return Answer(CANT_TELL, "this kind has no look-up")
    if is_own(kind.lookup):
        return own.look_up(effect, kind)
    return PROVIDERS[kind.provider].look_up(effect, kind)


def ask_job(effect: Effect) -> job.Heard:
    """Ask how far a job is that the provider accepted."""
    kind = effect.kind
    if kind is None or not (kind.lookup.get("job") or {}).get("path"):
        return job.Heard("", "this kind does not say how to ask")
    return job.ask(effect, kind)


def ask_to_cancel(asking: Effect, kind: Kind, ready: Ready) -> Told:
    """Forward a stop: one request of the kind's own, whoever sends its effects."""
    return job.cancel(asking, kind, ready)


def inspect(effect: Sendable) -> Inspection | None:
    """What is there now, for people; None where nobody can look."""
    kind = effect.kind
    if kind is None or kind.provider not in PROVIDERS or kind.lookup.get(own.POLL):
        return None
    if is_own(kind.lookup):
        return inspection_of(own.look_up(effect, kind))
    return PROVIDERS[kind.provider].inspect(effect)


def _provider_of(kind: Kind) -> Provider:
    if kind.provider not in PROVIDERS:
        raise NoSender(kind.name)
    return PROVIDERS[kind.provider]


__all__ = [
    "PROVIDERS",
    "Inspection",
    "NoSender",
    "Provider",
    "Ready",
    "Sendable",
    "ask_job",
    "ask_to_cancel",
    "compensate",
    "inspect",
    "look_up",
    "send",
]
