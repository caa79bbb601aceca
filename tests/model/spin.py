"""Search the models of this folder with Spin: each state that the protocol can come to, and each mutant.

A model is compiled once; which guard is gone is told to it by the environment. See the top of gate.pml.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tools

FOLDER = Path(__file__).parent
DEFINED = re.compile(r"^#define (\w+) +(\d+) +/\*", re.MULTILINE)
FIRST_SITUATION = 50  # smaller numbers are mutants
DEPTH = "200000"


@dataclass(frozen=True)
class Found:
    """What one search came to: states stored, seconds, and the first violation ("" if there was none)."""

    states: int
    seconds: float
    violation: str


def say(*words: object) -> None:
    """For whoever runs this with -s, or reads why it failed."""
    print(*words)  # noqa: T201


def programs() -> tuple[str, str]:
    """Spin and a C compiler; skips, with what to install, where one is missing."""
    spin, compiler = shutil.which("spin"), shutil.which("gcc") or shutil.which("cc")
    if spin is None and tools.setting_up() and tools.can_apt_get():
        tools.run(["apt-get", "-qq", "install", "--no-install-recommends", "-y", "spin"])
        spin = shutil.which("spin")
    if spin is None or compiler is None:
        pytest.skip("the models need Spin and a C compiler: apt-get install spin gcc")
    return spin, compiler


class Model:
    """One .pml file, compiled in a folder of its own."""

    def __init__(self, name: str, folder: Path, *defines: str) -> None:
        spin, compiler = programs()
        self.name, self.folder, self.text = name, folder, (FOLDER / name).read_text()
        folder.mkdir(parents=True, exist_ok=True)
        _run([spin, *defines, "-a", str(FOLDER / name)], folder)
        _run([compiler, "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c"], folder)

    def numbered(self) -> dict[str, int]:
        """What the file defines with a number and a comment: mutants and situations."""
        return {name: int(number) for name, number in DEFINED.findall(self.text)}

    def mutants(self) -> list[str]:
        return [name for name, number in self.numbered().items() if number < FIRST_SITUATION]

    def situations(self) -> list[str]:
        return [name for name, number in self.numbered().items() if number > FIRST_SITUATION]

    def search(self, mutant: str = "") -> Found:
        """Every state, or those up to the first violation."""
        number = self.numbered()[mutant] if mutant else 0
        said = _run(["./pan", f"-m{DEPTH}"], self.folder, MUTANT=str(number))
        for wrong in ("max search depth too small", "Search not completed", "out of memory"):
            assert wrong not in said or "errors: 1" in said, f"{self.name}: {wrong}"
        violation = re.search(r"^pan:\d+: (.*) \(at depth", said, re.MULTILINE)
        return Found(
            int(float(_first(r"([\d.e+]+) states, stored", said))),
            float(_first(r"elapsed time ([\d.]+)", said)),
            violation[1] if violation else "",
        )


def _first(pattern: str, said: str) -> str:
    found = re.search(pattern, said)
    assert found, said
    return found[1]


def _run(command: list[str], folder: Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or command[0] == "./pan", said
    return said
