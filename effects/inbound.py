"""Webhooks in: what an account of a provider says of its own accord. Evidence, never a command.

Genuine is what is signed with a secret of the account in force, within five minutes of the database's clock,
once. It settles effects and compensations of that account's kinds in its own workspace, by their key; what
comes before its effect waits for a day. It starts, resumes and approves nothing, in whatever status a run is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.db import IntegrityError
from django.db.models import Exists, OuterRef, Q, QuerySet

from runs import redaction
from runs.access import SYSTEM
from runs.evidence import canonical, digest
from runs.guard import lock_run
from runs.models import OperationClass, PermitState, Run
from runs.rules import redacting
from runs.store import Now, after, database_time, verb

from . import jobs, reconcile, repair, repair_moves, signing
from .compensation import UNDECIDED
from .models import Account, Compensation, CompensationState, Effect, Ground, Inbound, Kind, Settlement
from .reading import DID_NOT, HAPPENED, PARTLY, Reading, read
from .reconcile import CANT_TELL, PARTIAL, PRESENT, REFUSED, Answer, Asked

WAITS_S = 86_400.0
MAY_HAVE_MET_S = 300.0  # a dispatch that was committing beside it has not seen it
KEPT = timedelta(days=30)
MOST_MATCHES = 20  # runs of one workspace that use the same key
TAKEN, KNOWN = "taken", "known"
ID = re.compile(r"acc_[0-9a-f]{32}")
NOBODYS = signing.new_secret()  # compared with where there is none
SAYS = {HAPPENED: PRESENT, PARTLY: PARTIAL, DID_NOT: REFUSED}
ON = (jobs.ACCEPTED, jobs.RUNNING, jobs.COMPLETED)  # a job of which one hears this was taken
OWN_WORDS = {state: [state] for state in jobs.STATES}


class NotGenuine(ValueError):
    """No account of this id, no secret that fits, or not of now: which of them is not said."""


@dataclass(frozen=True)
class Message:
    """A webhook as it came: three headers and the raw bytes."""

    id: str
    sent_at: str
    signature: str
    body: bytes


# genuine? -------------------------------------------------------------------------------------------


def receive(account_id: str, message: Message) -> str:
    """Take a webhook: `taken`, or `known` for a replay, which changes nothing. Raises NotGenuine.

    Nothing is written, and no lock is taken, before it is known to be genuine.
    """
    asked = account_id if ID.fullmatch(account_id) else ""  # else no database could be asked for it
    account, now = Account.objects.filter(pk=asked).first(), database_time()
    if not _is_genuine(account, message, now) or account is None:
        raise NotGenuine
    with redacting(account.workspace_id):
        reading, kept = read(message.body, account.reads)
    message = replace(message, id=redaction.text(message.id)[:200])
    try:
        return _take(account.pk, message, reading, kept)
    except IntegrityError:  # the same message, at the same moment
        if Inbound.objects.filter(account_id=account.pk, message_id=message.id).exists():
            return KNOWN
        raise


def _is_genuine(account: Account | None, message: Message, now: Any) -> bool:
    """An account that is not there costs as much as one whose secrets do not fit."""
    named = 0 < len(message.id) <= 200 and message.id.isascii() and message.id.isprintable()
    kept = account.secrets if account is not None else _nobody()
    try:
        secrets = signing.in_force(kept, now)
    except signing.Unreadable:
        secrets, account = [NOBODYS], None
    ours = signing.fits(secrets, message.id, message.sent_at, message.signature, message.body, now)
    return ours and named and account is not None


@cache
def _nobody() -> signing.Kept:
    return signing.first()[0]


# take -----------------------------------------------------------------------------------------------


@verb
def _take(account_id: str, message: Message, reading: Reading, kept: Any) -> str:
    """Keep it, and let it settle what it settles, in one transaction."""
    account = Account.objects.filter(pk=account_id).first()
    if account is None:
        raise NotGenuine
    if Inbound.objects.filter(account=account, message_id=message.id).exists():
        return KNOWN
    row = Inbound.objects.create(
        account=account,
        message_id=message.id,
        effect_key=reading.key,
        verdict=reading.verdict,
        body=canonical({"read": asdict(reading), "kept": kept}),
        digest=digest(message.body),
        sent_at=_moment(message.sent_at),
        became="waiting" if reading.says_something else "unread",
        expires_at=after(WAITS_S),
    )
    if reading.says_something:
        row.refresh_from_db()
        _apply(row, account, reading, _matches(account, reading.key))
    return TAKEN


def _moment(sent_at: str) -> datetime:
    return datetime.fromtimestamp(int(sent_at), UTC)


Matter = Effect | Compensation


def _matches(account: Account, key: str) -> list[Matter]:
    """Effects of this account's kinds under this key, and the compensation that has it, which is its id: no
    effect takes its place. In the order in which their runs are locked.
    """
    rows = Effect.objects.filter(_of(account), key=key).order_by("run_id", "pk")
    found: list[Matter] = list(rows.only("pk", "run_id")[:MOST_MATCHES])
    found += Compensation.objects.filter(_of(account), pk=key).only("pk", "run_id")
    return sorted(found, key=lambda one: (one.run_id, one.pk))


def _of(account: Account) -> Q:
    kinds = Kind.objects.filter(workspace_id=account.workspace_id, account=account.name)
    return Q(kind__in=kinds, run__workspace_id=account.workspace_id)


def _apply(row: Inbound, account: Account, reading: Reading, found: Sequence[Matter]) -> None:
    """Let each that is ready hear it. A refusal that may speak of several calls speaks of none."""
    if len(found) > 1 and reading.verdict == DID_NOT:
        reading = replace(reading, verdict="")
    hear = _Hearing(row, account, reading)
    became = {hear.one(matter) for matter in found} - {""}
    told: dict[str, Any] = {"subject_id": found[0].pk} if found else {}
    if became:
        told |= {"became": "settled" if "settled" in became else "recorded", "applied_at": Now()}
    if told:
        Inbound.objects.filter(pk=row.pk).update(**told)


@dataclass(frozen=True)
class _Hearing:
    """One message, for each that it may speak of."""

    row: Inbound
    account: Account
    reading: Reading

    def one(self, matter: Matter) -> str:
        """settled · recorded · "" (it is not ready for it)."""
        run = lock_run(matter.run_id)
        return (
            self._repair(run, matter.pk) if isinstance(matter, Compensation) else self._effect(run, matter.pk)
        )

    def _effect(self, run: Run, effect_id: str) -> str:
        effect: Effect = Effect.objects.select_related("kind").get(pk=effect_id)
        if not _is_ready(effect, self.reading.verdict):
            return ""
        was = (effect.settlement, effect.job_state)
        state = _job_state(effect, self.account, self.reading)
        started = state in ON and effect.op_class == OperationClass.EXTERNAL_JOB
        verdict = self.reading.verdict or (HAPPENED if started else "")
        asked = Asked(self.row.received_at, effect.attempt)
        reconcile.hear(run, effect, self._answer(verdict, state), SYSTEM, Ground.WEBHOOK, asked)
        return "recorded" if was == (effect.settlement, effect.job_state) else "settled"

    def _repair(self, run: Run, compensation_id: str) -> str:
        rows = Compensation.objects.select_related("effect", "kind", "run")
        compensation: Compensation = rows.get(pk=compensation_id)
        if not _may_be_heard(compensation, self.reading.verdict):
            return ""
        was, asked = compensation.state, Asked(self.row.received_at, compensation.attempt)
        now = repair.hear(
            run, compensation, self._answer(self.reading.verdict), SYSTEM, Ground.WEBHOOK, asked
        )
        return "recorded" if was == now else "settled"

    def _answer(self, verdict: str, job: str = "") -> Answer:
        row, reading = self.row, self.reading
        said = reading.word if reading.verdict else reading.job
        return Answer(
            SAYS.get(verdict, CANT_TELL),
            f"{self.account.name} says: {said}"[:300],
            {
                "account": self.account.name,
                "message": row.message_id,
                "digest": row.digest,
                "received_at": row.received_at.isoformat(),
                "fields": reading.fields,
            },
            items=reading.items if verdict == PARTLY else None,
            provider_ref=reading.ref,
            count=reading.count,
            job=job,
        )


def _is_ready(effect: Effect, verdict: str) -> bool:
    """Before its dispatch nothing can have happened; while its holder is at work nothing can be over."""
    if effect.settlement == Settlement.DISPATCHED:
        return verdict != DID_NOT
    return bool(effect.settlement != Settlement.DECLARED)


def _may_be_heard(compensation: Compensation, verdict: str) -> bool:
    """The same of a compensation."""
    if compensation.state in UNDECIDED:
        return False
    return verdict != DID_NOT or not repair_moves.is_in_flight(compensation)


def _job_state(effect: Effect, account: Account, reading: Reading) -> str:
    rules = account.reads.get("jobs") or (effect.kind.lookup.get("job") if effect.kind else None) or OWN_WORDS
    return jobs.state_in(reading.job, rules)


# what waits -----------------------------------------------------------------------------------------


def to_apply(limit: int = 200) -> list[str]:
    """Waiting ones that may settle something now: their effect is ready, or came at the same moment."""
    ours = {
        "kind__account": OuterRef("account__name"),
        "kind__workspace_id": OuterRef("account__workspace_id"),
    }
    # its kind may have another account by now
    mine = Effect.objects.filter(pk=OuterRef("subject_id"), **ours)
    over = mine.exclude(settlement__in=(Settlement.DECLARED, Settlement.DISPATCHED))
    under_way = Q(Exists(mine.filter(settlement=Settlement.DISPATCHED))) & ~Q(verdict=DID_NOT)
    called = Q(permit__state=PermitState.REPORTED) | ~Q(state=CompensationState.DISPATCHED)
    repairs = Compensation.objects.filter(called, pk=OuterRef("subject_id"), **ours)
    repairs = repairs.exclude(state__in=UNDECIDED)
    waiting = Inbound.objects.filter(became="waiting", expires_at__gt=Now())
    known = waiting.exclude(subject_id="").filter(Q(Exists(over)) | under_way | Q(Exists(repairs)))
    beside = Effect.objects.filter(key=OuterRef("effect_key"), **ours)
    beside = beside.exclude(settlement=Settlement.DECLARED)
    new = waiting.filter(Exists(beside), subject_id="", expires_at__gt=after(WAITS_S - MAY_HAVE_MET_S))
    found = [*known.order_by("pk").values_list("pk", flat=True)[:limit]]
    return [*found, *new.order_by("pk").values_list("pk", flat=True)[: limit - len(found)]]


def of_effect(effect_id: str) -> list[str]:
    """Ids of what waits for this effect, oldest first."""
    rows = Inbound.objects.filter(subject_id=effect_id, became="waiting").order_by("pk")
    return list(rows.values_list("pk", flat=True)[:100])


@verb
def apply_waiting(inbound_id: str) -> str:
    """Let a waiting one settle what it settles; what became of it, "" where nothing waits."""
    waiting = Inbound.objects.select_related("account").filter(pk=inbound_id, became="waiting")
    row = waiting.first()
    found = _matches(row.account, row.effect_key) if row else []
    for effect in found:
        lock_run(effect.run_id)
    row = waiting.first()  # another may have taken it before we had the locks
    if row is None:
        return ""
    _apply(row, row.account, Reading(**json.loads(row.body)["read"]), found)
    return str(Inbound.objects.values_list("became", flat=True).get(pk=inbound_id))


def over(limit: int = 1_000) -> list[str]:
    """Ids of accounts with webhooks that wait no longer, or that are kept no longer."""
    ended = Inbound.objects.filter(became="waiting", expires_at__lte=Now())
    found = {*ended.values_list("account_id", flat=True)[:limit]}
    return sorted(found | {*_old(Inbound.objects.all()).values_list("account_id", flat=True)[:limit]})


def _old(rows: QuerySet[Inbound]) -> QuerySet[Inbound]:
    first = int((database_time() - KEPT).timestamp() * 1000)  # ids begin with their moment
    return rows.filter(pk__lt=f"inb_{first:012x}").exclude(became="waiting")


def forget(account_id: str, limit: int = 1_000) -> int:
    """What nothing claimed in a day waits no longer; what is older than KEPT is gone. How many in all."""
    mine = Inbound.objects.filter(account_id=account_id)
    ended = mine.filter(became="waiting", expires_at__lte=Now()).values_list("pk", flat=True)
    expired = mine.filter(pk__in=list(ended[:limit])).update(became="expired")
    gone, _ = mine.filter(pk__in=list(_old(mine).values_list("pk", flat=True)[:limit])).delete()
    return expired + gone
