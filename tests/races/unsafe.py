"""Shapes that look right and are not (and a few that are), on the product's tables. The SQL is PostgreSQL's.

They are what the checker must be able to catch: each is a dispatch or a stop that other systems use, or that
the obvious lines of Django compile to. Nothing of this is ever called by the product.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, Q, QuerySet

from effects.models import Approval, Effect, Review
from runs.models import InFlight, Permit, Run, Step, StopRequest, Workspace
from runs.store import after, database_time, new_id
from tests.worlds import a_permit, a_step, number

ACTIVE = "SELECT 1 FROM runs_run WHERE id = %(run)s AND status = 'ACTIVE' AND cancel_version = %(v)s"
GUARD = "EXISTS (" + ACTIVE + "{lock})"
CAS = "UPDATE runs_step SET status = 'DISPATCHED' WHERE id = %(step)s AND status = 'CLAIMED' AND "
PERMIT = """
    INSERT INTO runs_permit (id, run_id, step_id, boundary, guard, op_class, effect_key, attempt,
        seen_version, token, worker, state, permit_until, lease_until, outcome)
    SELECT %(permit)s, %(run)s, {step}, 'dispatch', 'ordinary', 'external_write', '', 1,
        %(v)s, 'token', 'w-1', 'OPEN', clock_timestamp(), clock_timestamp() + interval '60 s', ''"""
STEP = """
    INSERT INTO runs_step (id, run_id, key, name, op_class, cleanup, status, worker, claim_token, attempt,
        ends_with_effect, happened, reported_after_stop, detail)
    SELECT %(new)s, %(run)s, %(new)s, 'pay', 'external_write', false, 'DISPATCHED', 'w-1', 'token', 1,
        true, false, false, ''"""


def arguments(run: Run, step: Step | None) -> dict[str, Any]:
    return {
        "run": run.pk,
        "v": run.cancel_version,
        "step": step.pk if step else None,
        "new": new_id("ste"),
        "permit": new_id("prm"),
    }


def execute(sql: str, values: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


# --- Dispatches: each returns the number of rows that it was told ------------------------------------------


def cas(run: Run, step: Step, lock: str = "", start: str = "") -> int:
    """Compare and set on the step with the run in an EXISTS, then the permit, in one transaction."""
    values = arguments(run, step)
    with transaction.atomic():
        if start:
            execute(start, values)
        rows = execute(CAS + GUARD.format(lock=lock), values)
        if rows:
            execute(PERMIT.format(step="%(step)s"), values)
        return rows


def plain(run: Run, step: Step) -> int:
    return cas(run, step)


def key_share(run: Run, step: Step) -> int:
    return cas(run, step, lock=" FOR KEY SHARE")


def share(run: Run, step: Step) -> int:
    """Right, but a stream of such readers starves the stop."""
    return cas(run, step, lock=" FOR SHARE")


def serializable(run: Run, step: Step) -> int:
    return cas(run, step, start="SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def repeatable_read(run: Run, step: Step) -> int:
    return cas(run, step, start="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def advisory_first(run: Run, step: Step) -> int:
    """Right: the advisory lock is a statement of its own, so the next one has a younger snapshot."""
    return cas(run, step, start="SELECT pg_advisory_xact_lock_shared(hashtext(%(run)s))")


def advisory_inside(run: Run, step: Step) -> int:
    """The advisory lock and the check in one statement: its snapshot is older than the lock."""
    values = arguments(run, step)
    lock = "WITH l AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(hashtext(%(run)s))) "
    set_from = CAS.replace(" WHERE", " FROM l WHERE", 1)
    with transaction.atomic():
        rows = execute(lock + set_from + GUARD.format(lock=""), values)
        if rows:
            execute(PERMIT.format(step="%(step)s"), values)
        return rows


def one_statement(run: Run, step: Step) -> int:
    """As `plain`, in autocommit: there is no open transaction between the check and the permit."""
    moved = "WITH moved AS (" + CAS + GUARD.format(lock="") + " RETURNING id)"
    return execute(moved + PERMIT.format(step="moved.id") + " FROM moved", arguments(run, step))


def two_statements(run: Run, step: Step) -> int:
    """Look, then write, each in a statement of its own; wrong on SQLite too."""
    if not Run.objects.filter(pk=run.pk, status="ACTIVE", cancel_version=run.cancel_version).exists():
        return 0
    moved = Step.dispatch(Step.objects.filter(pk=step.pk), after(60))
    a_permit(step, seen_version=run.cancel_version)
    return moved


def step_locked_only(run: Run, step: Step) -> int:
    """select_for_update(of=("self",)) on a join: it locks the step, and reads the run as it was."""
    values = arguments(run, step)
    with transaction.atomic():
        seen = Step.objects.select_related("run").select_for_update(of=("self",)).get(pk=step.pk)
        if (seen.status, seen.run.status, seen.run.cancel_version) != (
            "CLAIMED",
            "ACTIVE",
            run.cancel_version,
        ):
            return 0
        execute("UPDATE runs_step SET status = 'DISPATCHED' WHERE id = %(step)s", values)
        return execute(PERMIT.format(step="%(step)s"), values)


def inserted(run: Run, step: Step | None = None, lock: str = "") -> int:
    """Register and dispatch in one call: the step is born DISPATCHED, guarded by an EXISTS only."""
    values = arguments(run, None)
    with transaction.atomic():
        rows = execute(STEP + " WHERE " + GUARD.format(lock=lock), values)
        if rows:
            execute(PERMIT.format(step="%(new)s"), values)
        return rows


def inserted_behind_a_lock(run: Run, step: Step | None = None) -> int:
    """Right: the run's row is locked by the sub-select."""
    return inserted(run, lock=" FOR NO KEY UPDATE")


def joined_claim(run: Run, step: Step) -> int:
    """The natural line of Django, which compiles to `id IN (SELECT … JOIN …)`."""
    rows: QuerySet[Step] = QuerySet(model=Step)
    ours = rows.filter(
        pk=step.pk, status="PENDING", run__status="ACTIVE", run__cancel_version=run.cancel_version
    )
    with transaction.atomic():
        return ours.update(status="CLAIMED", claim_token=f"token-{number()}", worker="w")


def joined_dispatch(run: Run, step: Step) -> int:
    rows: QuerySet[Step] = QuerySet(model=Step)
    ours = rows.filter(
        pk=step.pk, status="CLAIMED", run__status="ACTIVE", run__cancel_version=run.cancel_version
    )
    values = arguments(run, step)
    with transaction.atomic():
        moved = ours.update(status="DISPATCHED")
        if moved:
            execute(PERMIT.format(step="%(step)s"), values)
        return moved


# --- Stops -------------------------------------------------------------------------------------------------


@contextmanager
def recorded(run: Run) -> Iterator[Callable[[list[str]], None]]:
    """A transaction with a stop row; the block is given the function that writes its list."""
    with transaction.atomic():
        now = database_time()
        stop = StopRequest(
            workspace_id=run.workspace_id,
            number=number(),
            run=run,
            run_key=run.key,
            mode="cancel",
            actor="user:0",
            via="page",
            version_before=run.cancel_version,
            version_after=run.cancel_version + 1,
            gate_at=now,
            fenced_at=now,
            deadline_at=after(60),
        )

        def write(permits: list[str]) -> None:
            stop.save(force_insert=True)
            InFlight.objects.bulk_create(
                InFlight(stop=stop, permit_id=permit, state_then="OPEN") for permit in permits
            )

        yield write


def end_version(run: Run) -> None:
    changes = {"status": "CANCELLING", "cancel_version": F("cancel_version") + 1}
    assert Run.objects.filter(pk=run.pk, status="ACTIVE").advance(changes)


def in_flight_now(run: Run) -> list[str]:
    return list(Permit.objects.filter(run=run, state="OPEN").values_list("pk", flat=True))


def simple_stop(run: Run, start: str = "") -> None:
    """Bump the version, then list what is in flight: two statements, and no lock but the UPDATE's own."""
    with recorded(run) as write:
        if start:
            execute(start, {"run": run.pk})
        end_version(run)
        write(in_flight_now(run))


def serializable_stop(run: Run) -> None:
    with transaction.atomic():
        execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", {})
        simple_stop(run)


def repeatable_read_stop(run: Run) -> None:
    with transaction.atomic():
        execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", {})
        simple_stop(run)


def advisory_stop(run: Run) -> None:
    with transaction.atomic():
        execute("SELECT pg_advisory_xact_lock(hashtext(%(run)s))", {"run": run.pk})
        simple_stop(run)


def one_statement_stop(run: Run) -> None:
    """The version and the list in one statement: its snapshot is older than its lock."""
    sql = """
        WITH ended AS (UPDATE runs_run SET status = 'CANCELLING', cancel_version = cancel_version + 1
            WHERE id = %s AND status = 'ACTIVE' RETURNING id)
        SELECT p.id FROM runs_permit p JOIN ended ON ended.id = p.run_id WHERE p.state = 'OPEN'"""
    with recorded(run) as write, connection.cursor() as cursor:
        cursor.execute(sql, [run.pk])
        write([row[0] for row in cursor.fetchall()])


# --- Stops of a scope, admissions, fences ------------------------------------------------------------------


def admit_unlocked(under: Run | Workspace, key: str = "unlocked", *, past_the_fence: bool = False) -> None:
    """A run of this workspace, or beside this run, under the gates as this statement sees them.

    `past_the_fence`: committed once a stop of the workspace is fenced, or after a while.
    """
    workspace = under if isinstance(under, Workspace) else under.workspace
    columns = ("session_id", "session_epoch", "labels", "policy_epochs")
    more = {name: getattr(under, name) for name in columns} if isinstance(under, Run) else {}
    fenced = StopRequest.objects.filter(workspace=workspace, scope="workspace", released_at__isnull=True)
    with transaction.atomic():
        epoch = Workspace.objects.get(pk=workspace.pk).epoch
        named = {"key": key, "name": key, "parameters_digest": "", "admitted_epoch": epoch}
        Run.objects.create(workspace=workspace, **named, **more)
        end = time.monotonic() + 3
        while past_the_fence and time.monotonic() < end:
            past_the_fence = not fenced.filter(fenced_at__isnull=False).exists()
            time.sleep(0.01)


SHUT = "UPDATE runs_workspace SET gate = 'SHUT', epoch = epoch + 1 WHERE id = %(ws)s"
STOP_ALL = "UPDATE runs_run SET status = 'CANCELLING', cancel_version = cancel_version + 1"


def gate_and_runs_at_once(workspace_id: str) -> None:
    """One statement: its snapshot of the runs is older than its lock of the workspace."""
    sql = f"WITH g AS ({SHUT} RETURNING id) {STOP_ALL} FROM g WHERE workspace_id = g.id AND status = 'ACTIVE'"
    execute(sql, {"ws": workspace_id})


def gate_and_runs_on_one_snapshot(workspace_id: str) -> None:
    """REPEATABLE READ: the snapshot is fixed by the statement that waits for the lock."""
    with transaction.atomic():
        execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", {})
        execute("SELECT 1 FROM runs_workspace WHERE id = %(ws)s FOR NO KEY UPDATE", {"ws": workspace_id})
        execute(f"{STOP_ALL} WHERE workspace_id = %(ws)s AND status = 'ACTIVE'", {"ws": workspace_id})
        execute(SHUT, {"ws": workspace_id})


def list_then_lock(run: Run) -> None:
    """What is in flight is read first, then the version ends."""
    with recorded(run) as write:
        permits = in_flight_now(run)
        end_version(run)
        write(permits)


def permits_of_kind(kind: str) -> list[str]:
    """What is in flight of a kind, through no run's lock."""
    return list(Permit.objects.filter(kind=kind, state="OPEN").values_list("pk", flat=True))


def _guarded(run: Run, *gates: Q) -> int:
    """A step of the run is dispatched past these conditions and its own version; how many were."""
    mine = Run.objects.filter(*gates, pk=run.pk, status="ACTIVE", cancel_version=run.cancel_version)
    step = a_step(run, "CLAIMED")
    return int(Step.dispatch(Step.objects.filter(Exists(mine), pk=step.pk), after(60)))


def at_its_version(run: Run) -> int:
    """The run's own row is asked, and no gate above."""
    return _guarded(run)


def past_an_open_gate(run: Run, scope: Any) -> int:
    """The gate is asked, and not whether it is the one that the run was admitted through."""
    return _guarded(run, Q(Exists(type(scope)._default_manager.filter(pk=scope.pk, gate="OPEN"))))


# --- Locks in other orders: each (step, another run) --------------------------------------------------------

THEN = "/* then */"
Locker = Callable[[Step, Run], None]
QUICK = "SET LOCAL deadlock_timeout = '20ms'"
STEP_ROW, RUN_ROW = (
    "UPDATE runs_step SET name = name WHERE id = ",
    "UPDATE runs_run SET name = name WHERE id = ",
)


def _in_order(first: str, second: str, **values: str) -> None:
    """In the caller's transaction."""
    execute(QUICK, {})
    execute(first, values)
    execute(f"{THEN} {second}", values)


def run_then_step(step: Step, other: Run) -> None:
    _in_order(f"{RUN_ROW}%(run)s", f"{STEP_ROW}%(step)s", run=step.run_id, step=step.pk)


def step_then_run(step: Step, other: Run) -> None:
    _in_order(f"{STEP_ROW}%(step)s", f"{RUN_ROW}%(run)s", run=step.run_id, step=step.pk)


def share_then_update(step: Step, other: Run) -> None:
    _in_order("SELECT 1 FROM runs_run WHERE id = %(run)s FOR SHARE", f"{RUN_ROW}%(run)s", run=step.run_id)


def first_then_second(step: Step, other: Run) -> None:
    _in_order(f"{RUN_ROW}%(one)s", f"{RUN_ROW}%(two)s", one=step.run_id, two=other.pk)


def second_then_first(step: Step, other: Run) -> None:
    _in_order(f"{RUN_ROW}%(two)s", f"{RUN_ROW}%(one)s", one=step.run_id, two=other.pk)


# --- Decisions --------------------------------------------------------------------------------------------


def revoke(review: Review) -> int:
    """An approval taken back, without the lock of its run."""
    with transaction.atomic():
        return int(Approval.revoke(Approval.objects.filter(review=review)))


def dispatch_if_approved(effect: Effect) -> int:
    """Sent if an approval is there, as far as this statement can see; nothing is used up."""
    given = "EXISTS (SELECT 1 FROM effects_approval a JOIN effects_review r ON r.id = a.review_id"
    given += " WHERE r.effect_id = %(effect)s AND a.state = 'GIVEN')"
    sql = f"UPDATE effects_effect SET settlement = 'DISPATCHED' WHERE id = %(effect)s AND {given}"
    with transaction.atomic():
        return execute(sql, {"effect": effect.pk})


def decide(effect: Effect, settlement: str) -> int:
    """A person's word on what is unknown: read, then written, without the lock of its run."""
    with transaction.atomic():
        read = execute(
            "SELECT 1 FROM effects_effect WHERE id = %(effect)s AND settlement = 'UNKNOWN'",
            {"effect": effect.pk},
        )
        sql = "UPDATE effects_effect SET settlement = %(to)s, ground = 'decided' WHERE id = %(effect)s"
        return execute(sql, {"effect": effect.pk, "to": settlement}) if read else 0
