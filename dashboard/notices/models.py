"""What happened (Notice), who wants to know (Endpoint, Subscription), and how telling them went."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from runs.columns import Prose, Words
from runs.models import Run, User, Workspace
from runs.store import Now, new_id


class Event(models.TextChoices):
    """What a notice can be about. TEST is sent by a button, to one endpoint."""

    STOP_RECORDED = "stop.recorded", "A stop was recorded"
    STOP_TIMED_OUT = "stop.timed_out", "A stop timed out"
    STOP_CLOSED = "stop.closed", "A stop closed"
    UNKNOWN_PAST_DUE = "unknown.past_due", "Something is unknown past its due time"
    REVIEW_WAITING = "review.waiting", "A review waits for a person"
    TEST = "test", "A test"


class Endpoint(models.Model):
    """A URL that wants notices of one workspace, signed.

    `secrets`: those in force, sealed; each with the moment of its end, or null. `failures`: tries in a row
    that failed, since `failing_since`. `busy_until`: a sender holds it; `rest_until`: it failed just now.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "end"))
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="endpoints")
    name = models.CharField(max_length=120)
    url = models.CharField(max_length=2000)
    events = models.JSONField(default=list)
    secrets = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())
    failures = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True)
    busy_until = models.DateTimeField(null=True)
    rest_until = models.DateTimeField(null=True)
    off_at = models.DateTimeField(null=True)
    off_because = Words(max_length=200, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["workspace", "name"], name="endpoint_once"),)

    def __str__(self) -> str:
        return self.name


class Subscription(models.Model):
    """The events of one workspace that a person asked for by e-mail."""

    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    events = models.JSONField(default=list)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "workspace"], name="subscription_once"),)

    def __str__(self) -> str:
        return f"{self.user_id} {self.workspace_id}"


class NoMail(models.Model):
    """A person who wants no e-mail at all, whatever they asked for."""

    user = models.OneToOneField(User, models.CASCADE, primary_key=True, related_name="+")
    since = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.user_id)


class Notice(models.Model):
    """Something that happened. `id` is the webhook-id: the same on every try and at every endpoint.

    `seq` is its line on the stream of the run or workspace; `subject` names what has no line. `body` is
    written once, when it is fanned out.
    """

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "ntc"))
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")
    event = models.CharField(max_length=20, choices=Event)
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="+")
    stop_id = models.CharField(max_length=40, blank=True)
    subject = models.CharField(max_length=40, blank=True)
    subject_at = models.DateTimeField(null=True)
    seq = models.BigIntegerField(null=True)
    at = models.DateTimeField(db_default=Now())
    body = Prose(blank=True)
    told_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["event", "subject", "subject_at"],
                name="notice_once",
                condition=Q(subject_at__isnull=False),
            ),
        )
        indexes = (
            models.Index(fields=["id"], name="notice_untold", condition=Q(told_at__isnull=True)),
            models.Index(fields=["at"], name="notice_by_age"),
        )

    def __str__(self) -> str:
        return f"{self.event} {self.id}"


class PostingState(models.TextChoices):
    """Where one notice stands with one receiver."""

    WAITING = "WAITING"
    SENT = "SENT"
    GIVEN_UP = "GIVEN_UP"


class Posting(models.Model):
    """One notice for one endpoint or person. `tries` since it was queued; `next_at`: the next one."""

    id = models.CharField(max_length=40, primary_key=True, default=partial(new_id, "pst"))
    notice = models.ForeignKey(Notice, models.CASCADE, related_name="postings")
    endpoint = models.ForeignKey(Endpoint, models.CASCADE, null=True, related_name="postings")
    user = models.ForeignKey(User, models.CASCADE, null=True, related_name="+")
    state = models.CharField(max_length=8, choices=PostingState, default=PostingState.WAITING)
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["notice", "endpoint"], name="posting_once"),
            models.UniqueConstraint(fields=["notice", "user"], name="posting_to_person_once"),
            models.CheckConstraint(condition=Q(state__in=PostingState.values), name="posting_state"),
            models.CheckConstraint(
                condition=Q(endpoint__isnull=True) ^ Q(user__isnull=True), name="posting_to_one"
            ),
        )
        indexes = (
            models.Index(fields=["next_at"], name="posting_due", condition=Q(state="WAITING")),
            models.Index(fields=["endpoint", "-id"], name="posting_log"),
        )

    def __str__(self) -> str:
        return self.id


class Attempt(models.Model):
    """One try of a posting, and what came of it: a line of the log. `status` is HTTP's, if one came."""

    posting = models.ForeignKey(Posting, models.CASCADE, related_name="attempts")
    at = models.DateTimeField(db_default=Now())
    took_ms = models.PositiveIntegerField()
    taken = models.BooleanField()
    status = models.PositiveSmallIntegerField(null=True)
    detail = Words(max_length=200)

    class Meta:
        indexes = (models.Index(fields=["posting", "id"], name="attempt_of_posting"),)

    def __str__(self) -> str:
        return self.detail
