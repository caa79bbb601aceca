"""The five questions about all runs of one stop. Counts only; each run's own report has the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from django.urls import reverse

from dashboard import scope_words, words
from effects.models import DeliveryState, Settlement
from runs.models import Mode, PermitState, Result, RunStatus, ScopeKind

from .scope_model import ScopeClaim, ScopeSection
from .scope_rows import HAPPENED, NAMED, ScopeRows

Answer = Callable[[ScopeRows], Iterable[ScopeClaim]]
LATE = (RunStatus.CANCELLING_TIMEOUT,)


def sections(r: ScopeRows) -> list[ScopeSection]:
    """The five answers, in their order; an empty one is written out."""
    told = enumerate(QUESTIONS, 1)
    return [ScopeSection(number, key, title, list(answer(r))) for number, (key, title, answer) in told]


def say(text: str, stress: str = "", href: str = "", link: str = "") -> ScopeClaim:
    return ScopeClaim(text, stress, href, link)


def listed(r: ScopeRows, **narrower: str) -> str:
    """The list of runs, narrowed to those of this stop."""
    return reverse("runs", query={"workspace": r.stop.workspace.slug, "stop": str(r.stop.number), **narrower})


def who(r: ScopeRows, actor: str) -> str:
    return words.clean(r.names.get(actor, actor))


def runs(number: int) -> str:
    return words.count(number, "run")


# 1 ------------------------------------------------------------------------------------------------------


def what_stopped(r: ScopeRows) -> Iterator[ScopeClaim]:
    yield say(_took_effect(r))
    yield from _came_to(r)
    yield from _left_out(r)
    yield from _refused(r)
    yield from _no_more(r)


def _took_effect(r: ScopeRows) -> str:
    stop, subject = r.stop, scope_words.subject(r.stop)
    at = words.moment_utc(stop.gate_at or stop.recorded_at)
    named = f"Stop #{stop.number} of {subject} ({stop.mode})"
    if stop.scope == ScopeKind.BULK:
        return f"{named} was recorded at {at}. The list was frozen then: a run that came later is not in it."
    kind = "observes" if stop.observes else "effects" if r.of_effects else "scope"
    wide = " It is a part of a stop of all workspaces." if stop.wide_id else ""
    means = scope_words.MEANS if r.stands else scope_words.MEANT
    return f"{named} took effect at {at}. {means[kind]}{wide}"


def _came_to(r: ScopeRows) -> Iterator[ScopeClaim]:
    told = scope_words.tally(r.results)
    if r.stop.observes:
        times = words.count(r.would_refuse, "call")
        yield say(f"It would have refused {times} so far. Nothing was refused by it.")
    elif told:
        yield say(f"{runs(r.total)}: {told}.", href=listed(r), link="Open them")
    elif not r.total:
        yield say("No run was there to stop." if r.stop.fenced_at else "No run had its turn yet.")
    if left := r.not_permitted:
        total = r.results[Result.NOT_PERMITTED]
        more = f" and {total - NAMED} more" if total > NAMED else ""
        named = ", ".join(f"“{words.brief(run.name)}”" for run in left)
        were = words.count(total, "run was", "runs were")
        by = who(r, r.stop.actor)
        yield say(f"{were} not stopped, because {by} may not stop them: {named}{more}.", "They may go on.")


def _left_out(r: ScopeRows) -> Iterator[ScopeClaim]:
    """Whether a run under the scope is in no list: the gate shut first, so none can be."""
    if r.may_start is None or not r.stop.fenced_at:
        return
    if r.may_start:
        yield say(f"{runs(r.may_start)} under it may still start work.", "This must not happen.")
        return
    yield say(
        "0 runs under it may start new work, counted now. None is left out by construction: the gate shut "
        "first, and every run that was admitted before was found by the pass that came after it."
    )


def _refused(r: ScopeRows) -> Iterator[ScopeClaim]:
    if r.stop.observes:
        return
    number, last = r.refused.count, r.refused.last_at
    if not number:
        yield say("No attempt to begin new work was refused because of it so far.")
        return
    were = words.count(number, "attempt was", "attempts were")
    were = f"At least {were}" if r.refused.more else were
    when = f", the last at {words.moment_utc(last)}" if last else ""
    yield say(f"{were} refused because of it since{when}. Each run’s report says which.")


def _no_more(r: ScopeRows) -> Iterator[ScopeClaim]:
    """Why it holds no more."""
    stop, release = r.stop, r.release
    if stop.superseded_by is not None:
        yield say(f"Stop #{stop.superseded_by.number} ({stop.superseded_by.mode}) took its place.")
    elif stop.released_at:
        at = words.moment_utc(stop.released_at)
        by = f" by {who(r, release.asked_by)}" if release else ""
        second = f", granted by {who(r, release.granted_by)}" if release and release.granted_by else ""
        why = f", because: “{words.brief(release.reason, 300)}”" if release and release.reason else ""
        held_none = stop.observes or r.of_effects
        left = "" if held_none else " That started nothing: what it stopped stays stopped."
        yield say(f"It was released at {at}{by}{second}{why}.{left}")


# 2 ------------------------------------------------------------------------------------------------------


def what_had_completed(r: ScopeRows) -> Iterator[ScopeClaim]:
    happened = sum(r.effects[state] for state in HAPPENED)
    if happened:
        are = words.count(happened, "effect is", "effects are")
        part = r.effects[Settlement.PARTIAL]
        yield say(f"{are} known to have happened{f', {part} of them partly' if part else ''}.")
    else:
        yield say("No outside effect of these runs is known to have happened.")
    if denied := r.effects[Settlement.NOT_APPLIED]:
        are = words.count(denied, "dispatched effect is", "dispatched effects are")
        yield say(f"{are} known not to have happened.")
    if never := r.effects[Settlement.NOT_STARTED]:
        yield say(f"{words.count(never, 'declared effect')} never started.")
    if over := r.messages[DeliveryState.HANDED_OVER]:
        were = words.count(over, "message was", "messages were")
        yield say(f"{were} handed over. Nothing calls them back.")
    if finished := r.results[Result.FINISHED]:
        had = words.count(finished, "run had", "runs had")
        yield say(f"{had} finished before; no work was left to refuse there.")


# 3 ------------------------------------------------------------------------------------------------------


def what_is_uncertain(r: ScopeRows) -> Iterator[ScopeClaim]:
    claims = [*_unknown(r), *_flying(r), *_unreached(r)]
    yield from claims or [say("No effect of these runs is uncertain.")]
    if accepted := r.effects[Settlement.ACCEPTED_UNKNOWN]:
        yield say(f"{words.count(accepted, 'effect')}: two people accepted that it cannot be determined.")


def _unknown(r: ScopeRows) -> Iterator[ScopeClaim]:
    if number := r.doubt.effects:
        are = words.count(number, "effect is", "effects are")
        since = f", the oldest since {words.moment_utc(r.doubt.oldest)}" if r.doubt.oldest else ""
        text = f"{are} unknown in {runs(r.doubt.runs)}{since}."
        yield say(text, "Unknown does not mean failed.", listed(r, unknown="1"), "Open these runs")
    doubtful = r.messages[DeliveryState.UNKNOWN]
    if doubtful:
        yield say(f"Whether {words.count(doubtful, 'message was', 'messages were')} handed over is unknown.")


def _flying(r: ScopeRows) -> Iterator[ScopeClaim]:
    total, open_ones = r.in_flight.total(), r.in_flight[PermitState.OPEN]
    lost = r.in_flight[PermitState.LOST]
    if open_ones:
        of = words.count(total, "action that was", "actions that were")
        yield say(f"{open_ones} of {of} in flight then may still complete: nobody has reported the end.")
    if lost:
        were = words.count(lost, "action that was", "actions that were")
        yield say(f"{were} in flight then: the worker was lost before it reported an end.")
    if flying := r.effects[Settlement.DISPATCHED]:
        yield say(f"{words.count(flying, 'effect is', 'effects are')} in flight now.")


def _unreached(r: ScopeRows) -> Iterator[ScopeClaim]:
    if pending := r.unreached:
        had = words.count(pending, "run has", "runs have")
        its = "its" if pending == 1 else "their"
        yield say(f"{had} not had {its} turn yet: what was in flight there is still being established.")
    elif not r.stop.fenced_at and not r.stop.observes:
        yield say("What was in flight is still being established: some runs have not had their turn yet.")
    if late := r.states(*LATE):
        yield say(
            f"In {runs(late)} work did not end by the deadline.",
            href=listed(r, status="stopping"),
            link="Open",
        )


# 4 ------------------------------------------------------------------------------------------------------


def will_it_do_more(r: ScopeRows) -> Iterator[ScopeClaim]:
    claims = list(_more(r))
    if not claims:
        yield say("No. No further action is scheduled for these runs because of this stop.")
    yield from claims
    if r.stands and not r.stop.observes:
        yield say("Its gate stays shut, for runs that come later too. Nothing it stopped resumes by itself.")


def _more(r: ScopeRows) -> Iterator[ScopeClaim]:
    if r.unreached or (r.stands and not r.stop.fenced_at and not r.stop.observes):
        yield say("Yes: it goes on through its runs, until each had its turn. A restart carries it on.")
    if r.draining:
        drain = words.count(r.draining, "run still drains", "runs still drain")
        yield say(f"Yes: {drain}: leases and deadlines are watched.")
    if r.doubt.checked:
        at = f", the next at {words.moment_utc(r.doubt.next_check)}" if r.doubt.next_check else ""
        yield say(f"Yes: {words.count(r.doubt.checked, 'unknown effect')} will be looked up again{at}.")
    if r.doubt.effects > r.doubt.checked:
        left = r.doubt.effects - r.doubt.checked
        yield say(f"{words.count(left, 'unknown effect')}: no look-up is planned. A person has to find out.")
    if r.stands and r.stop.ends_at:
        at = words.moment_utc(r.stop.ends_at)
        yield say(f"Yes: it releases itself at {at}, as was decided when it was pressed.")


# 5 ------------------------------------------------------------------------------------------------------


def what_a_person_can_do(r: ScopeRows) -> Iterator[ScopeClaim]:
    claims = [*_decide(r), *_look(r)]
    yield from claims or [say("Nothing is left to do. The reports of the runs are below.")]


def _decide(r: ScopeRows) -> Iterator[ScopeClaim]:
    stop = r.stop
    if stop.observes and r.stands:
        yield say("Enforce it by a press on the same scope, or release it.")
    elif r.stands and stop.fenced_at:
        yield say("Release it, with a reason. That starts nothing; new runs may be admitted then.")
    elif r.stands:
        yield say("Wait until it is fenced; then it can be released.")
    if r.stands and stop.review_at:
        late = ", which has passed" if stop.review_at < r.as_of else ""
        yield say(f"Look at it again by {words.moment_utc(stop.review_at)}{late}.")
    if (paused := r.states(RunStatus.PAUSED)) and not r.of_effects:
        while_shut = " They can be, once it is released." if r.stands else ""
        text = f"{runs(paused)} paused: each is resumed by a decision of its own, or stays.{while_shut}"
        yield say(text, href=listed(r, status="paused"), link="Open them")
    if r.results[Result.NOT_PERMITTED]:
        yield say("Ask an operator of this workspace to stop the runs that were not permitted.")


def _look(r: ScopeRows) -> Iterator[ScopeClaim]:
    if r.doubt.effects:
        yield say("Find out about the unknown effects.", href=listed(r, unknown="1"), link="Open these runs")
    if r.states(*LATE):
        text = "See to the workers that did not end by the deadline, or stop harder."
        yield say(text, href=listed(r, status="stopping"), link="Open these runs")
    if r.reviews:
        query = {"workspace": r.stop.workspace.slug}
        wait = words.count(r.reviews, "review waits", "reviews wait")
        yield say(f"{wait} for people.", href=reverse("reviews", query=query), link="Open reviews")
    if r.stop.mode == Mode.ABANDON and r.effects[Settlement.UNKNOWN]:
        yield say("Nobody is asked about these effects any more: what becomes known comes from outside.")


QUESTIONS: tuple[tuple[str, str, Answer], ...] = (
    ("stopped", "What stopped", what_stopped),
    ("completed", "What had already completed", what_had_completed),
    ("uncertain", "What is uncertain", what_is_uncertain),
    ("more", "Will the system do anything more?", will_it_do_more),
    ("next", "What a person can do next", what_a_person_can_do),
)
