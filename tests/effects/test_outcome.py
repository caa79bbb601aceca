"""outcome() over the whole product of its arguments, against a table written by hand.

The table does not climb a ladder as the function does. It sorts what a run did and what was repaired into
four columns each, and says for every cell of every status what the outcome is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement as multisets

import pytest

from dashboard.reports.scope_rows import ScopeRows
from effects import run_api
from effects.close import Repair, outcome, outcome_of, repairs_of
from runs.models import Run, RunStatus, StopPart, StopRequest
from tests.worlds import World, a_compensation, a_permit, a_run, a_step, a_workspace, an_effect, fresh

WORDS = {
    "--": "not ended",
    "ab": "abandoned",
    "av": "awaiting verification",
    "cp": "compensation pending",
    "rp": "resumable pause",
    "au": "ended with an accepted unknown",
    "co": "completed",
    "fa": "failed",
    "pc": "partially completed",
    "ss": "stopped after safe settlement",
    "be": "stopped before effect",
}
# The strongest statement that a set of effects or of compensations makes, strongest first.
EFFECTS = {
    "in doubt": {"DISPATCHED", "UNKNOWN"},
    "accepted": {"ACCEPTED_UNKNOWN"},
    "happened": {"CONFIRMED", "PARTIAL"},
    "nothing": {"DECLARED", "NOT_APPLIED", "NOT_STARTED"},
}
REPAIRS = {
    "in doubt": {"UNKNOWN"},
    "to do": {"PROPOSED", "APPROVED", "DISPATCHED", "FAILED, open"},
    "accepted": {"ACCEPTED_UNKNOWN"},
    "over": {"VERIFIED", "FAILED, decided", "REJECTED", "EXPIRED", "VOID", "NOT_NEEDED"},
}
# Rows: what the effects say, in the order above. Columns: what the compensations say, in the order above.
CELLS = {
    "moving": """
        -- -- -- --
        -- -- -- --
        -- -- -- --
        -- -- -- --""",
    "abandoned": """
        ab ab ab ab
        ab ab ab ab
        ab ab ab ab
        ab ab ab ab""",
    "paused": """
        av av av av
        av cp rp rp
        av cp rp rp
        av cp rp rp""",
    "completed": """
        av av av av
        av cp au au
        av cp au co
        av cp au co""",
    "failed": """
        av av av av
        av cp au au
        av cp au fa
        av cp au fa""",
    "stopped, a consequential permit existed": """
        av av av av
        av cp au au
        av cp au pc
        av cp au ss""",
    "stopped, no such permit": """
        av av av av
        av cp au au
        av cp au pc
        av cp au be""",
}
STATUSES = {
    "ACTIVE": "moving",
    "PAUSING": "moving",
    "CANCELLING": "moving",
    "CANCELLING_TIMEOUT": "moving",
    "PAUSED": "paused",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "ABANDONED": "abandoned",
    "CANCELLED": "stopped",
    "UNKNOWN": "stopped",
}
TABLE = {
    (block, effects, repairs): WORDS[word]
    for block, text in CELLS.items()
    for effects, line in zip(EFFECTS, text.split("\n")[1:], strict=True)
    for repairs, word in zip(REPAIRS, line.split(), strict=True)
}
ALL_EFFECTS = [state for states in EFFECTS.values() for state in sorted(states)]
ALL_REPAIRS = [state for states in REPAIRS.values() for state in sorted(states)]


def strongest(groups: dict[str, set[str]], states: tuple[str, ...]) -> str:
    return next((name for name, group in groups.items() if group.intersection(states)), list(groups)[-1])


def expected(status: str, effects: tuple[str, ...], repairs: tuple[str, ...], consequential: bool) -> str:
    block = STATUSES[status]
    if block == "stopped":
        block += ", a consequential permit existed" if consequential else ", no such permit"
    return TABLE[block, strongest(EFFECTS, effects), strongest(REPAIRS, repairs)]


def repair(state: str) -> Repair:
    word, _, rest = state.partition(", ")
    return Repair(word, open=rest == "open")


def sets_of(states: list[str], most: int) -> list[tuple[str, ...]]:
    return [found for size in range(most + 1) for found in multisets(states, size)]


def product() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...], bool]]:
    """Each status x up to three effects x up to two compensations x a consequential permit or none."""
    for status in STATUSES:
        for effects in sets_of(ALL_EFFECTS, 3):
            for repairs in sets_of(ALL_REPAIRS, 2):
                for consequential in (False, True):
                    yield status, effects, repairs, consequential


@pytest.mark.invariant("I13")
def test_the_outcome_of_every_combination_is_the_one_written_in_the_table() -> None:
    seen: Counter[str] = Counter()
    for status, effects, repairs, consequential in product():
        said = outcome(status, effects, [repair(one) for one in repairs], consequential=consequential)
        assert said == expected(status, effects, repairs, consequential), (status, effects, repairs)
        seen[said] += 1
    assert set(seen) == set(WORDS.values())
    assert seen.total() == 10 * 165 * 91 * 2


def test_the_table_knows_every_status_and_every_state() -> None:
    assert set(STATUSES) == set(RunStatus.values)
    assert len(ALL_EFFECTS) == 8
    assert len(ALL_REPAIRS) == 12
    assert len(TABLE) == len(CELLS) * 16


@pytest.mark.invariant("I13")
def test_neither_order_nor_repetition_changes_an_outcome() -> None:
    for status, effects, repairs, consequential in product():
        if len(effects) == 2 and len(repairs) < 2:
            told = [repair(one) for one in repairs]
            forwards = outcome(status, effects, told, consequential=consequential)
            backwards = outcome(status, [*effects[::-1], *effects], told * 2, consequential=consequential)
            assert forwards == backwards


DELIVERIES = {
    "QUEUED": "nothing",
    "HELD": "nothing",
    "WITHHELD": "nothing",
    "DISPATCHED": "in doubt",
    "UNKNOWN": "in doubt",
    "ACCEPTED_UNKNOWN": "accepted",
    "HANDED_OVER": "happened",
    "NOT_HANDED_OVER": "nothing",
}


@pytest.mark.invariant("I13")
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_delivery_counts_as_an_effect(delivery: str) -> None:
    stands_for = {"in doubt": "UNKNOWN", "accepted": "ACCEPTED_UNKNOWN", "happened": "CONFIRMED"}
    like = stands_for.get(DELIVERIES[delivery], "NOT_APPLIED")
    for status in STATUSES:
        for effects in sets_of(ALL_EFFECTS, 2):
            for consequential in (False, True):
                said = outcome(status, effects, deliveries=[delivery], consequential=consequential)
                assert said == expected(status, (*effects, like), (), consequential)


EXAMPLES = [
    ("CANCELLING", ["UNKNOWN"], [], "not ended"),
    ("ABANDONED", ["UNKNOWN"], [], "abandoned"),
    ("UNKNOWN", ["CONFIRMED", "UNKNOWN"], [], "awaiting verification"),
    ("COMPLETED", ["UNKNOWN"], [], "awaiting verification"),
    ("PAUSED", ["CONFIRMED"], [Repair("UNKNOWN")], "awaiting verification"),
    ("CANCELLED", ["CONFIRMED"], [Repair("FAILED", open=True)], "compensation pending"),
    ("CANCELLED", ["CONFIRMED"], [Repair("FAILED")], "partially completed"),
    ("CANCELLED", ["CONFIRMED"], [Repair("VERIFIED")], "partially completed"),
    ("PAUSED", ["ACCEPTED_UNKNOWN"], [], "resumable pause"),
    ("UNKNOWN", ["ACCEPTED_UNKNOWN"], [], "ended with an accepted unknown"),
    ("COMPLETED", ["NOT_STARTED"], [], "completed"),
    ("FAILED", ["CONFIRMED"], [], "failed"),
    ("CANCELLED", ["NOT_APPLIED"], [], "stopped after safe settlement"),
]


@pytest.mark.parametrize(("status", "effects", "repairs", "word"), EXAMPLES)
def test_an_outcome_says_what_a_person_would_say(
    status: str, effects: list[str], repairs: list[Repair], word: str
) -> None:
    assert outcome(status, effects, repairs, consequential=True) == word


# --- From the rows ----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_reads_and_model_turns_do_not_count_as_effects() -> None:
    run = a_run("CANCELLED")
    for op_class in ("read", "model_turn", "approval_wait"):
        a_permit(a_step(run, "SUCCEEDED", op_class=op_class), "REPORTED")
    assert outcome_of(run) == "stopped before effect"


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "settlement"), [("NOT_SENT", "NOT_STARTED"), ("REPORTED", "NOT_APPLIED")])
def test_a_permit_under_which_nothing_happened_is_a_safe_settlement(state: str, settlement: str) -> None:
    run = a_run("CANCELLED")
    step = a_step(run, "FAILED")
    an_effect(step, settlement, permit=a_permit(step, state))
    assert outcome_of(run) == "stopped after safe settlement"


@pytest.mark.django_db
def test_an_intent_that_was_only_declared_is_no_permit() -> None:
    run = a_run("CANCELLED")
    an_effect(a_step(run, "WITHHELD"), "NOT_STARTED")
    assert outcome_of(run) == "stopped before effect"


@pytest.mark.django_db
def test_only_the_effects_of_the_run_itself_count() -> None:
    an_effect(a_step(a_run("CANCELLED"), "UNKNOWN"), "UNKNOWN")
    run = a_run("CANCELLED")
    an_effect(a_step(run, "SUCCEEDED"), "CONFIRMED")
    assert outcome_of(run) == "partially completed"


@pytest.mark.django_db
def test_the_outcome_follows_the_rows_from_the_dispatch_to_the_late_report() -> None:
    world = World()
    run = world.run()
    opened = world.opened(run)
    assert outcome_of(fresh(run)) == "not ended"
    world.stop(run)
    assert outcome_of(fresh(run)) == "not ended"
    world.report(opened, "unknown")
    assert outcome_of(fresh(run)) == "awaiting verification"
    world.report(opened, "applied")
    assert (fresh(run).status, outcome_of(fresh(run))) == ("CANCELLED", "partially completed")


# The compensations of one confirmed charge, oldest first, and the outcome of its cancelled, its completed and
# its paused run.
CP, PC, AU, AV = WORDS["cp"], WORDS["pc"], WORDS["au"], WORDS["av"]
CHAINS = [
    ((), PC, "completed", "resumable pause"),
    (("PROPOSED",), CP, CP, CP),
    (("APPROVED",), CP, CP, CP),
    (("DISPATCHED",), CP, CP, CP),
    (("VERIFIED",), PC, "completed", "resumable pause"),
    (("REJECTED",), PC, "completed", "resumable pause"),
    (("EXPIRED",), PC, "completed", "resumable pause"),
    (("VOID",), PC, "completed", "resumable pause"),
    (("NOT_NEEDED",), PC, "completed", "resumable pause"),
    (("UNKNOWN",), AV, AV, AV),
    (("ACCEPTED_UNKNOWN",), AU, AU, "resumable pause"),
    (("FAILED",), CP, CP, CP),
    (("FAILED", "FAILED"), CP, CP, CP),
    (("FAILED", "NOT_NEEDED"), PC, "completed", "resumable pause"),
    (("FAILED", "VERIFIED"), PC, "completed", "resumable pause"),
    (("FAILED", "VOID"), PC, "completed", "resumable pause"),
    (("FAILED", "PROPOSED"), CP, CP, CP),
    (("REJECTED", "FAILED"), CP, CP, CP),
]


@pytest.mark.django_db
@pytest.mark.invariant("I13")
def test_the_compensations_of_a_run_count_and_every_list_says_the_same() -> None:
    workspace = a_workspace()
    said: dict[str, tuple[str, str]] = {}
    for chain, *outcomes in CHAINS:
        for status, word in zip(("CANCELLED", "COMPLETED", "PAUSED"), outcomes, strict=True):
            run = a_run(status, workspace)
            step = a_step(run, "SUCCEEDED")
            effect = an_effect(step, "CONFIRMED", permit=a_permit(step, "REPORTED"))
            for number, state in enumerate(chain, 1):
                a_compensation(effect, state, number=number)
            assert outcome_of(run) == word, (status, chain)
            said[run.pk] = (status, word)
    runs = list(Run.objects.filter(pk__in=said))
    assert run_api._outcomes(runs) == {pk: word for pk, (_, word) in said.items()}
    stop = StopRequest.objects.create(workspace=workspace, number=1, scope="bulk", run_key="", mode="cancel")
    StopPart.objects.bulk_create(StopPart(stop=stop, run=run, result="finished") for run in runs)
    assert ScopeRows(stop).endings == Counter(said.values())


@pytest.mark.django_db
def test_a_failure_is_open_by_effect_and_only_of_its_own_run() -> None:
    run = a_run("CANCELLED")
    first, second = (an_effect(a_step(run, "SUCCEEDED"), "CONFIRMED") for _ in range(2))
    a_compensation(first, "FAILED")
    a_compensation(second, "VERIFIED")
    a_compensation(None, "FAILED")
    assert sorted(repairs_of(run), key=str) == [Repair("FAILED", open=True), Repair("VERIFIED", open=True)]
