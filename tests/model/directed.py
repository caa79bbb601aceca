"""For each guard a test that was written for it: chosen by reading, then run with that guard gone.

`python -m pytest -p tests.model.directed <the tests>` runs each of them so, and keeps in directed.tsv
whether it failed, as it must.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

LINES = Path(__file__).parent / "directed.tsv"
GATE, RETRIES = "tests/runs/test_gate.py", "tests/effects/test_retries.py"
RELEASES, SCOPES, PRESSES = (
    "tests/runs/test_releases.py",
    "tests/runs/test_scopes.py",
    "tests/runs/test_presses.py",
)
POLICIES, STEPS, STOPS = (
    "tests/runs/test_policies.py",
    "tests/runs/test_step_stops.py",
    "tests/runs/test_stops.py",
)
DELIVERIES, LOOK, KEYS = (
    "tests/effects/test_deliveries.py",
    "tests/runs/test_look.py",
    "tests/runs/test_known_keys.py",
)
WAITING, RESUME, DRAIN = (
    "tests/runs/test_waiting_stops.py",
    "tests/runs/test_resume.py",
    "tests/runs/test_drain.py",
)
LATE, RECONCILE, RESOLVE = (
    "tests/effects/test_late.py",
    "tests/effects/test_reconcile.py",
    "tests/effects/test_resolve.py",
)
AGAINST, APPROVALS = "tests/effects/test_contradictions.py", "tests/effects/test_approvals.py"
REPAIR, COMPENSATE = "tests/effects/test_repair.py", "tests/effects/test_compensate.py"
REVIEWS = "tests/effects/test_compensation_reviews.py"

A_DISPATCH = f"{GATE}::test_each_guard_refuses_a_dispatch_while_all_others_are_open"
A_LOOK = f"{GATE}::test_each_guard_shuts_the_second_look"
ABSENCE = f"{RECONCILE}::test_nothing_found_is_proof_only_when_nothing_can_come_any_more"
A_LEASE = f"{DRAIN}::test_a_lost_lease_leaves_permit_effect_and_step_unknown_and_never_confirmed"
A_KEY = f"{KEYS}::test_a_known_key_is_dispatched_skipped_or_must_wait"
ALONE = f"{APPROVALS}::test_each_guard_holds_alone"
BETWEEN = f"{REPAIR}::test_what_came_between_the_approval_and_the_dispatch_refuses_it"
VOIDS = f"{COMPENSATE}::test_a_contradiction_of_its_effect_voids_it"

BY_HAND: dict[str, str] = {
    **dict.fromkeys(("no status", "no version", "no gate", "no scope", "no epoch"), A_DISPATCH),
    "not fenced": f"{RELEASES}::test_a_release_waits_until_every_run_was_reached",
    "no policy": f"{POLICIES}::test_a_policy_of_a_kind_withholds_that_and_leaves_its_runs_active",
    "no step": (
        f"{STEPS}::test_every_boundary_refuses_its_holder_by_name_of_the_stop_and_lets_other_steps_begin"
    ),
    "messages pass": f"{DELIVERIES}::test_a_message_of_a_finished_run_is_not_handed_over_behind_a_shut_gate",
    "retries pass": f"{GATE}::test_each_guard_refuses_a_claim_a_registration_and_a_retry",
    "no second look": A_LOOK,
    "a look at the run": A_LOOK,
    "no end of a permit": f"{LOOK}::test_a_permit_expires_by_the_clock_of_the_database",
    "settled is sent": A_KEY,
    "doubt is sent": A_KEY,
    "a press twice": f"{PRESSES}::test_the_same_key_gets_the_same_answer_and_no_second_press",
    "lost ones unlisted": f"{STOPS}::test_the_list_holds_exactly_the_open_and_the_lost_permits_of_the_run",
    "no fan-out": f"{SCOPES}::test_every_run_from_before_is_reached_and_none_beside_the_scope",
    "a waiting stop": f"{WAITING}::test_a_run_whose_stop_was_waiting_is_born_stopping_and_starts_nothing",
    "no new version": f"{RESUME}::test_what_was_seen_and_is_still_so_is_resumed",
    "resumed in doubt": f"{REPAIR}::test_a_resume_waits_for_a_compensation_that_is_in_doubt",
    "resumed when shut": (
        f"{RESUME}::test_a_shut_scope_is_named_and_a_release_lets_the_resume_take_the_epochs_of_now"
    ),
    "an old decision": (
        f"{RESUME}::test_a_resume_since_and_a_second_pause_beat_the_decision_by_the_version_alone"
    ),
    "leases for ever": A_LEASE,
    "closed and open": f"{DRAIN}::test_a_run_waits_for_each_permit_and_is_cancelled_by_the_last_report",
    "closed in doubt": (
        f"{DRAIN}::test_a_quiet_run_with_an_unknown_effect_rests_in_unknown_until_evidence_comes"
    ),
    "a stranger": f"{PRESSES}::test_a_viewer_is_told_so_and_an_outsider_learns_nothing",
    **dict.fromkeys(("absent is proof", "no window", "lost holders", "forgotten keys"), ABSENCE),
    "timeout is done": f"{LATE}::test_a_report_settles_the_effect_the_permit_and_the_step",
    "lost is done": A_LEASE,
    "lost is not": A_LEASE,
    "no line": f"{RECONCILE}::test_unknown_is_left_only_with_a_line_that_says_why",
    "late is nothing": f"{LATE}::test_a_lost_worker_that_comes_back_settles_its_effect_late",
    "no contradiction": f"{AGAINST}::test_what_a_later_answer_makes_of_a_settled_effect",
    "no evidence": f"{RESOLVE}::test_a_text_that_says_nothing_is_refused",
    "one's own word": f"{RESOLVE}::test_on_ones_own_run_a_word_alone_is_no_evidence",
    "the same person": f"{RESOLVE}::test_nobody_agrees_with_themselves_nor_about_their_own_run",
    "self-approval": f"{APPROVALS}::test_owner_proposer_and_stopper_may_not_approve_though_they_are_admins",
    "any role": f"{APPROVALS}::test_a_reviewer_who_lost_the_role_does_not_count_at_the_dispatch",
    "no expiry": ALONE,
    "used when over": ALONE,
    "no expiry, used when over": (
        f"{APPROVALS}::test_a_review_whose_time_is_over_starts_nothing_whoever_comes_first"
    ),
    "an edit keeps": f"{COMPENSATE}::test_an_edit_voids_every_yes_and_asks_for_another_digest",
    "no digest": f"{REVIEWS}::test_what_is_not_as_it_was_approved_is_not_sent",
    "an edit keeps, no digest": (f"{REVIEWS}::test_the_first_version_approved_and_the_second_sent_is_no_way"),
    "any digest": f"{APPROVALS}::test_a_yes_names_the_digest_that_was_shown",
    "used twice": f"{REVIEWS}::test_an_approval_is_used_once_and_by_this_dispatch_alone",
    "no halt": BETWEEN,
    "its original": BETWEEN,
    "not voided": VOIDS,
    "its original, not voided": VOIDS,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once for each guard that names it."""
    mine = [name for name, test in BY_HAND.items() if metafunc.definition.nodeid == test]
    if mine:
        metafunc.fixturenames.append("missing")
        metafunc.parametrize("missing", mine)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """The test without its guard; what was made before it was made with it."""
    from .mutants import ALL, gone

    name = str(pyfuncitem.callspec.params["missing"])
    with gone(ALL[name]):
        try:
            result = yield
        except pytest.skip.Exception:
            raise
        except BaseException as failed:
            note(name, "failed", type(failed).__name__)
            raise
    note(name, "passed", "")
    return result


def note(name: str, became: str, how: str) -> None:
    with LINES.open("a") as file:
        file.write(f"{name}\t{became}\t{how}\n")


def seen() -> dict[str, bool]:
    """By mutant: whether the test failed, in one of its cases, when the guard was gone."""
    told: dict[str, bool] = {}
    for line in LINES.read_text().splitlines() if LINES.exists() else ():
        name, became, _ = line.split("\t")
        told[name] = told.get(name, False) or became == "failed"
    return told
