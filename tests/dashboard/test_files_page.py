"""The page of a run's files: two words on each, what the effect did and what is there now."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from dashboard.pages.files import changes_of
from effects import executor
from tests.dashboard.scenes import browser
from tests.effects.test_workspace_provider import Desk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.only("sqlite")]


@pytest.fixture
def desk(tmp_path: Path, settings: Settings) -> Desk:
    settings.ALLSTOP_FILES = str(tmp_path)
    return Desk(tmp_path)


def test_each_file_is_there_changed_gone_or_left_behind(desk: Desk) -> None:
    executor.execute(desk.declared({"a.md": "1", "b.md": "2", "<b>c</b>.md": "3"}).pk)
    (desk.root / "a.md").write_text("by somebody else")
    (desk.root / "b.md").unlink()
    html = browser(desk.world.dana).get(f"/runs/{desk.run.pk}/files").content.decode()
    assert "<b>3 of 3</b> files written" in html
    for words in ("changed since it was written", "no longer there", "there as it was written"):
        assert html.count(words) == 1
    assert "&lt;b&gt;c&lt;/b&gt;.md" in html


def test_an_effect_that_nobody_tried_yet_has_no_list(desk: Desk) -> None:
    desk.declared()
    html = browser(desk.world.dana).get(f"/runs/{desk.run.pk}/files").content.decode()
    assert "No attempt to write began." in html


def test_a_run_without_files_says_so(desk: Desk) -> None:
    html = browser(desk.world.dana).get(f"/runs/{desk.run.pk}/files").content.decode()
    assert "No effect of this run changes files." in html


def test_ten_effects_cost_one_query(desk: Desk, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for n in range(10):
        desk.declared(key=f"files:{n}")
    with django_assert_num_queries(1):
        assert len(changes_of(desk.run)) == 10
