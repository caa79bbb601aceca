"""What is told of effects at a provider that loses answers, beside what the provider's own ledger holds.

A small sample of `manage.py bench lossy`, with its seed. The controls meet the same faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import lossy
from tests.lossy import DOWN, FORGOTTEN, NOT_YET, ON_LOOK_UPS, ON_SENDS, LossyProvider

pytestmark = [pytest.mark.invariant("I6"), pytest.mark.invariant("I9")]
N, HIGH = 24, 0.4


@pytest.mark.django_db(transaction=True)
def test_of_lost_answers_nothing_false_is_told_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with LossyProvider(tmp_path / "ledger", HIGH, lossy.SEED) as bank:
        came = lossy.allstop(bank, N)
    assert (came.false_no, came.false_yes, came.twice) == (0, 0, 0)
    assert len(came.ages) >= 4, "some were unknown for a while"
    assert came.resent >= 1, "some were sent again, after a look-up that proved absence"
    assert came.known > 0
    assert len(set(came.faults) & set(ON_SENDS)) >= 4, came.faults
    assert len(set(came.faults) & {*ON_LOOK_UPS, DOWN, NOT_YET, FORGOTTEN}) >= 3, came.faults


def test_a_loop_that_sends_again_does_things_twice_or_denies_them(tmp_path: Path) -> None:
    """The control."""
    with LossyProvider(tmp_path / "blind", HIGH, lossy.SEED, keyless=True) as bank:
        assert lossy.loop(bank, 60).twice > 0
    with LossyProvider(tmp_path / "keyed", HIGH, lossy.SEED) as bank:
        assert lossy.loop(bank, 60).false_no > 0


@pytest.mark.django_db(transaction=True)
def test_without_a_settle_window_a_slow_provider_gets_things_twice(tmp_path: Path) -> None:
    """The control of what waits: told that it need not, our executor makes duplicates."""
    came = lossy.slow(tmp_path, 0, n=4)
    assert (came.twice, came.resent) == (4, 4)
