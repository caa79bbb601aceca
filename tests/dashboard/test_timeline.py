"""The timeline: every mark at its place, and words only where they have room."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta

import pytest

from dashboard.pages.axis import EDGE, NARROW, WIDE, WIDER, StopLine, beside, shorten, width
from effects.models import Effect
from runs.evidence import Line, record
from runs.models import Refusal, Run, Step
from runs.store import database_time
from tests.dashboard.scenes import browser
from tests.worlds import World

TEXTS = ["declined", "refused 12 times", "ch_3PqWmm0aWWWWMMMM119", "界" * 26, "no answer"]
PLACES = [(0, 0), (0, 100), (3, 30), (40, 97), (70, 76), (74, 76), (93, 99), (100, 100)]


@pytest.mark.parametrize("lane", [NARROW, WIDE, WIDER])
def test_no_words_leave_their_lane_wherever_they_stand(lane: int) -> None:
    for text, (begin, end), line in itertools.product(TEXTS, PLACES, (None, 50, 99)):
        taken = [(begin, end), *([(line, line)] if line is not None else [])]
        found = beside(text, (begin, end), taken, lane)
        if found is None:
            continue
        label, _ = found
        at = float(label.x.rstrip("%")) * lane / 100 + label.dx
        far = at + width(label.text) * (1 if label.anchor == "start" else -1)
        assert -1 <= far <= lane + EDGE[lane]
        if line is not None:
            assert not min(at, far) < line * lane / 100 < max(at, far), "words cross the stop line"


def test_words_stand_right_of_a_mark_and_near_the_edge_left_of_what_they_tell_of() -> None:
    right, left = (beside("ch_5Qz", span, [span]) for span in ((10, 20), (90, 97)))
    assert right is not None
    assert left is not None
    assert (right[0].x, right[0].anchor) == ("20.00%", "start")
    assert (left[0].x, left[0].anchor) == ("90.00%", "end")


def test_words_with_no_room_at_all_are_left_out_not_drawn_over_others() -> None:
    assert beside("a long reference", (1, 99), [(1, 99)]) is None
    assert shorten("abcdefgh", 30) == ""
    assert shorten("x" * 300, 100).endswith("…")


@pytest.mark.parametrize("version", [2, 1_000_002])
@pytest.mark.parametrize("at", range(0, 101, 4))
def test_the_flag_and_its_captions_stay_in_the_panel(at: float, version: int) -> None:
    line = StopLine(at, version - 1, version)
    for flag, lane in zip(line.flags, (WIDE, NARROW), strict=True):
        left = at * lane / 100 + flag.left
        assert left >= -16
        assert left + flag.width <= lane + 16
        assert width(flag.text) <= flag.width
    for caption in line.captions:
        lane = {"wide": WIDE, "wider": WIDER}[caption.css]
        far = at * lane / 100 + caption.dx + width(caption.text) * (1 if caption.anchor == "start" else -1)
        assert 0 <= far <= lane + EDGE[lane]


def unknown_since_100_s(run: Run, key: str) -> None:
    """An effect whose bar is long enough to hold marks."""
    begun = database_time() - timedelta(seconds=100)
    step = Step.objects.create(
        run=run, key=key, name=key, op_class="external_write", status="UNKNOWN", created_at=begun
    )
    Effect.objects.create(
        run=run, step=step, key=key, kind_name="k", op_class="external_write", title=key,
        settlement="UNKNOWN", declared_at=begun, dispatched_at=begun,
        body_digest="", plan_digest="", parameters_digest="",
    )  # fmt: skip


def lanes(run: Run, world: World) -> dict[str, str]:
    html = browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    found = re.findall(r'<li class="lane">.*?aria-label="(.*?): (.*?)</li>', html, flags=re.S)
    return dict(found)


@pytest.mark.django_db(transaction=True)
def test_look_ups_are_marks_on_the_lane_and_words_in_its_label() -> None:
    world = World()
    run = world.run()
    unknown_since_100_s(run, "asked")
    unknown_since_100_s(run, "never asked")
    for _ in range(3):
        record(run, Line("effect.looked_up", "system", effect_key="asked"))
    drawn = lanes(run, world)
    magnifier = '<circle class="mk" r="5"/>'
    assert magnifier in drawn["asked"]
    assert "looked up 3 times, last" in drawn["asked"]
    assert magnifier not in drawn["never asked"]
    html = browser(world.alice).get(f"/runs/{run.pk}/").content.decode()
    assert "</svg>look-up</li>" in html


@pytest.mark.django_db(transaction=True)
def test_refusals_that_were_not_all_read_are_counted_as_at_least() -> None:
    world = World()
    run = world.run()
    Refusal.objects.bulk_create(
        Refusal(run=run, workspace_id=run.workspace_id, boundary="claim", reason="stopped", step_key=f"s{n}")
        for n in range(300)
    )
    [(name, told)] = lanes(run, world).items()
    assert name == "Queued steps"
    assert re.search(r"refused at least \d+ times from", told)
