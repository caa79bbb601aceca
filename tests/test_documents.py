"""What the documents name is there: modules, files, links, variables, names of the client."""

import ast
import re
from importlib import import_module
from pathlib import Path

import allstop.aio
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DECISIONS = sorted(name for name in DOCUMENTS if name.startswith("docs/decisions/"))
ROOMS = "runs|effects|dashboard|client|static|templates|docs|tests"
PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]+|[\w-]+\.(?:py|yml|toml|md))`")
DOTTED = re.compile(r"`((?:runs|effects|dashboard)(?:\.\w+)+)(?:\(\))?`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)")
VARIABLE = re.compile(r"^\| `([A-Z_]+)` \|", re.MULTILINE)
READ = re.compile(r"env\.\w+\(\s*\"([A-Z_]+)\"|environ\.get\(\"(ALLSTOP_[A-Z_]+)\"\)")


def text(name: str) -> str:
    return (ROOT / name).read_text()


def found(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    holder, _, name = dotted.rpartition(".")
    try:
        return hasattr(import_module(holder), name) or bool(import_module(dotted))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_exists(name: str) -> None:
    assert [path for path in PATH.findall(text(name)) if not (ROOT / path).exists()] == []


def test_the_tour_in_the_readme_names_places_in_every_room() -> None:
    rooms = {path.split("/")[0] for path in PATH.findall(text("README.md"))}
    assert rooms >= {"runs", "effects", "dashboard", "client"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_dotted_name_in_a_document_can_be_imported(name: str) -> None:
    assert [dotted for dotted in DOTTED.findall(text(name)) if not found(dotted)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_of_a_document_leads_to_a_file(name: str) -> None:
    links = [link for link in LINK.findall(text(name)) if "://" not in link]
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_in_a_document_compiles_and_imports_what_the_client_has(name: str) -> None:
    for source in re.findall(r"^```python\n(.*?)^```$", text(name), re.DOTALL | re.MULTILINE):
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
        for module in (allstop, allstop.aio):
            named = [alias.name for node in imports if node.module == module.__name__ for alias in node.names]
            assert [each for each in named if each not in module.__all__] == []


def test_the_page_for_operators_has_every_variable_that_is_read_and_no_other() -> None:
    sources = ("dashboard/settings.py", "dashboard/data.py", "dashboard/bootstrap.py")
    read = {one or two for name in sources for one, two in READ.findall(text(name))}
    assert len(read) > 10
    assert set(VARIABLE.findall(text("docs/operating.md"))) == read


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(Path(name).name[:4]) for name in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_says_its_context_itself_and_what_was_rejected(name: str) -> None:
    assert text(name).startswith(f"# {Path(name).name[:4]} · ")
    assert re.findall(r"^## (.+)$", text(name), re.MULTILINE) == ["Context", "Decision", "Rejected"]
