"""The protocol as a model: no state of it breaks a promise, and without any one guard some state does."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.model.spin import FOLDER, Model, say

ROOT = FOLDER.parent.parent
ROOMS = ("runs", "effects", "dashboard")

# Guards for whose loss another one makes up, and the mutant that takes both away: that one has to be killed.
MASKED = {
    "NO_EPOCH": "NO_EPOCH_FENCED",
    "NOT_FENCED": "NO_EPOCH_FENCED",
    "NO_LOSE": "NO_LOSE_PAIR",
}
# What survives, the guard in question in its place: so the pair is killed by its loss, not by the others.
CONTROLS = {"LOSE_CONTROL"}
# What a mutant of gate.pml breaks, written by hand: words of the assertion that has to fail.
BREAKS = {
    "NO_LOCK": "version==carried",  # I1
    "NO_VERSION": "version==carried",
    "NO_STATUS": "version==carried",
    "NO_LOOK": "!(shut)",  # I7
    "NO_EXPIRY": "!(shut)",
    "NO_LOCK_LOOK": "!(listed",  # I2
    "LIST_FIRST": "listed",
    "ABSENT": "told_not",  # I10
    "NO_WINDOW": "told_not",
    "LOST_IS_NOT": "told_not",
    "LOST_IS_DONE": "applied",
    "CLOSE_OPEN": "permit[0]!=",  # I12
    "CLOSE_DOUBT": "permit[0]!=",
    "NO_BUMP": "!(listed",  # I2: nothing tells the ended version from the new one
    "EARLY_RESUME": "times[0]<2",  # I6
}
OLD_ONE_ACTIVE = "(admitted[0]<epoch)"  # I19: an ACTIVE run of an older epoch
BREAKS_SCOPE = {
    "ONE_STATEMENT": OLD_ONE_ACTIVE,
    "PLAIN_ADMIT": "gate==",  # I19: born under a shut gate
    "PASSED_OVER": OLD_ONE_ACTIVE,
    "LIST_FIRST": "listed[0]",  # I2
    "NO_SCOPE": "!(shut)&&!(old)",  # I1
    "NO_LOOK": "!(shut)",  # I7
    "LOOK_AT_RUN": "!(shut)",
    "NO_EPOCH_FENCED": "!(shut)&&!(old)",  # I1
    "NO_FANOUT": OLD_ONE_ACTIVE,
}
BREAKS_RESTORE = {
    "NO_LEAP": "when==era",  # I1, I7: a version or a permit from before
    "NO_BEFORE": "when==era",
    "NO_HOLD": "decided",  # I17
    "NO_DOUBT": "known",  # I10
    "NO_GATE": "known",
    "NO_LOSE_PAIR": "given==era",  # I7
}
VERB = re.compile(r"\b([a-z_]+)\.([a-z_]+)\b")
WORLD = {"Provider", "Clock"}  # proctypes that mirror no verb of ours
MODELS = sorted(path.name for path in FOLDER.glob("*.pml"))


def shown(model: Model) -> dict[str, str]:
    """Every mutant and what it came to: the table that this test prints."""
    told = {}
    for mutant in model.mutants():
        found = model.search(mutant)
        told[mutant] = found.violation
        say(f"{model.name} {mutant:16} {'killed' if found.violation else 'survived':9} {found.states} states")
    return told


def not_as_said(told: dict[str, str], breaks: dict[str, str]) -> dict[str, str]:
    """Mutants that broke something else than what they have to break."""
    return {name: told[name] for name, words in breaks.items() if words not in told[name].replace(" ", "")}


def named_verbs(text: str) -> dict[str, list[str]]:
    """Each proctype of a model, and what of our modules the comment before it names."""
    lines, told = text.splitlines(), {}
    for number, line in enumerate(lines):
        if line.startswith("proctype "):
            start = number
            while start and not lines[start].startswith("/*"):
                start -= 1
            comment = " ".join(lines[start:number])
            told[line.split()[1].split("(")[0]] = [
                f"{room}.{verb}" for room, verb in VERB.findall(comment) if _is_module(room)
            ]
    return told


def _is_module(room: str) -> bool:
    return any((ROOT / place / f"{room}.py").exists() for place in ROOMS)


def _exists(name: str) -> bool:
    room, verb = name.split(".")
    return any(
        hasattr(import_module(f"{place}.{room}"), verb)
        for place in ROOMS
        if (ROOT / place / f"{room}.py").exists()
    )


def holds(model: Model) -> None:
    found = model.search()
    say(f"{model.name} protocol: {found.states} states, {found.seconds} s")
    assert found.violation == ""
    assert found.states > 10_000
    assert [each for each in model.situations() if not model.search(each).violation] == []


@pytest.mark.parametrize("name", MODELS)
def test_each_part_of_a_model_names_the_verb_that_it_mirrors(name: str) -> None:
    told = named_verbs((FOLDER / name).read_text())
    assert len(told) > 3
    assert {part for part, verbs in told.items() if not verbs} <= WORLD
    assert [verb for verbs in told.values() for verb in verbs if not _exists(verb)] == []


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model("gate.pml", tmp_path_factory.mktemp("gate"))


@pytest.mark.invariant("I1")
@pytest.mark.invariant("I2")
@pytest.mark.invariant("I7")
@pytest.mark.invariant("I10")
@pytest.mark.invariant("I12")
def test_no_state_of_the_gate_breaks_a_promise_and_each_situation_occurs(gate: Model) -> None:
    holds(gate)


def test_without_any_one_guard_of_the_gate_its_promise_is_broken(gate: Model) -> None:
    told = shown(gate)
    assert set(told) == set(BREAKS)
    assert not_as_said(told, BREAKS) == {}


@pytest.mark.long
@pytest.mark.invariant("I2")
@pytest.mark.invariant("I12")
def test_no_state_of_two_workers_breaks_a_promise(tmp_path: Path) -> None:
    found = Model("gate.pml", tmp_path, "-DN=2").search()
    say(f"gate.pml, two workers: {found.states} states, {found.seconds} s")
    assert found.violation == ""
    assert found.states > 1_000_000


@pytest.mark.long
@pytest.mark.invariant("I19")
@pytest.mark.parametrize("defines", [(), ("-DTWO",)], ids=["one dispatcher", "two dispatchers"])
def test_no_state_of_a_scope_breaks_a_promise(tmp_path: Path, defines: tuple[str, ...]) -> None:
    holds(Model("scope.pml", tmp_path, *defines))


@pytest.mark.long
@pytest.mark.invariant("I5")
def test_no_state_after_a_restore_breaks_a_promise(tmp_path: Path) -> None:
    holds(Model("restore.pml", tmp_path))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "breaks"),
    [("scope.pml", BREAKS_SCOPE), ("restore.pml", BREAKS_RESTORE)],
    ids=["scope", "restore"],
)
def test_without_its_guards_a_promise_of_scopes_and_restores_is_broken(
    tmp_path: Path, name: str, breaks: dict[str, str]
) -> None:
    told = shown(Model(name, tmp_path))
    survived = {mutant for mutant, said in told.items() if not said}
    assert survived == (set(MASKED) | CONTROLS) & set(told)
    assert set(told) - survived == set(breaks)
    assert not_as_said(told, breaks) == {}
    for mutant in sorted(survived - CONTROLS):
        say(f"{name} {mutant}: survived alone, killed as {MASKED[mutant]} ({told[MASKED[mutant]]})")
