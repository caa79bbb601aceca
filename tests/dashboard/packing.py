"""Packs for tests: made, taken apart, put together again, and checked by a bare Python."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dashboard.packs.writing import write
from runs.models import Run

Files = dict[str, bytes]


def a_pack(run: Run) -> Files:
    """The files of this run's pack."""
    out = io.BytesIO()
    write(Run.objects.get(pk=run.pk), out)
    with zipfile.ZipFile(out) as pack:
        return {name: pack.read(name) for name in pack.namelist()}


def zipped(files: Files, place: Path) -> Path:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in files.items():
            pack.writestr(name, data)
    return place


def rows(files: Files, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[name].splitlines()]


def with_rows(
    files: Files, name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> Files:
    """The same pack with these lines changed by somebody who can't sign."""
    changed = change(rows(files, name))
    return {**files, name: b"".join(json.dumps(row).encode() + b"\n" for row in changed)}


def bare(pack: Path, *words: str, folder: Path, python: str = sys.executable) -> tuple[int, str]:
    """The pack's own verifier, in an empty folder, with nothing in its environment and nothing of ours."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(pack) as files:
        verifier = folder / "verify.py"
        verifier.write_bytes(files.read("verify.py"))
    command = [python, "-I", str(verifier), str(pack), *words]
    done = subprocess.run(
        command, cwd=folder, env={}, capture_output=True, text=True, check=False, timeout=60
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout
