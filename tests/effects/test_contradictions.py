"""Later evidence against what is settled: what stays, what is in doubt again, and what falls with it.

The tables are written by hand from the contract: equal or stronger ground contradicts; grounds,
weakest first: decided · reported · looked up · webhook · inspected. A person's decision never
outranks a provider's fact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dashboard import reports
from effects import reconcile, resolve
from effects.models import Approval, Compensation, Delivery, Effect
from effects.models import Report as ReportRow
from effects.reconcile import Answer, Asked
from effects.resolve import Resolved
from runs.guard import Opened
from runs.models import Evidence, Permit
from tests.effects.compensations import a_charge, allow, approve, brought_to, charged, kinds, proposed
from tests.effects.hooking import Teller, an_account
from tests.effects.unknowns import again, now, recorded, said, say, settled
from tests.worlds import World, a_kind, a_run, fresh, in_seconds, kinds_of

pytestmark = pytest.mark.django_db

FINAL = ("CANCELLED", "COMPLETED", "FAILED", "ABANDONED")
STAYS, DOUBT = "stays", "contradicted"
# On what the settlement stands → what a later answer of each source that says otherwise makes of it.
OTHERWISE: dict[str, dict[str, str]] = {
    "decided": {"report": DOUBT, "look-up": DOUBT, "webhook": DOUBT, "inspection": DOUBT},
    "reported": {"report": DOUBT, "look-up": DOUBT, "webhook": DOUBT, "inspection": DOUBT},
    "looked up": {"report": STAYS, "look-up": DOUBT, "webhook": DOUBT, "inspection": DOUBT},
    "webhook": {"report": STAYS, "look-up": STAYS, "webhook": DOUBT, "inspection": DOUBT},
    "inspected": {"report": STAYS, "look-up": STAYS, "webhook": STAYS, "inspection": DOUBT},
}
SOURCES = ("report", "look-up", "webhook", "inspection")
SAYS = ("happened", "partly", "did not happen")
AGREES = {
    ("CONFIRMED", "happened"),
    ("PARTIAL", "partly"),
    ("NOT_APPLIED", "did not happen"),
}
# What one attempt was reported to have done, the report of another does not take back.
OF_AN_ATTEMPT = {("reported", "report", "CONFIRMED"), ("reported", "report", "PARTIAL")}
REPORTS = {"happened": "applied", "partly": "partial", "did not happen": "not_applied"}
ANSWERS = {"happened": "present", "partly": "partial", "did not happen": "absent"}
# On what stands what a person decided, once such a source says the same.
BEARS_OUT = {"report": "reported", "look-up": "looked up", "webhook": "webhook", "inspection": "inspected"}
HEARD = {
    "report": "permit.reported_late",
    "look-up": "effect.looked_up",
    "webhook": "webhook.received",
    "inspection": "effect.looked_up",
}
HOOKS = {"happened": "succeeded", "partly": "in part", "did not happen": "failed"}


class Teacher:
    """Each source in turn says something of an effect; it may be looked up, and has an account."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bank = Teller(*an_account(world.workspace))
        lookup = {"url": "https://bank.example/{key}"}
        self.kind = a_kind(
            world.workspace, account="bank", lookup=lookup, updated_at=in_seconds(-10_000), settle_window_s=1
        )

    def effect(self, stands: str, ground: str, **fields: Any) -> Any:
        return settled(self.world, stands, ground, kind=self.kind, **fields)

    def say(self, source: str, row: Any, says: str) -> None:
        {"report": self._report, "look-up": self._look, "webhook": self._hook, "inspection": self._inspect}[
            source
        ](row, says)

    def _report(self, row: Any, says: str) -> None:
        """Its holder, who was lost, comes back."""
        Permit.objects.filter(pk=row.permit_id).advance({"state": "LOST"})
        permit = Permit.objects.get(pk=row.permit_id)
        assert self.world.report(Opened(permit, permit.step), REPORTS[says]).late

    def _look(self, row: Any, says: str) -> None:
        reconcile.apply_answer(row.pk, Answer(ANSWERS[says]))

    def _inspect(self, row: Any, says: str) -> None:
        reconcile.apply_answer(row.pk, Answer(ANSWERS[says]), ground="inspected")

    def _hook(self, row: Any, says: str) -> None:
        assert self.bank.tell(row.key, HOOKS[says]) in ("settled", "recorded")


def expected(stands: str, ground: str, source: str, says: str) -> str:
    if (stands, says) in AGREES or (ground, source, stands) in OF_AN_ATTEMPT:
        return STAYS
    return OTHERWISE[ground][source]


# --- Effects ----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I9")
@pytest.mark.invariant("I11")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ground", OTHERWISE)
def test_what_a_later_answer_makes_of_a_settled_effect(world: World, ground: str, source: str) -> None:
    teacher = Teacher(world)
    for stands in ("CONFIRMED", "PARTIAL", "NOT_APPLIED"):
        for says in SAYS:
            row = teacher.effect(stands, ground, key=f"{stands}:{says}")
            teacher.say(source, row, says)
            became, cell = again(row), (stands, ground, source, says)
            stays = expected(*cell) == STAYS
            assert became.settlement == (stands if stays else "UNKNOWN"), cell
            borne_out = ground == "decided" and (stands, says) in AGREES
            on = BEARS_OUT[source] if borne_out else ground
            assert (became.contradicted, became.ground) == (not stays, on), cell
            lines = kinds_of(row.run)
            assert HEARD[source] in lines, "what was said is kept, whatever it changes"
            assert ("effect.unknown" in lines) is not stays, cell
            assert fresh(row.run).status == ("CANCELLED" if stays else "UNKNOWN"), cell


# On what it stands → what a second person who says otherwise makes of it, alone or with a third's yes.
BY_PEOPLE = {
    "decided": "settled anew",
    "reported": DOUBT,
    "looked up": DOUBT,
    "webhook": DOUBT,
    "inspected": DOUBT,
}
VERDICTS = {"happened": "CONFIRMED", "partly happened": "PARTIAL", "did not happen": "NOT_APPLIED"}


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("ground", BY_PEOPLE)
def test_what_a_persons_word_makes_of_a_settled_effect(world: World, ground: str) -> None:
    for stands in VERDICTS.values():
        for verdict, becomes in VERDICTS.items():
            row, cell = settled(world, stands, ground), (stands, ground, verdict)
            answer = say(row, world.bob, verdict, correct=True)
            if becomes == stands:
                assert (said(answer), again(row).contradicted) == ("same", False), cell
                continue
            assert isinstance(answer, Resolved), cell
            anew = BY_PEOPLE[ground] == "settled anew"
            assert (answer.waits, now(row)) == (not anew, becomes if anew else stands), cell
            if not anew:
                resolve.agree(actor=world.carol, resolution_id=answer.resolution.pk)
            became = again(row)
            assert became.settlement == (becomes if anew else "UNKNOWN"), cell
            assert (became.contradicted, became.ground) == (True, ground), cell


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("source", SOURCES)
def test_nobody_alone_corrects_what_a_person_decided_and_another_source_bears_out(
    world: World, source: str
) -> None:
    teacher = Teacher(world)
    for stands, says in AGREES:
        row = teacher.effect(stands, "decided", key=f"{stands}:{says}")
        teacher.say(source, row, says)
        [line] = Evidence.objects.filter(stream=row.run_id, kind=f"effect.{stands.lower()}")
        assert line.ground == BEARS_OUT[source]
        Permit.objects.filter(pk=row.permit_id).update(ended_at=in_seconds(-600))
        otherwise = "did not happen" if stands == "CONFIRMED" else "happened"
        answer = say(row, world.bob, otherwise, correct=True)
        assert isinstance(answer, Resolved)
        assert (answer.waits, now(row)) == (True, stands), "the control is the decided row above"
        assert said(resolve.agree(actor=world.carol, resolution_id=answer.resolution.pk)) == "UNKNOWN"


@pytest.mark.invariant("I9")
def test_what_was_never_started_and_is_found_all_the_same_is_in_doubt(world: World) -> None:
    """No call of it is known, so that only what says that it is there can speak against it."""
    teacher = Teacher(world)
    for says, becomes in (("happened", "UNKNOWN"), ("partly", "UNKNOWN"), ("did not happen", "NOT_STARTED")):
        row = teacher.effect("NOT_STARTED", "", key=f"never:{says}")
        teacher.say("look-up", row, says)
        assert now(row) == becomes, says


# When it was asked, against the settlement → what it says → what becomes of a look-up's settlement.
ORDER = [
    # stands, ground, asked before it was settled, says
    ("CONFIRMED", "looked up", True, "did not happen", STAYS),
    ("CONFIRMED", "looked up", False, "did not happen", DOUBT),
    ("CONFIRMED", "decided", True, "did not happen", DOUBT),
    ("NOT_APPLIED", "looked up", True, "happened", DOUBT),
    ("NOT_APPLIED", "looked up", False, "happened", DOUBT),
]


@pytest.mark.invariant("I11")
@pytest.mark.parametrize(("stands", "ground", "before", "says", "becomes"), ORDER)
def test_absence_speaks_only_of_what_came_before_it_and_presence_of_all(
    world: World, stands: str, ground: str, before: bool, says: str, becomes: str
) -> None:
    row = Teacher(world).effect(stands, ground)
    asked = Asked(in_seconds(-90 if before else 0), row.attempt)
    reconcile.apply_answer(row.pk, Answer(ANSWERS[says]), asked=asked)
    assert now(row) == (stands if becomes == STAYS else "UNKNOWN")


# --- Deliveries: a late report and a person's word are all that can speak of a message ------------------

# stands, ground, the late report → what becomes of it
MESSAGES = {
    ("HANDED_OVER", "decided", "applied"): STAYS,
    ("HANDED_OVER", "decided", "not_applied"): DOUBT,
    ("HANDED_OVER", "reported", "applied"): STAYS,
    ("HANDED_OVER", "reported", "not_applied"): STAYS,  # of another attempt, as above
    ("NOT_HANDED_OVER", "decided", "applied"): DOUBT,
    ("NOT_HANDED_OVER", "decided", "not_applied"): STAYS,
    ("NOT_HANDED_OVER", "reported", "applied"): DOUBT,
    ("NOT_HANDED_OVER", "reported", "not_applied"): STAYS,
}


@pytest.mark.invariant("I9")
@pytest.mark.invariant("I11")
@pytest.mark.parametrize(("stands", "ground", "word"), MESSAGES)
def test_what_a_late_report_makes_of_a_message(world: World, stands: str, ground: str, word: str) -> None:
    row = settled(world, stands, ground, "delivery", permit="LOST", run=a_run("COMPLETED", world.workspace))
    permit = Permit.objects.get(pk=row.permit_id)
    assert world.report(Opened(permit, permit.step), word).late
    stays = MESSAGES[stands, ground, word] == STAYS
    assert now(row) == (stands if stays else "UNKNOWN")
    borne_out = stays and ground == "decided"
    assert again(row).ground == ("reported" if borne_out else ground)
    assert ("delivery.unknown" in kinds_of(row.run)) is not stays
    assert again(row).late is not stays, "its run had ended"
    assert "permit.reported_late" in kinds_of(row.run)
    assert fresh(row.run).status == "COMPLETED"
    if not stays:
        line = Evidence.objects.get(stream=row.run_id, kind="delivery.unknown")
        assert line.ground == "reported", "each ground is shown"


@pytest.mark.parametrize("status", [*FINAL, "ACTIVE", "PAUSED"])
def test_people_who_contradict_what_is_said_of_a_message_are_late_where_its_run_has_ended(
    world: World, status: str
) -> None:
    row = settled(world, "HANDED_OVER", "reported", "delivery", run=a_run(status, world.workspace))
    made = recorded(row, world.bob, "did not happen", correct=True)
    assert said(resolve.agree(actor=world.carol, resolution_id=made.pk)) == "UNKNOWN"
    became = again(row)
    assert (became.late, fresh(became.run).status) == (status in FINAL, status)


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("ground", ["decided", "reported"])
@pytest.mark.parametrize("stands", ["HANDED_OVER", "NOT_HANDED_OVER"])
def test_what_a_persons_word_makes_of_a_message(world: World, stands: str, ground: str) -> None:
    row = settled(world, stands, ground, "delivery")
    same, otherwise = (
        ("happened", "did not happen") if stands == "HANDED_OVER" else ("did not happen", "happened")
    )
    assert said(say(row, world.bob, same, correct=True)) == "same"
    made = recorded(row, world.bob, otherwise, correct=True)
    if ground == "decided":
        assert now(row) == {"happened": "HANDED_OVER", "did not happen": "NOT_HANDED_OVER"}[otherwise]
        return
    assert now(row) == stands
    assert said(resolve.agree(actor=world.carol, resolution_id=made.pk)) == "UNKNOWN"


# --- What follows -------------------------------------------------------------------------------------------


@pytest.mark.invariant("I11")
@pytest.mark.parametrize("status", [*FINAL, "ACTIVE", "PAUSED"])
def test_a_contradiction_moves_no_run_and_is_late_where_the_run_has_ended(world: World, status: str) -> None:
    row = Teacher(world).effect(
        "NOT_APPLIED", "looked up", run=a_run(status, world.workspace, cancel_version=3)
    )
    reconcile.apply_answer(row.pk, Answer("present"), ground="webhook")
    run, became = fresh(row.run), again(row)
    assert (became.settlement, became.late) == ("UNKNOWN", status in FINAL)
    assert (run.status, run.cancel_version) == (status, 3)
    assert (became.next_check_at is None) is (status == "ABANDONED"), "where we gave up, nobody asks"


Doubting = Callable[[World, Effect], Any]


def by_webhook(world: World, effect: Effect) -> None:
    """As the provider would say it; of a kind that may be looked up."""
    reconcile.apply_answer(effect.pk, Answer("partial", items=["one of two"]), ground="webhook")


def by_two_people(world: World, effect: Effect) -> None:
    made = recorded(effect, world.alice, "partly happened", correct=True)
    resolve.agree(actor=world.bob, resolution_id=made.pk)


def settled_before(effect: Effect) -> None:
    Effect.objects.filter(pk=effect.pk).update(settled_at=in_seconds(-60))


@pytest.mark.parametrize("doubting", [by_webhook, by_two_people])
def test_approvals_of_what_is_in_doubt_fall_and_others_stay(world: World, doubting: Doubting) -> None:
    kinds(world)
    allow(world)
    run = world.run()
    mine, other = charged(world, run), charged(world, run, key="charge:8")
    brought_to(world, run, "COMPLETED")
    both = [proposed(fresh(one), world.alice) for one in (mine, other)]
    for one in both:
        approve(one, world.bob)
    settled_before(mine)
    assert [fresh(one).state for one in both] == ["APPROVED", "APPROVED"], "the situation"
    doubting(world, fresh(mine))
    assert fresh(mine).settlement == "UNKNOWN"
    given = [Approval.objects.get(review__subject_id=one.pk).state for one in both]
    assert [fresh(one).state for one in both] == ["VOID", "APPROVED"]
    assert given == ["VOID", "GIVEN"]


def test_an_answer_that_agrees_leaves_approvals_as_they_are(world: World) -> None:
    """The control: the same look-up, and nothing new in it."""
    mine = a_charge(world)
    one = proposed(mine, world.alice)
    approve(one, world.bob)
    settled_before(mine)
    reconcile.apply_answer(mine.pk, Answer("present"), ground="webhook")
    assert (fresh(mine).settlement, fresh(mine).contradicted) == ("CONFIRMED", False)
    assert Approval.objects.get().state == "GIVEN"
    assert Compensation.objects.get().state == "APPROVED"


# --- Reports -----------------------------------------------------------------------------------------------


@pytest.mark.invariant("I11")
@pytest.mark.invariant("I13")
@pytest.mark.parametrize("doubting", [by_webhook, by_two_people])
def test_a_new_version_tells_of_the_contradiction_as_a_late_report_and_the_old_one_stays(
    world: World, doubting: Doubting
) -> None:
    effect = a_charge(world)
    settled_before(effect)
    first = reports.issue(effect.run_id)
    assert first is not None
    assert first.outcome == "completed"
    assert reports.read(effect.run_id)["late"]["total"] == 0
    kept = (first.digest, first.body)
    doubting(world, fresh(effect))
    second = reports.issue(effect.run_id)
    assert second is not None
    assert (second.version, second.outcome) == (2, "awaiting verification")
    late = reports.read(effect.run_id)["late"]
    assert (late["total"], [row["effect_key"] for row in late["rows"]]) == (1, ["charge:7"])
    assert "after the run had ended" in late["rows"][0]["says"]
    assert "status unchanged" in late["rows"][0]["says"]
    line = Evidence.objects.get(stream=effect.run_id, seq=late["rows"][0]["line"])
    assert line.kind == "effect.unknown"
    old = ReportRow.objects.get(pk=first.pk)
    assert (old.digest, old.body) == kept


def test_what_was_contradicted_before_the_end_is_no_late_report(world: World) -> None:
    """The control: the same contradiction, while its run was still at work."""
    effect = a_charge(world, "PAUSED")
    settled_before(effect)
    by_webhook(world, fresh(effect))
    assert fresh(effect).contradicted
    world.stop(fresh(effect.run), mode="abandon")
    assert fresh(effect.run).status == "ABANDONED"
    reports.issue(effect.run_id)
    assert reports.read(effect.run_id)["late"]["total"] == 0


def test_a_late_report_that_contradicts_is_told_once(world: World) -> None:
    """Its own line says it already."""
    run = world.run()
    opened = world.opened(run)
    Permit.objects.filter(pk=opened.permit.pk).update(lease_until=in_seconds(-1))
    world.stop(run, mode="abandon")
    effect = Effect.objects.get()
    recorded(effect, world.alice, "cannot be determined")
    Effect.objects.filter(pk=effect.pk).advance({"settlement": "NOT_APPLIED", "ground": "decided"})
    world.report(opened, "applied")
    assert (now(effect), Delivery.objects.count()) == ("UNKNOWN", 0)
    reports.issue(run.pk)
    assert reports.read(run.pk)["late"]["total"] == 1
