"""Resume: what a paused run may do with each effect, and the decision, which has a reason of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from dashboard import words
from dashboard.pages.dock import was
from dashboard.pages.facts import Facts, name_actors
from dashboard.pages.shell import actor_of, build_shell, signed_in
from dashboard.pages.stages import clock
from effects import resume as resuming
from effects.resume import WAIT, Item, NotResumed, Seen
from runs import access
from runs.models import FINAL, Evidence, Press, Run, RunStatus, StepStatus
from runs.saying import words_in
from runs.wishes import storable

SHOWN, REASON_MAX = 200, 2000
WAITING = (
    (StepStatus.PENDING, "queued step may be claimed", "queued steps may be claimed"),
    (StepStatus.RETRY_WAIT, "retry is due at its time", "retries are due at their time"),
    (
        StepStatus.WAITING_APPROVAL,
        "step goes on waiting for its approval",
        "steps go on waiting for approval",
    ),
)


@dataclass(frozen=True)
class Row:
    """One effect and what a resumed worker may do with its key."""

    item: Item
    word: str
    icon: str
    state: words.Term | None


class ResumePage:
    """What the decision stands on, as of now. `said` is what the last try came to."""

    def __init__(self, run: Run, facts: Facts, reason: str = "", said: Iterable[str] = ()) -> None:
        self.run, self.facts, self.reason, self.said = run, facts, reason, list(said)
        items = resuming.plan(run)
        self.counts = Counter(item.answer for item in items)
        self.total = len(items)
        self.rows = [_row(item) for item in sorted(items, key=lambda item: item.answer != WAIT)[:SHOWN]]
        self.shut = resuming.shut_scope(run)

    @property
    def why_not(self) -> str:
        """Why it can't be resumed now; empty when it can."""
        if self.run.status != RunStatus.PAUSED:
            status = "ended" if self.run.status in FINAL else resuming.ELSEWHERE[self.run.status]
            return resuming.WHY[status]
        if self.shut:
            return resuming.WHY["gate"].format(scope=self.shut)
        return resuming.WHY["must wait"] if self.counts[WAIT] else ""

    @property
    def held(self) -> str:
        """Who holds it, since when."""
        stop = self.facts.stop
        if stop is None or self.run.status != RunStatus.PAUSED:
            return ""
        since = clock(stop.quiet_at or stop.recorded_at)
        return (
            f"Held by {self.facts.who(stop)} since {since} (stop #{stop.number}). {was(self.facts)}".strip()
        )

    @property
    def admissible(self) -> list[str]:
        """What may begin once it is resumed; the resume itself begins nothing."""
        counts = self.facts.step_counts
        told = [words.count(counts[state], one, many) for state, one, many in WAITING if counts[state]]
        return told or ["No step is queued; a worker that attaches may register new ones"]

    @property
    def seen(self) -> dict[str, Any]:
        """What the decision is about; sent with it, so that whatever comes later beats it."""
        stop = self.facts.stop
        presses = Press.objects.filter(stop=stop).count() if stop else 0
        return {"stop": stop.pk if stop else "", "version": self.run.cancel_version, "presses": presses}


def _row(item: Item) -> Row:
    word, icon = words.RESUME[item.answer]
    state = words.DELIVERY if item.id.startswith("dlv") else words.SETTLEMENT
    return Row(item, word, icon, state.get(item.settlement))


@signed_in
def resume_page(request: HttpRequest, run_id: str) -> HttpResponse:
    """/runs/<id>/resume : GET lists what a resume would mean, POST is the decision."""
    run = access.find_run(actor_of(request), run_id, "resume")
    if request.method != "POST":
        return _show(request, run)
    reason = storable(request.POST.get("reason", ""), REASON_MAX)
    if not words_in(reason):
        return _show(request, run, said=["Nothing was resumed. Say why the run may go on."], status=422)
    seen = _seen_in(request)
    done = resuming.resume(actor=actor_of(request), run_id=run_id, reason=reason, seen=seen)
    if not isinstance(done, NotResumed):
        messages.info(request, words.RESUMED.format(version=done.run.cancel_version))
        return redirect("run", run_id)
    if done.reason == "running" and (by := _resumed_by(done.run)):
        messages.info(request, by)
        return redirect("run", run_id)
    said = ["Nothing was resumed.", *what_came(done, seen)]
    return _show(request, done.run, reason, [*said, done.sentence], status=409)


def _show(
    request: HttpRequest, run: Run, reason: str = "", said: Iterable[str] = (), status: int = 200
) -> HttpResponse:
    run = access.find_run(actor_of(request), run.pk, "resume")
    shell = build_shell(request, "runs", run.workspace)
    page = ResumePage(run, Facts(run, shell.now), reason, said)
    told = {"shell": shell, "now": shell.now, "run": run, "page": page, "reason_max": REASON_MAX}
    return render(request, "run/resume.html", told, status=status)


def _seen_in(request: HttpRequest) -> Seen:
    """What the form says that the person saw. Without it nothing is known to be old: it is refused then."""
    sent = request.POST
    return Seen(sent.get("stop", ""), _number(sent.get("version", "")), _number(sent.get("presses", "")))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def _resumed_by(run: Run) -> str:
    """Who resumed it before: somebody else, or the same person by a second click."""
    line = Evidence.objects.filter(stream=run.pk, kind="run.resumed").order_by("-seq").first()
    if line is None or line.current_version != run.cancel_version:
        return ""
    who = words.clean(name_actors([line.actor]).get(line.actor, line.actor))
    return words.RESUMED_BY.format(who=who, at=clock(line.at), version=line.current_version)


def what_came(done: NotResumed, seen: Seen) -> Iterable[str]:
    """What came between the page and the press: another stop, or one more press of the same."""
    stop = done.stop
    if stop is None or not seen.is_old(done.run, stop):
        return
    if stop.pk != seen.stop_id:
        at = f"{_name(stop.actor)}, {clock(stop.recorded_at)}"
        yield f"Since you read the page: stop #{stop.number} ({stop.mode}) by {at}."
        return
    last = Press.objects.filter(stop=stop).order_by("-pk").first()
    if last is not None:
        note = f", saying “{words.brief(last.note)}”" if last.note else ""
        yield f"Since you read the page: {_name(last.actor)} pressed Stop again, {clock(last.at)}{note}."


def _name(actor: str) -> str:
    return words.clean(name_actors([actor]).get(actor, actor))
