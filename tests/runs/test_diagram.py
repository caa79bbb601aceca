"""The diagrams in the documents are the machines' own."""

import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from dashboard.management.commands import diagram
from effects.models import Approval, Compensation, Delivery, Effect
from runs.diagram import arrows, mermaid, states, table
from runs.models import Permit, Run, Step

MACHINES = [
    (Run, "status"),
    (Step, "status"),
    (Permit, "state"),
    (Effect, "settlement"),
    (Delivery, "state"),
    (Compensation, "state"),
    (Approval, "state"),
]


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the two documents, which the command takes for the real ones."""
    for name in diagram.DOCUMENTS:
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(diagram.read(name))
    monkeypatch.setattr(diagram, "ROOT", tmp_path)
    return tmp_path


def test_the_documents_show_the_graphs_that_the_machines_have() -> None:
    call_command("diagram", "--check")


def test_the_readme_shows_the_run_and_the_states_page_shows_all_with_their_tables() -> None:
    readme, states_page = (diagram.BLOCK.findall(diagram.read(name)) for name in diagram.DOCUMENTS)
    assert readme == [("diagram", "run")]
    names = ("run", "step", "permit", "effect", "delivery", "compensation", "approval")
    assert states_page == [(what, name) for name in names for what in ("diagram", "arrows")]


def test_an_arrow_that_a_document_lacks_is_noticed_and_written(documents: Path) -> None:
    readme = documents / "README.md"
    before = readme.read_text()
    readme.write_text(before.replace("    ACTIVE --> CANCELLING: cancel\n", ""))
    with pytest.raises(CommandError, match=r"README\.md"):
        call_command("diagram", "--check")
    call_command("diagram", "--write")
    assert readme.read_text() == before


def test_a_block_of_an_unknown_machine_is_an_error(documents: Path) -> None:
    (documents / "README.md").write_text("<!-- diagram: robot -->\n<!-- end -->\n")
    with pytest.raises(CommandError, match="robot"):
        call_command("diagram", "--check")


def test_a_run_is_drawn_from_its_start_to_its_four_final_states() -> None:
    lines = [line.strip() for line in mermaid(Run).splitlines()]
    assert lines[:2] == ["stateDiagram-v2", "[*] --> ACTIVE"]
    ends = ["CANCELLED --> [*]", "COMPLETED --> [*]", "FAILED --> [*]", "ABANDONED --> [*]"]
    assert sorted(lines[-4:]) == sorted(ends)
    assert "ACTIVE --> CANCELLING: cancel" in lines
    assert "CANCELLING --> CANCELLING_TIMEOUT: time_out" in lines
    assert "PAUSING --> PAUSED: hold, restore" in lines


@pytest.mark.parametrize(("model", "field"), MACHINES)
def test_every_arrow_stands_in_the_graph_and_in_the_table_with_a_sentence(model: type, field: str) -> None:
    graph, rows = mermaid(model, field), table(model, field)
    found = arrows(model, field)
    assert found
    for arrow in found:
        assert re.search(rf"^    {arrow.source} --> {arrow.target}: .*\b{arrow.name}\b", graph, re.MULTILINE)
        assert f"| `{arrow.name}` |" in rows
        assert arrow.when.endswith(".")


@pytest.mark.parametrize(("model", "field"), MACHINES)
def test_the_order_is_that_of_the_states_not_of_the_source_code(model: type, field: str) -> None:
    order, found = states(model, field), arrows(model, field)
    places = [(order.index(arrow.source), order.index(arrow.target), arrow.name) for arrow in found]
    assert places == sorted(places)
