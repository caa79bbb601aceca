"""Which test proves which promise: read from the marks of the tests, and written as docs/invariants.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "invariants.md"
SAYS: dict[str, str] = {
    "I1": "Nothing is dispatched unless its guard holds at that very commit: run at work, at the version "
    "that the worker saw, every gate above open at the epoch of its admission. Other guards stand "
    "on the permit by name.",
    "I2": "What was opened under a version that a stop ended, and is or will be sent, had ended before it"
    " or is in its list. The list is complete at the fence and never shortened.",
    "I3": "A stop that was acknowledged survives the death of every process. Nothing is acknowledged "
    "before its commit.",
    "I4": "The same press again is the same stop: same answer, no second version. A stop gets stronger, "
    "never weaker.",
    "I5": "A version never falls, and a run moves by the arrows of its table alone. A resume is a new "
    "decision at a new version, and is refused while anything is in doubt.",
    "I6": "One dispatch an attempt. A retry is a new attempt under the same key, passes the gate again, "
    "and only after it is known that the last one did not happen.",
    "I7": "No send begins when a look after the permit's commit showed a shut gate or a permit that is over.",
    "I8": "No call goes out inside a transaction, and none without an answered commit. Where the answer "
    "is lost, the row is read again by its own token.",
    "I9": "Unknown is left with evidence only. A timeout, an error, a lost lease and a dead process mean "
    "unknown.",
    "I10": "“Not sent” and “not applied” are said only where nobody can send it any more. Absence alone is"
    " no proof.",
    "I11": "What comes late is kept as evidence and makes a new version of the report. It changes no older"
    " one and moves no final status.",
    "I12": "A run is closed only when nothing of it is open. What is unknown is listed, and the run says "
    "what it awaits.",
    "I13": "The label shown is a function of the rows, the same on pages, in the API and in exports.",
    "I14": "A compensation is sent only if it was declared before its original, which is known to have "
    "happened, and with approvals of these bytes by enough people who may give them, unexpired, "
    "each used once.",
    "I15": "An edit voids every approval. Whoever approves names what they saw; something else is refused.",
    "I16": "A revocation that comes before the use wins; one that comes after it is told so.",
    "I17": "No approval, webhook, old link or late job lets a stopped run go on.",
    "I18": "A compensation is an effect of its own: own key, own verification, own stop. A stop of a scope"
    " halts all of them until a reviewer lifts that.",
    "I19": "No run appears under a shut gate. Once a stop is fenced no run of an older epoch is at work.",
    "I20": "One lock order, so no deadlock. Where the database sees a conflict, the verb tries again by "
    "itself.",
    "I21": "No load of dispatches keeps a stop waiting.",
    "I22": "Where the database can't answer nothing is dispatched, and no stop is said to be recorded.",
    "I23": "Only the database's clock decides. A worker's clock is kept as what it said.",
    "I24": "Messages are hints: lost, doubled, late or in another order, they change no outcome.",
    "I25": "A live page shows what a freshly loaded one would; after a gap it reads again, and says how "
    "old it is.",
    "I26": "Evidence is numbered without a gap and sealed: an edit, deletion, reordering, cut or fork is "
    "found.",
    "I27": "No secret is stored or shown; it is taken out before it is written, with a keyed digest.",
    "I28": "What belongs to another workspace can't be told from what is not there.",
    "I29": "A right is read when it is used: who lost it is refused at once, and open sockets fall silent.",
    "I30": "A run that was stopped comes to rest or says that its deadline passed, whoever dies meanwhile.",
}
PROCESSES = {"database", "empty", "processes", "cluster", "site", "db", "transactional_db"}


@dataclass(frozen=True, order=True)
class Proof:
    """A test that carries the mark of a promise, and where it runs: both databases, one, or none."""

    invariant: str
    file: str
    test: str
    where: str


def marks(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each `pytest.mark.<name>("…")` in this node: name and first argument."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("pytest.mark.") and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant):
                yield ast.unparse(call.func).rpartition(".")[2], str(first.value)


def proofs_in(path: Path) -> Iterator[Proof]:
    source = path.read_text(encoding="utf-8")
    if "mark.invariant" not in source:
        return
    tree, file = ast.parse(source), str(path.relative_to(ROOT))
    whole = [found for node in tree.body if _is_pytestmark(node) for found in marks(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            own = [found for mark in node.decorator_list for found in marks(mark)]
            for name in {value for kind, value in whole + own if kind == "invariant"}:
                yield Proof(name, file, node.name, _where(file, source, node, whole + own))


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _where(
    file: str, source: str, node: ast.FunctionDef | ast.AsyncFunctionDef, told: list[tuple[str, str]]
) -> str:
    only = [value for kind, value in told if kind == "only"]
    if only:
        return only[0]
    if file.startswith("tests/browser/"):
        return "sqlite"
    asked = {argument.arg for argument in node.args.args}
    stands = "django_db" in source or file.startswith(("tests/races/", "tests/kills/", "tests/drills/"))
    return "both" if stands or asked & PROCESSES else "none"


def all_proofs() -> list[Proof]:
    found = [proof for path in sorted((ROOT / "tests").rglob("test_*.py")) for proof in proofs_in(path)]
    return sorted(found)


def number(name: str) -> int:
    return int(name.removeprefix("I"))


def without_proof(found: list[Proof]) -> list[str]:
    """Promises that no test is marked with."""
    return sorted(set(SAYS) - {proof.invariant for proof in found}, key=number)


WHERE = {
    "both": "SQLite and PostgreSQL",
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
    "none": "no database",
}


def table(found: list[Proof]) -> str:
    """The document: what each says, how many tests prove it where, and in which files."""
    lines = [HEAD, "| | It says | Tests | In |", "|---|---|---|---|"]
    for name in sorted(SAYS, key=number):
        mine = [proof for proof in found if proof.invariant == name]
        where = [(word, sum(proof.where == key for proof in mine)) for key, word in WHERE.items()]
        counted = "<br>".join(f"{n} · {word}" for word, n in where if n) or "none yet"
        files = sorted({proof.file for proof in mine})
        named = "<br>".join(f"`{file}`" for file in files)
        lines.append(f"| **{name}** | {SAYS[name]} | {counted} | {named} |")
    return "\n".join(lines) + "\n"


HEAD = """# What is promised, and which tests prove it

Thirty promises in a testable form. A test carries the mark of what it proves: `@pytest.mark.invariant("I7")`.
This page is written from those marks by `manage.py invariants --write`. A test compares it, and fails where a
promise has no test. "No database" means that none takes part: a model, the client, a pure function.
"""
