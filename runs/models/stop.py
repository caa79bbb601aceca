"""The stop request: moments set once, each press kept, the frozen list of what was in flight."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.columns import Prose, Told, Words
from runs.store import Now, new_id

from .people import Token, User
from .run import Permit, PermitState, Run, Step
from .scope import Policy, Session, Workspace


class Mode(models.TextChoices):
    """What the stop asks for, mildest first."""

    PAUSE = "pause"
    CANCEL = "cancel"
    ABANDON = "abandon"


class ScopeKind(models.TextChoices):
    """What a stop request is about; a bulk stop is a frozen list of runs. Only scopes with a gate stand."""

    STEP = "step"
    RUN = "run"
    SESSION = "session"
    WORKSPACE = "workspace"
    POLICY = "policy"
    BULK = "bulk"


STANDING = (ScopeKind.SESSION, ScopeKind.WORKSPACE, ScopeKind.POLICY)


class WideStop(models.Model):
    """A stop of all workspaces, asked for by an installation's admin: one press, one stop in each of them.

    `shut_at`: the gate of every workspace was shut. It survives the death of whoever carries it out.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "wid"))
    mode = models.CharField(max_length=8, choices=Mode)
    reason = Words(max_length=40, default="other")
    note = Prose(blank=True)
    deadline_s = models.PositiveIntegerField(default=60)
    actor = models.CharField(max_length=60)
    via = models.CharField(max_length=10)
    address = models.CharField(max_length=60, blank=True)
    key = models.CharField(max_length=255)
    arrived_at = models.DateTimeField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())
    shut_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["actor", "key"], name="wide_stop_once"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="wide_stop_mode"),
        )

    def __str__(self) -> str:
        return self.id


class StopRequest(models.Model):
    """No machine: the stage strip is computed from these moments and from the run.

    `arrived_at`: the press reached this server, by the database's clock, before it waited for any lock; of a
    stop that was carried here, the press that it came from. None where nobody pressed, or nobody kept it.
    `gate_at`: no dispatch whose check begins later can succeed (the acknowledgement).
    `fenced_at`: the list of what was in flight is complete and frozen. `parent_stop`: the stop of the
    parent run from which this one came; `passed_on_at`: every child registered then was reached.

    A stop of a session, workspace or policy stands until it is released: `session` or `policy` names which,
    `review_at` when people look at it again, `ends_at` when it ends by itself. `observes`: its gate stays
    open, and what it would have refused is counted (`WouldRefuse`). `scope_stop`: the stop of a scope, or the
    bulk stop, that this stop of a run is a part of. `selection`: the filter of a bulk stop, as it was shown.
    `runs_n`: how many runs it is about.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "stp"))
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="stops")
    number = models.BigIntegerField()
    scope = models.CharField(max_length=10, default="run")
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="stops")
    run_key = models.CharField(max_length=200)
    mode = models.CharField(max_length=8, choices=Mode)
    requested_mode = Words(max_length=40, blank=True)
    reason = Words(max_length=40, default="other")
    note = Prose(blank=True)
    actor = models.CharField(max_length=60)
    via = models.CharField(max_length=10)
    deadline_s = models.PositiveIntegerField(default=60)
    version_before = models.BigIntegerField(null=True)
    version_after = models.BigIntegerField(null=True)
    finished_before = models.BooleanField(default=False)
    reported_at = models.DateTimeField(null=True)
    arrived_at = models.DateTimeField(null=True)
    recorded_at = models.DateTimeField(db_default=Now())
    gate_at = models.DateTimeField(null=True)
    fenced_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    quiet_at = models.DateTimeField(null=True)
    timed_out_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_because = models.CharField(max_length=40, blank=True)
    superseded_by = models.ForeignKey("self", models.PROTECT, null=True, related_name="+")
    released_at = models.DateTimeField(null=True)
    parent_stop = models.ForeignKey("self", models.PROTECT, null=True, related_name="passed_on")
    passed_on_at = models.DateTimeField(null=True)
    step = models.ForeignKey(Step, models.PROTECT, null=True, related_name="stops")
    session = models.ForeignKey(Session, models.PROTECT, null=True, related_name="stops")
    policy = models.ForeignKey(Policy, models.PROTECT, null=True, related_name="stops")
    scope_stop = models.ForeignKey("self", models.PROTECT, null=True, related_name="run_stops")
    wide = models.ForeignKey(WideStop, models.PROTECT, null=True, related_name="stops")
    observes = models.BooleanField(null=True)
    review_at = models.DateTimeField(null=True)
    selection = Told(null=True)
    runs_n = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["workspace", "number"], name="stop_number_once"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="stop_mode"),
            models.UniqueConstraint(
                fields=["workspace", "run_key"],
                condition=Q(run__isnull=True, scope="run", closed_at__isnull=True),
                name="stop_waits_once",
            ),
        )
        indexes = (
            models.Index(fields=["run", "-id"], name="stop_of_run"),
            models.Index(fields=["gate_at"], name="stop_by_gate"),
            models.Index(fields=["deadline_at"], name="stop_open", condition=Q(closed_at__isnull=True)),
            models.Index(
                fields=["recorded_at"],
                name="stop_to_pass_on",
                condition=Q(run__isnull=False, passed_on_at__isnull=True),
            ),
            models.Index(
                fields=["workspace", "scope"],
                name="stop_standing",
                condition=Q(run__isnull=True, released_at__isnull=True, closed_at__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"#{self.number}"


class Press(models.Model):
    """One press of Stop: who, when, from where, and the answer that it got."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "psh"))
    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="presses")
    at = models.DateTimeField(db_default=Now())
    arrived_at = models.DateTimeField(null=True)
    actor = models.CharField(max_length=60)
    via = models.CharField(max_length=10)
    address = models.CharField(max_length=60, blank=True)
    key = models.CharField(max_length=255)
    mode = models.CharField(max_length=8, choices=Mode)
    requested_mode = Words(max_length=40, blank=True)
    note = Prose(blank=True)
    ignored = Told(default=list)
    answer = models.CharField(max_length=16)
    parent_stop = models.ForeignKey(StopRequest, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["actor", "key", "stop"], name="press_key_once"),)
        indexes = (models.Index(fields=["key", "actor"], name="press_by_key"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.at}"


class InFlight(models.Model):
    """One permit that was OPEN or LOST when the stop fenced its run. Never shortened."""

    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="in_flight")
    permit = models.ForeignKey(Permit, models.PROTECT, related_name="+")
    state_then = models.CharField(max_length=8, choices=PermitState)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["stop", "permit"], name="in_flight_once"),)

    def __str__(self) -> str:
        return self.permit_id


class Result(models.TextChoices):
    """What a stop of a scope, or a bulk stop, came to for one run. PENDING: its turn is still to come."""

    PENDING = "pending"
    RECORDED = "recorded"
    JOINED = "joined"
    FINISHED = "finished"
    NOT_PERMITTED = "not_permitted"
    LISTED = "listed"


class StopPart(models.Model):
    """One run of a scope stop or a bulk stop. `run_stop` carries it there; the run's own report tells of it.

    JOINED: it was stopping already. LISTED: a policy of effects, whose run goes on; what was in flight of
    that kind is in the list of the stop.
    """

    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="parts")
    run = models.ForeignKey(Run, models.PROTECT, related_name="stop_parts")
    result = models.CharField(max_length=13, choices=Result, default=Result.PENDING)
    run_stop = models.ForeignKey(StopRequest, models.PROTECT, null=True, related_name="+")
    at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["stop", "run"], name="stop_part_once"),
            models.CheckConstraint(condition=Q(result__in=Result.values), name="stop_part_result"),
        )
        indexes = (models.Index(fields=["stop", "result", "run"], name="stop_part_by_result"),)

    def __str__(self) -> str:
        return f"{self.run_id} {self.result}"


class WouldRefuse(models.Model):
    """What a stop that only observes would have refused of one run at one boundary.

    Without a run: admissions. Written under the run's lock, so that runs do not wait for each other.
    """

    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="would_refuse")
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="+")
    boundary = models.CharField(max_length=8)
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["stop", "run", "boundary"],
                name="would_refuse_once",
                condition=Q(run__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return f"{self.boundary} x{self.count}"


class Release(models.Model):
    """A decision to release a standing stop, or the wish of one where the rules ask for a second person.

    Granted when `granted_at` is set, at once where one person is enough (`granted_by` is empty then); void
    when the stop was pressed again before.
    """

    stop = models.ForeignKey(StopRequest, models.PROTECT, related_name="releases")
    asked_by = models.CharField(max_length=60)
    asked_at = models.DateTimeField(db_default=Now())
    reason = Prose()
    granted_by = models.CharField(max_length=60, blank=True)
    granted_at = models.DateTimeField(null=True)
    void_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["stop"],
                name="release_open_once",
                condition=Q(granted_at__isnull=True, void_at__isnull=True),
            ),
            models.CheckConstraint(condition=~Q(granted_by=models.F("asked_by")), name="release_two_people"),
        )

    def __str__(self) -> str:
        return f"{self.stop_id} by {self.asked_by}"


class IdempotencyRecord(models.Model):
    """An API call's key, the digest of its request, and the answer that is replayed."""

    owner = models.CharField(max_length=60)
    key = models.CharField(max_length=255)
    request_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    body = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = (models.UniqueConstraint(fields=["owner", "key"], name="idempotency_once"),)
        indexes = (models.Index(fields=["created_at"], name="idempotency_by_age"),)

    def __str__(self) -> str:
        return self.key


__all__ = [
    "STANDING",
    "IdempotencyRecord",
    "InFlight",
    "Mode",
    "Press",
    "Release",
    "Result",
    "ScopeKind",
    "StopPart",
    "StopRequest",
    "Token",
    "User",
    "WideStop",
    "WouldRefuse",
]
