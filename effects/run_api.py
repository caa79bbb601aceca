"""The API of runs. It stands in this room because a run's answer carries its outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator

from runs import admission, cursors, receipts, stops
from runs.access import EXECUTOR, Actor, find_run
from runs.admission import Admitted, NewRun
from runs.api import KEYED, MAY_KEY, READ, WRITE, Cursor, Limit
from runs.fields import OptionalKey, plain, said, sized
from runs.guard import Refusal
from runs.idempotency import Reply, once, reply, send
from runs.models import (
    BUSY,
    INCONSEQUENTIAL,
    Evidence,
    Permit,
    PermitState,
    Run,
    RunStatus,
    Step,
    StopRequest,
)
from runs.problems import Problem, not_allowed
from runs.schemas import NewRunIn, ProblemOut
from runs.tokens import actor_of, home_of, spaces_of

from . import delivery_moves, ends
from .close import outcome, repairs_by_run
from .models import Effect, Settlement
from .resume import WAIT, Item, NotResumed, Resumed, Seen, resume
from .schemas import CompleteIn, FailIn, ResumeIn, RunOut, RunsOut, run_out

Words = Annotated[str, sized(200), AfterValidator(plain), said]
NAMED = 50  # how many open permits and steps a refusal to complete names
router = Router(by_alias=True)


@router.post("/runs", response={200: RunOut, 201: RunOut, WRITE: ProblemOut}, openapi_extra=KEYED)
def add_run(request: HttpRequest, body: NewRunIn) -> HttpResponse:
    """Register a run, or attach to the one with this key and the same parameters."""
    actor = actor_of(request)
    _only_its_own(actor, body.key)
    assert actor.token is not None  # only a token writes
    owner = actor.token.created_by
    new = NewRun(**body.model_dump(exclude={"worker"}))

    def admit() -> Admitted | Refusal:
        return admission.admit(
            actor=actor, workspace_id=home_of(actor), new=new, owner=owner, worker=body.worker
        )

    def answer(admitted: Admitted) -> Reply:
        return reply(201 if admitted.created else 200, one(request, admitted.run.pk))

    return once(request, admit, answer)


def _only_its_own(actor: Actor, key: str) -> None:
    """A token of one run attaches to that run, and registers no other."""
    bound = actor.token.run if actor.token and actor.token.run_id else None
    if bound is not None and bound.key != key:
        raise not_allowed()


@router.get("/runs", response={200: RunsOut, READ: ProblemOut})
def list_runs(
    request: HttpRequest,
    status: RunStatus | None = None,
    session: OptionalKey = "",
    q: Words = "",
    has_unknown: bool | None = None,
    silent: bool | None = None,
    parent: OptionalKey = "",
    cursor: Cursor = "",
    limit: Limit = 50,
) -> HttpResponse:
    """The runs that you may see, newest first. `q` is looked for in names and keys; `parent` is an id."""
    rows = _seen_by(actor_of(request))
    if status is not None:
        rows = rows.filter(status=status)
    if session:
        rows = rows.filter(session__key=session)
    if q:
        rows = rows.filter(Q(name__icontains=q) | Q(key__icontains=q))
    if silent is not None:
        rows = rows.filter(receipts.is_silent() if silent else ~receipts.is_silent())
    if parent:
        rows = rows.filter(parent=parent)
    if has_unknown is not None:
        unknown = Exists(Effect.objects.filter(run=OuterRef("pk"), settlement=Settlement.UNKNOWN))
        rows = rows.filter(unknown if has_unknown else ~unknown)
    runs, after = cursors.page(rows, cursor, limit)
    return send(reply(200, cursors.listed(many(request, runs), after)))


def _seen_by(actor: Actor) -> QuerySet[Any, Any]:
    rows = _runs().filter(workspace_id__in=spaces_of(actor))
    if actor.token is not None and actor.token.run_id is not None:
        rows = rows.filter(pk=actor.token.run_id)
    return rows


@router.get("/runs/{id:run_id}", response={200: RunOut, READ: ProblemOut})
def read_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """One run as it stands now."""
    find_run(actor_of(request), run_id)
    return send(reply(200, one(request, run_id)))


@router.post("/runs/{id:run_id}/complete", response={200: RunOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def complete_run(request: HttpRequest, run_id: str, body: CompleteIn) -> HttpResponse:
    """The runtime's word that the work is done. A stop that came first is the answer instead."""

    def complete() -> Run | Refusal:
        try:
            return ends.complete(
                actor=actor_of(request),
                run_id=run_id,
                seen=body.seen_version,
                worker=body.worker,
                summary=body.summary,
            )
        except ends.NotQuiet as error:
            raise _not_quiet(run_id) from error

    return once(request, complete, lambda run: reply(200, one(request, run.pk)), required=False)


def _not_quiet(run_id: str) -> Problem:
    permits = Permit.objects.filter(run=run_id, state=PermitState.OPEN).order_by("pk")[:NAMED]
    steps = Step.objects.filter(run=run_id, status__in=BUSY).order_by("pk")[:NAMED]
    detail = "Report the permits and finish or release the steps named here, then complete the run."
    ours = _only_we_are_at_it(run_id)
    if ours:
        detail = "Allstop itself is sending what is named here. Complete the run again when that is over."
    return Problem(
        "not-quiet",
        detail,
        headers={"Retry-After": "1"} if ours else {},
        permits=[{"id": permit.pk, "effect_key": permit.effect_key} for permit in permits],
        steps=[{"id": step.pk, "key": step.key, "status": step.status} for step in steps],
    )


def _only_we_are_at_it(run_id: str) -> bool:
    """Whether each step that is held is held by our own executor: nobody else can report or finish it."""
    took = Evidence.objects.filter(
        stream=run_id, step_id=OuterRef("pk"), kind__in=("step.claimed", "permit.opened")
    )
    flying = Permit.objects.filter(step=OuterRef("pk"), state=PermitState.OPEN)
    held = Step.objects.filter(Q(status__in=BUSY) | Exists(flying), run=run_id)
    by = Subquery(took.order_by("-seq").values("actor")[:1])
    return all(actor == EXECUTOR.id for actor in held.annotate(by=by).values_list("by", flat=True))


@router.post("/runs/{id:run_id}/resume", response={200: RunOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def resume_run(request: HttpRequest, run_id: str, body: ResumeIn) -> HttpResponse:
    """A decision to go on with a paused run. It starts nothing; a refusal is the list per effect."""

    def decide() -> Resumed | NotResumed:
        seen = Seen(body.stop_id, body.seen_version, body.presses)
        return resume(actor=actor_of(request), run_id=run_id, reason=body.reason, seen=seen)

    def answer(decided: Resumed | NotResumed) -> Reply:
        if isinstance(decided, NotResumed):
            problem = _not_resumed(decided)
            return reply(problem.status, problem.document)
        return reply(200, one(request, decided.run.pk))

    return once(request, decide, answer, required=False)


def _not_resumed(decided: NotResumed) -> Problem:
    name = "nothing-to-resume" if decided.reason in ("running", "stopping", "ended") else "not-resumed"
    return Problem(
        name,
        decided.sentence,
        reason=decided.reason,
        run_status=decided.run.status,
        current_version=decided.run.cancel_version,
        stop_id=decided.stop.pk if decided.stop else None,
        scope=decided.scope or None,
        effects=[vars(item) for item in _in_the_way_first(decided.items)[:NAMED]],
        effects_total=len(decided.items),
    )


def _in_the_way_first(items: list[Item]) -> list[Item]:
    """A list that is cut short still names what must be settled."""
    return sorted(items, key=lambda item: item.answer != WAIT)


@router.post("/runs/{id:run_id}/fail", response={200: RunOut, WRITE: ProblemOut}, openapi_extra=MAY_KEY)
def fail_run(request: HttpRequest, run_id: str, body: FailIn) -> HttpResponse:
    """The runtime's word that the run failed; effects in progress become unknown at once."""

    def fail() -> Run | Refusal:
        return ends.fail(actor=actor_of(request), run_id=run_id, worker=body.worker, summary=body.summary)

    return once(request, fail, lambda run: reply(200, one(request, run.pk)), required=False)


# reading: four queries, whatever the number of runs ------------------------------------------------


def _runs() -> QuerySet[Any, Any]:
    """Runs with their session and the id of the stop that holds them or ended them."""
    newest = StopRequest.objects.filter(stops.not_over(), run=OuterRef("pk")).order_by("-number")
    runs = Run.objects.select_related("session")
    annotated: QuerySet[Any, Any] = runs.annotate(
        newest_stop=Subquery(newest.values("pk")[:1]),
        silent=ExpressionWrapper(receipts.is_silent(), BooleanField()),
    )
    return annotated


def one(request: HttpRequest, run_id: str) -> dict[str, Any]:
    """One run on the wire, read afresh."""
    return many(request, [_runs().get(pk=run_id)])[0]


def many(request: HttpRequest, runs: Sequence[Any]) -> list[dict[str, Any]]:
    """Runs (from `_runs()`) on the wire."""
    found = StopRequest.objects.in_bulk([run.newest_stop for run in runs if run.newest_stop])
    outcomes = _outcomes(runs)
    return [run_out(run, found.get(run.newest_stop), outcomes[run.pk], _url(request, run)) for run in runs]


def _url(request: HttpRequest, run: Run) -> str:
    """Where people see it."""
    return request.build_absolute_uri(f"/runs/{run.pk}/")


def _outcomes(runs: Sequence[Run]) -> dict[str, str]:
    ids = [run.pk for run in runs]
    settlements: dict[str, list[str]] = defaultdict(list)
    effects = Effect.objects.filter(run_id__in=ids).order_by()
    for run_id, settlement in effects.values_list("run_id", "settlement").distinct():
        settlements[run_id].append(settlement)
    permits = Permit.objects.filter(run_id__in=ids).exclude(op_class__in=INCONSEQUENTIAL).order_by()
    sent = set(permits.values_list("run_id", flat=True).distinct())
    messages, repairs = delivery_moves.states_of(ids), repairs_by_run(ids)
    return {
        run.pk: outcome(
            run.status,
            settlements[run.pk],
            repairs[run.pk],
            deliveries=messages[run.pk],
            consequential=run.pk in sent,
        )
        for run in runs
    }
