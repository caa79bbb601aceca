"""What must hold after every call: each is a function of the rows, the machine and the step before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from effects.close import outcome_of
from effects.models import Approval, Compensation, Delivery, Effect
from runs.machine import Refused
from runs.models import Evidence, InFlight, Permit, Run, Session, Step, StopRequest, Workspace

from .reference import (
    ARROWS,
    COMPENSATION_ARROWS,
    EFFECT_ARROWS,
    FINAL,
    SETTLED,
    outcome,
    reach,
)

if TYPE_CHECKING:
    from .base import Protocol

INCONSEQUENTIAL = {"read", "model_turn"}
DELIVERED = {"HANDED_OVER": "CONFIRMED", "NOT_HANDED_OVER": "NOT_APPLIED"}


broken: list[str] = []  # what ended an example, in this search: also what does not come a second time


class Broken(AssertionError):
    """A promise was broken; the text begins with its number."""


KILLS = (Broken, IntegrityError, Refused)


def said(failed: BaseException) -> str:
    """Which promise was broken; or what refused the write, before one was; or that it crashed."""
    first = (str(failed).splitlines() or [""])[0]
    if isinstance(failed, Broken):
        return first
    names = {IntegrityError: "schema", Refused: "machine of states"}
    return f"{names.get(type(failed), f'crash {type(failed).__name__}')}: {first}"


def keep(holds: object, number: str, said: str, *about: object) -> None:
    if not holds:
        raise Broken(f"{number}: {said} {' '.join(map(str, about))}".strip())


@dataclass
class Rows:
    """One reading of all that there is."""

    runs: dict[str, Any] = field(default_factory=dict)
    steps: list[Any] = field(default_factory=list)
    permits: dict[str, Any] = field(default_factory=dict)
    effects: dict[str, Any] = field(default_factory=dict)
    repairs: dict[str, Any] = field(default_factory=dict)
    deliveries: list[Any] = field(default_factory=list)
    listed: dict[str, set[str]] = field(default_factory=dict)
    stops: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, list[tuple[int, str, str, str]]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)


def read(workspace_id: str) -> Rows:
    rows, mine = Rows(), {"run__workspace": workspace_id}
    rows.runs = {run.pk: run for run in Run.objects.filter(workspace=workspace_id).order_by("pk")}
    rows.steps = list(Step.objects.filter(**mine))
    rows.permits = {one.pk: one for one in Permit.objects.filter(**mine)}
    rows.effects = {one.pk: one for one in Effect.objects.filter(**mine).defer("body", "plan")}
    rows.repairs = {one.pk: one for one in Compensation.objects.filter(**mine).order_by("number")}
    rows.deliveries = list(Delivery.objects.filter(**mine).values_list("run_id", "state"))
    rows.stops = {one.pk: one for one in StopRequest.objects.filter(workspace=workspace_id)}
    listed = defaultdict(set)
    for stop, permit in InFlight.objects.filter(stop__in=list(rows.stops)).values_list(
        "stop_id", "permit_id"
    ):
        listed[stop].add(permit)
    rows.listed = listed
    lines: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
    told = Evidence.objects.filter(stream__in=[*rows.runs, workspace_id]).order_by("stream", "seq")
    line: Any
    for stream, *line in told.values_list("stream", "seq", "kind", "effect_key", "ground"):
        lines[stream].append((line[0], line[1], line[2], line[3]))
    rows.lines = lines
    rows.epochs = {workspace_id: Workspace.objects.values_list("epoch", flat=True).get(pk=workspace_id)}
    rows.epochs |= dict(Session.objects.filter(workspace=workspace_id).values_list("pk", "epoch"))
    return rows


# each promise -------------------------------------------------------------------------------------


def listed_is_frozen(m: Protocol, now: Rows, was: Rows) -> None:
    """I2: a list is complete at the fence, and never changed after it."""
    for pk, before in was.stops.items():
        if before.fenced_at is not None:
            keep(now.listed[pk] == was.listed[pk], "I2", "a list changed after its fence", pk)


def nothing_is_missing(m: Protocol, now: Rows, was: Rows) -> None:
    """I2: what was opened under a version that a stop ended is in its list, or had ended before it."""
    for pk in now.stops.keys() - was.stops.keys():
        stop = now.stops[pk]
        if stop.scope != "run" or stop.fenced_at is None or stop.version_before == stop.version_after:
            continue
        flying = {
            one.pk
            for one in was.permits.values()
            if one.run_id == stop.run_id and one.state in ("OPEN", "LOST")
        }
        keep(flying <= now.listed[pk], "I2", "in flight and not in the list", stop.mode, flying)


def versions_and_arrows(m: Protocol, now: Rows, was: Rows) -> None:
    """I5: versions never fall, only a stop, a resume and a restore give one; only arrows of the table."""
    for pk, before in was.runs.items():
        run = now.runs[pk]
        more = run.cancel_version - before.cancel_version
        keep(more >= 0, "I5", "a version fell", pk)
        keep(more == 0 or pk in m.may_bump, "I5", "a version that nobody asked for", m.last)
        resumed = before.status == "PAUSED" and run.status == "ACTIVE"
        keep(
            not resumed or (m.last == "resume" and more == 1),
            "I5",
            "resumed by itself, or at the old version",
        )
        if resumed:
            continue
        ways = reach(ARROWS, before.status) | ({"PAUSED"} if m.last == "restore" else set())
        keep(run.status in ways, "I5", f"{before.status} → {run.status}", m.last)
        keep(before.status not in FINAL or run.status == before.status, "I11", "a final status moved")


def moves_of_effects(m: Protocol, now: Rows, was: Rows) -> None:
    """I9: only arrows of the table; what leaves UNKNOWN has a line of this very step, with a ground."""
    for pk, before in was.effects.items():
        effect = now.effects[pk]
        if effect.settlement == before.settlement:
            continue
        keep(
            effect.settlement in reach(EFFECT_ARROWS, before.settlement),
            "I9",
            f"{before.settlement} → {effect.settlement}",
        )
        if before.settlement != "UNKNOWN":
            continue
        keep(effect.ground, "I9", "known, and on no ground", effect.key)
        top, kind = len(was.lines[effect.run_id]), f"effect.{effect.settlement.lower()}"
        told = [
            line for line in now.lines[effect.run_id][top:] if line[1:3] == (kind, effect.key) and line[3]
        ]
        keep(told, "I9", "known, and no line of this step says so", kind)


def moves_of_repairs(m: Protocol, now: Rows, was: Rows) -> None:
    """I14: a compensation moves by the arrows of its table."""
    for pk, before in was.repairs.items():
        state = now.repairs[pk].state
        keep(state in reach(COMPENSATION_ARROWS, before.state), "I14", f"{before.state} → {state}")


def words_are_true(m: Protocol, now: Rows, was: Rows) -> None:
    """I10, I9: nothing is told that the provider's ledger contradicts, unless somebody lied or decided so."""
    for effect in now.effects.values():
        key = f"{effect.run_id}/{effect.key}"
        there = m.bank.applied[key] > 0
        if key in m.excused:
            continue
        if effect.settlement in ("NOT_STARTED", "NOT_APPLIED", "DECLARED"):
            keep(not there, "I10", f"told {effect.settlement}, and it happened")
        if effect.settlement in ("CONFIRMED", "PARTIAL"):
            keep(there, "I9", f"told {effect.settlement}, and it did not happen")
    for repair in now.repairs.values():
        if repair.state == "VERIFIED" and repair.pk not in m.excused:
            keep(m.bank.applied[repair.pk], "I18", "told VERIFIED, and it did not happen")


def once(m: Protocol, now: Rows, was: Rows) -> None:
    """I6: one permit at a time, one application of each key, a repair once for its effect."""
    open_ones = [(one.run_id, one.effect_key) for one in now.permits.values() if one.state == "OPEN"]
    keys = [key for key in open_ones if key[1]]
    keep(len(keys) == len(set(keys)), "I6", "two open permits under one key")
    for key, times in m.bank.applied.items():
        keep(times < 2 or key in m.excused, "I6", "applied twice", key)


def rest_is_rest(m: Protocol, now: Rows, was: Rows) -> None:
    """I12: quiet and settled, or it says what it awaits."""
    for run in now.runs.values():
        steps = {step.status for step in now.steps if step.run_id == run.pk}
        opened = any(
            one.state == "OPEN" and one.guard == "ordinary" and one.boundary != "deliver"
            for one in now.permits.values()
            if one.run_id == run.pk
        )
        effects = {one.settlement for one in now.effects.values() if one.run_id == run.pk}
        if run.status in ("CANCELLED", "UNKNOWN", "COMPLETED", "PAUSED"):
            keep(not opened, "I12", f"{run.status} with an open permit")
        if run.status in ("CANCELLED", "UNKNOWN", "COMPLETED"):
            keep(not steps & {"PENDING", "CLAIMED", "RETRY_WAIT"}, "I12", f"{run.status} with open steps")
            keep(not effects & {"DECLARED", "DISPATCHED"}, "I12", f"{run.status} with {effects}")
        moved = pk_moved(was, run)
        if run.status == "CANCELLED" and moved:
            keep(effects <= SETTLED, "I12", f"became CANCELLED with {effects}")


def pk_moved(was: Rows, run: Any) -> bool:
    return run.pk not in was.runs or was.runs[run.pk].status != run.status


def nothing_withheld_happened(m: Protocol, now: Rows, was: Rows) -> None:
    """I10: a step that is told to be withheld sent nothing."""
    held = {step.pk for step in now.steps if step.status == "WITHHELD"}
    for one in now.permits.values():
        if one.step_id in held and one.guard == "ordinary" and one.boundary != "deliver":
            keep(one.state not in ("OPEN", "LOST"), "I10", "withheld, and it may have been sent")


def every_scope_is_fenced(m: Protocol, now: Rows, was: Rows) -> None:
    """I19: once a stop of a scope is fenced, no run of an older epoch is ACTIVE."""
    standing = [one for one in now.stops.values() if one.scope in ("workspace", "session") and one.fenced_at]
    for stop in standing:
        scope = stop.session_id or stop.workspace_id
        for run in now.runs.values():
            mine = run.session_epoch if stop.session_id == run.session_id and stop.session_id else None
            epoch = run.admitted_epoch if stop.scope == "workspace" else mine
            if epoch is not None and stop.released_at is None and stop.superseded_by_id is None:
                keep(
                    run.status != "ACTIVE" or epoch >= now.epochs[scope],
                    "I19",
                    "ACTIVE, from before the fence",
                )


def labels_say_what_rows_say(m: Protocol, now: Rows, was: Rows) -> None:
    """I13: the label is the contract's function of the rows."""
    run = m.pick_of(list(now.runs.values()), m.steps)
    if run is None:
        return
    effects = [one.settlement for one in now.effects.values() if one.run_id == run.pk]
    effects += [DELIVERED.get(state, state) for owner, state in now.deliveries if owner == run.pk]
    newest: dict[str, str] = {}
    for one in now.repairs.values():
        newest[one.effect_id] = one.pk
    repairs = [
        (one.state, newest[one.effect_id] == one.pk) for one in now.repairs.values() if one.run_id == run.pk
    ]
    sent = any(one.op_class not in INCONSEQUENTIAL for one in now.permits.values() if one.run_id == run.pk)
    said, told = outcome_of(run), outcome(run.status, effects, repairs, sent)
    keep(said == told, "I13", f"said {said}, the rows say {told}")


def approvals_are_used_once(m: Protocol, now: Rows, was: Rows) -> None:
    """I14: each compensation that has a permit used approvals for it, and no approval was used twice."""
    sent = [one for one in now.permits.values() if one.guard == "compensate" and one.pk not in was.permits]
    for permit in sent:
        used = Approval.objects.filter(permit=permit.pk, state="CONSUMED").count()
        keep(used >= m.needed, "I14", f"sent with {used} of {m.needed} approvals used up")


def no_gap(m: Protocol, now: Rows, was: Rows) -> None:
    """I26: each stream is numbered without a gap, and nothing of it was taken away."""
    for stream, lines in now.lines.items():
        keep([line[0] for line in lines] == list(range(1, len(lines) + 1)), "I26", "a gap", stream)
        keep(lines[: len(was.lines[stream])] == was.lines[stream], "I26", "a line changed", stream)


ALL = (
    listed_is_frozen,
    nothing_is_missing,
    versions_and_arrows,
    moves_of_effects,
    moves_of_repairs,
    words_are_true,
    once,
    rest_is_rest,
    nothing_withheld_happened,
    every_scope_is_fenced,
    labels_say_what_rows_say,
    approvals_are_used_once,
    no_gap,
)
