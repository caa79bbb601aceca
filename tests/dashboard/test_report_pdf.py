"""The report as PDF: tagged, titled, in its language, and the same numbers and sentences as the JSON."""

from __future__ import annotations

import io
import json
import re
import subprocess
from threading import BoundedSemaphore
from typing import Any

import pytest
from pypdf import PdfReader

from dashboard import reports
from dashboard.reports import pdf, typesetting
from dashboard.reports.typesetter import render, spelled
from dashboard.reports.typesetting import job
from runs.models import Run
from tests.dashboard.report_scenes import awaiting_verification
from tests.dashboard.scenes import browser, text_of
from tests.worlds import World, a_step, an_effect

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = '#read("/etc/passwd") $x$ <l-1> = H *b* _i_ `r` \\ // /* @l-1 ] } " \' \u202e\u200b'


@pytest.fixture
def w() -> World:
    return World()


def reader_of(run: Run, version: int | None = None) -> PdfReader:
    """The PDF, set in this process: the typesetter is one test's matter, its template all others'."""
    report = reports.load(run.pk, version)
    at = report.issued_at or report.as_of
    return PdfReader(io.BytesIO(render(json.loads(job(pdf.data_of(report), at)))))


def squeezed(text: str) -> str:
    """Without any space: where a line breaks is the layout's matter."""
    return re.sub(r"[\s\u200b]+", "", text)


def text_in(reader: PdfReader) -> str:
    return squeezed("".join(page.extract_text() for page in reader.pages))


def sentences(told: dict[str, Any]) -> list[str]:
    claims = [one for section in told["sections"] for one in section["claims"]]
    claims += (told["changes"] or {"claims": []})["claims"]
    parts = [" ".join(filter(None, (one["lead"], one["text"], one["stress"]))) for one in claims]
    return [told["sentence"], told["stamp"], *parts, *told["method"], told["new_work"]["says"]]


def test_it_is_tagged_titled_and_in_its_language_and_each_page_names_itself(w: World) -> None:
    run = awaiting_verification(w)
    row = reports.issue(run.pk)
    assert row is not None
    reader = reader_of(run)
    root: Any = reader.trailer["/Root"]
    assert bool(root["/MarkInfo"]["/Marked"])
    assert root["/StructTreeRoot"]["/K"]
    assert root["/Lang"] == "en-GB"
    assert bool(root["/ViewerPreferences"]["/DisplayDocTitle"])
    assert reader.metadata is not None
    assert str(reader.metadata.title).startswith("Shutdown report: close-books, version 1, issued ")
    assert "pdfuaid" in root["/Metadata"].get_data().decode()
    total = len(reader.pages)
    assert total >= 2
    for number, page in enumerate(reader.pages, 1):
        said = squeezed(page.extract_text())
        assert f"page{number}of{total}" in said
        assert f"sha256{row.digest}" in said


def test_it_says_what_the_json_says(w: World) -> None:
    run = awaiting_verification(w)
    reports.issue(run.pk)
    w.stop(run, by=w.bob, mode="abandon")
    reports.issue(run.pk)
    told, said = reports.read(run.pk), text_in(reader_of(run))
    assert len(sentences(told)) > 15
    for sentence in sentences(told):
        assert squeezed(sentence) in said
    assert squeezed(f"Effects known {told['known']} of {told['of']}") in said
    for row in told["manifest"]["rows"]:
        assert squeezed(row["key"]) in said
        assert squeezed(row["ground"]) in said
    for number in {n for section in told["sections"] for c in section["claims"] for n in c["lines"]}:
        assert f"e-{number}" in said
    assert squeezed("What changed since version 1") in said
    assert "Version2isnewer" not in said
    assert "Version2isnewer" in text_in(reader_of(run, 1))


def test_a_stranger_s_text_is_only_text_and_signs_without_a_font_are_spelled(w: World) -> None:
    run = w.run(name=HOSTILE, agent="会社 💸")
    w.report(w.opened(run, "k" * 180), provider_ref=HOSTILE)
    w.stop(run, note=HOSTILE)
    said = text_in(reader_of(run))
    shown = squeezed(HOSTILE.replace("\u202e", ""))
    assert said.count(shown) >= 3
    assert "k" * 180 in said
    assert "root:x:" not in said
    assert "[U+1F4B8]" in said or "💸" in said
    assert spelled('{"a":"Ünï – 会"}') == '{"a":"Ünï – [U+4F1A]"}'


def test_the_heads_of_a_long_table_stand_on_each_of_its_pages(w: World) -> None:
    run = w.run()
    step = a_step(run)
    for _ in range(60):
        an_effect(step)
    pages = [squeezed(page.extract_text()) for page in reader_of(run).pages]
    holding = [text for text in pages if "Intentrecorded" in text]
    assert len(holding) >= 2
    assert all("SettlementGround" in text for text in holding)


def test_a_draft_says_so(w: World) -> None:
    said = text_in(reader_of(w.run()))
    assert "Adrafthasnodigest." in said
    assert "Draft,notissued" in said


# --- The file, made in a process of its own ------------------------------------------------------------


def test_the_page_gives_the_file_and_nothing_to_outsiders(w: World) -> None:
    run, alice = awaiting_verification(w), browser(w.alice)
    reports.issue(run.pk)
    answer = alice.get(f"/runs/{run.pk}/report.pdf?version=1")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/pdf")
    assert answer.content.startswith(b"%PDF-")
    assert f'filename="{run.pk}-report-1.pdf"' in answer["Content-Disposition"]
    assert f"/runs/{run.pk}/report.pdf?version=1" in alice.get(f"/runs/{run.pk}/report").content.decode()
    assert alice.get(f"/runs/{run.pk}/report.pdf?version=9").status_code == 404
    assert browser(w.mallory).get(f"/runs/{run.pk}/report.pdf").status_code == 404


def no_typst(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    monkeypatch.setattr(typesetting, "find_spec", lambda name: None)
    return typesetting.NoTypst


def no_place(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    monkeypatch.setattr(typesetting, "WAIT_S", 0.01)
    monkeypatch.setattr(typesetting, "_places", BoundedSemaphore(1))
    typesetting._places.acquire()
    return typesetting.Busy


def no_time(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    def never(command: list[str], **given: Any) -> None:
        assert given["timeout"] == typesetting.LIMIT_S
        raise subprocess.TimeoutExpired(command, given["timeout"])

    monkeypatch.setattr(subprocess, "run", never)
    return typesetting.TooSlow


def no_template(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    monkeypatch.setattr(typesetting, "TEMPLATE", typesetting.TYPESETTER)
    return typesetting.Failed


@pytest.mark.parametrize("trouble", [no_typst, no_place, no_time, no_template])
def test_where_none_can_be_made_it_says_why_and_how_to_print(
    w: World, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    run = w.run()
    error = trouble(monkeypatch)
    answer = browser(w.alice).get(f"/runs/{run.pk}/report.pdf")
    assert answer.status_code == 503
    assert str(error.__doc__) in text_of(answer.content.decode())
    assert f'href="/runs/{run.pk}/report"' in answer.content.decode()
