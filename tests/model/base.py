"""The ground of the machine: one team for a whole search, a savepoint for each example, and the clock."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from django.db import connection, transaction
from django.db.models import DateTimeField, F, Model
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from effects.drain import drain_run
from effects.intents import plan_bytes
from effects.models import Account, Approval, Compensation, Delivery, Effect, Kind, Resolution, Review
from runs import access, policies, rules
from runs.access import Actor
from runs.models import Membership, Permit, Policy, Press, Role, Run, Session, Step, StopRequest, User
from runs.policies import Match
from runs.rules import CompensationRule, Rules
from runs.triggers import Rule, create, drop
from tests.effects.hooking import Teller, an_account
from tests.worlds import World, a_kind, a_person

from . import promises
from .outside import Bank
from .promises import Broken, Rows, keep
from .reference import AT_REST, FINAL, Call, RunRef, Yes

CHARGE, TRANSFER, REFUND = "bank.charge", "bank.transfer", "bank.refund"
PLAN = plan_bytes(kind=REFUND, title="Refund", body='{"charge": "{key}", "amount": 100}')
WINDOW_S, PERMIT_S, DECIDE_S = 3_600, 10, 7_200
STEPS_S = (11, 61, 61, 7_300, 90_000)
SCENES = (
    *(
        "",
        "opened",
        "looked",
        "late",
        "lost",
        "long",
        "forgotten",
        "stepped",
        "shut",
        "paused",
        "resumed",
        "stale",
        "stopped",
    ),
    *("waiting", "done", "proposed", "approved", "approved", "sent", "message"),
)
LONG_AGO = timedelta(days=400)
STAYS = {"asked_at", "closed_at", "in_force_at"}  # a trigger keeps these
T = TypeVar("T")
# What a clock moves; of a stop only what is no moment of evidence, which no clock moves.
TIMED: tuple[type[Model], ...] = (
    *(Permit, Step, Effect, Compensation, Delivery, Review, Approval, Press, Resolution),
)


# As it is in force, but for `expires_at`, which nobody changes there.
APPROVALS = Rule(
    "approval_ends_once",
    "effects_approval",
    "UPDATE",
    "OLD.state <> 'GIVEN' OR NEW.person_id <> OLD.person_id OR NEW.review_id <> OLD.review_id"
    " OR NEW.digest <> OLD.digest",
    "an approval ends once, and is never changed",
)


def block() -> Any:
    """A savepoint in which verbs may be durable, as in the transaction of a test."""
    made: Any = transaction.atomic()
    made._from_testcase = True
    return made


def let_clocks_move_approvals() -> None:
    """In the transaction of a test: the trigger lets the end of an approval that is given come nearer."""
    with connection.cursor() as cursor:
        for statement in (*drop(APPROVALS, connection.vendor), *create(APPROVALS, connection.vendor)):
            cursor.execute(statement)


def let_searches_take_their_time() -> None:
    """In the transaction of a test: on a busy machine a search thinks for longer than a request may idle."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


@dataclass
class Team:
    """The people, kinds and scopes that every example begins with."""

    world: World
    teller: Teller
    people: dict[str, Actor]
    gold: Policy
    charges: Policy

    @classmethod
    def make(cls) -> Team:
        let_clocks_move_approvals()
        let_searches_take_their_time()
        world = World()
        eve = access.person(a_person("eve", world.workspace, Role.ADMIN))
        account, secret = an_account(world.workspace)
        for name in (CHARGE, TRANSFER):
            a_kind(world.workspace, name, lookup={"url": "x"}, settle_window_s=WINDOW_S, account="bank")
        url = "https://bank.example"
        called = {"send": {"url": f"{url}/refunds"}, "lookup": {"url": f"{url}/refunds?key={{key}}"}}
        a_kind(world.workspace, REFUND, provider="http", settle_window_s=WINDOW_S, account="bank", **called)
        for model in (Kind, Account):  # as they are since long ago
            names = [field.name for field in model._meta.fields if isinstance(field, DateTimeField)]
            model._default_manager.update(**{name: F(name) - LONG_AGO for name in names})
        by: dict[str, Any] = {"actor": world.alice, "workspace_id": world.workspace.pk}
        gold = policies.create_policy(**by, name="gold", match=Match(labels={"tier": "gold"}))
        charges = policies.create_policy(**by, name="charges", match=Match(kinds=(CHARGE,)))
        people = {"alice": world.alice, "bob": world.bob, "carol": world.carol, "eve": eve}
        return cls(world, Teller(account, secret), people, gold, charges)


class Protocol(RuleBasedStateMachine):
    """What every rule may use. `team` is set before a search; `seen` counts what occurred."""

    team: ClassVar[Team]
    scenes: ClassVar[Sequence[str]] = SCENES
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        fences=st.booleans(),
        dedupes=st.booleans(),
        needed=st.sampled_from([1, 1, 2]),
        first=st.sampled_from(["", "gold", "session", "both"]),
        scene=st.integers(0, 9_999),
    )
    def begin(self, fences: bool, dedupes: bool, needed: int, first: str, scene: int) -> None:
        self._savepoint()
        self.world, self.bank = self.team.world, Bank(fences=fences, dedupes=dedupes)
        self.needed, self.now_s, self.steps, self.last = needed, 0.0, 0, "begin"
        self.refs: dict[str, RunRef] = {}
        self.calls: list[Call] = []
        self.claims: list[Step] = []
        self.asks: list[tuple[str, Any, Any, Any]] = []
        self.shut: set[str] = set()
        self.standing: dict[str, str] = {}
        self.halts: set[str] = set()
        self.excused: set[str] = set()
        self.yes: dict[str, list[Yes]] = {}
        self.presses: list[tuple[str, str, str, str, str]] = []
        self.may_bump: set[str] = set()
        self.roles = dict.fromkeys(("bob", "carol", "eve"), True)
        self.waiting: set[str] = set()
        workspace = self.world.workspace.pk
        Kind.objects.filter(workspace=workspace).update(key_fencing=fences)
        refund = CompensationRule(kind=REFUND, approvals=needed, after_a_stop=True, expires_s=DECIDE_S)
        rules.change_rules(
            actor=access.SET_UP,
            workspace_id=workspace,
            version=rules.standing(workspace).version,
            rules=Rules(compensations=(refund,)),
        )
        self.rows = promises.read(workspace)
        self.start_with(first, self.scenes[scene % len(self.scenes)])
        self.promises_hold()

    def start_with(self, first: str, scene: str) -> None:
        """The first run; and what has happened before the rules begin (scenes.py)."""

    def _savepoint(self) -> None:
        """All of an example is taken back at its end: no row of one is in the way of the next."""
        self._block = block()
        self._block.__enter__()

    def teardown(self) -> None:
        if not hasattr(self, "_block"):
            return
        failed = sys.exc_info()[1]
        try:
            if failed is not None:
                promises.broken.append(promises.said(failed))
            elif hasattr(self, "rows"):
                self.everything_comes_to_rest()
        finally:
            transaction.set_rollback(True)
            self._block.__exit__(None, None, None)

    def everything_comes_to_rest(self) -> None:
        """I30: whoever died, what was stopped rests once every lease is over."""
        self.calls.clear()
        self.move_clock(90_000)
        for _ in range(2):
            for pk in self.refs:
                drain_run(pk)
        statuses = set(Run.objects.filter(pk__in=self.refs).values_list("status", flat=True))
        keep(not statuses & {"CANCELLING", "CANCELLING_TIMEOUT", "PAUSING"}, "I30", "it hangs", statuses)
        self.bank.arrive()

    # --- small things ---------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        Protocol.seen[what] += 1

    @staticmethod
    def pick_of(rows: Sequence[T], n: int) -> T | None:
        return rows[n % len(rows)] if rows else None

    def run_of(self, n: int) -> Any:
        pk = self.pick_of(list(self.refs), n)
        return Run.objects.get(pk=pk)

    def name_of(self, actor: Actor) -> str:
        return next((name for name, who in self.team.people.items() if who.id == actor.id), "")

    def bumps(self, *run_ids: str) -> None:
        """These runs, and no others, may get one more version by this call."""
        self.may_bump |= set(run_ids)

    def move_clock(self, seconds: float) -> None:
        """Time passes, by rows: each moment of them is so much longer ago."""
        self.now_s += seconds
        for model in TIMED:
            names = [
                field.name
                for field in model._meta.fields
                if isinstance(field, DateTimeField) and field.name not in STAYS
            ]
            moved: Any = {name: F(name) - timedelta(seconds=seconds) for name in names}
            rows = model._default_manager.all()
            (rows.filter(state="GIVEN") if model is Approval else rows).update(**moved)
        StopRequest.objects.update(deadline_at=F("deadline_at") - timedelta(seconds=seconds))
        moved_asks = []
        for subject, kind, answer, asked in self.asks:
            earlier = asked.at - timedelta(seconds=seconds)
            moved_asks.append((subject, kind, answer, type(asked)(earlier, asked.attempt)))
        self.asks = moved_asks
        self.bank.pass_time(seconds)

    # --- what the contract says of this moment --------------------------------------------------------------

    def may_start(self, run_id: str, kind: str = "", *, queued: bool = False) -> bool:
        """Whether ordinary work may begin; `queued`: a message, which the end of its run does not stop."""
        ref = self.refs[run_id]
        if ref.scopes & self.shut or (kind == CHARGE and "charges" in self.shut):
            return False
        return ref.goes_on or (queued and ref.ended and not ref.stopped_after_end)

    def is_halted(self, run_id: str) -> bool:
        scopes = self.refs[run_id].scopes | {"charges"}
        return bool(scopes & self.halts)

    def status_of(self, run_id: str) -> str:
        return str(Run.objects.values_list("status", flat=True).get(pk=run_id))

    def rests(self, run_id: str) -> bool:
        return self.status_of(run_id) in AT_REST

    def is_final(self, run_id: str) -> bool:
        return self.status_of(run_id) in FINAL

    def counting(self, subject: str, shown: tuple[Any, ...], run_id: str, barred: set[str]) -> set[str]:
        """The people whose approval counts now, by what they said and were shown."""
        mine = [one for one in self.yes.get(subject, []) if one.until_s > self.now_s and one.shown == shown]
        never = barred | self.refs[run_id].stoppers | {self.refs[run_id].owner}
        return {one.person for one in mine if one.person not in never and self.roles[one.person]}

    def set_role(self, name: str, on: bool) -> None:
        user = self.team.people[name].user
        assert user is not None
        usual = Role.ADMIN if name == "eve" else Role.REVIEWER
        Membership.objects.filter(user=user).update(role=usual if on else Role.VIEWER)
        self.roles[name] = on

    # --- after each call ------------------------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        if not hasattr(self, "rows"):
            return
        was, now = self.rows, promises.read(self.world.workspace.pk)
        self.steps += 1
        for promise in promises.ALL:
            promise(self, now, was)
        self.rows, self.may_bump, self.last = now, set(), ""


__all__ = ["Broken", "Protocol", "Rows", "Session", "Team", "User"]
