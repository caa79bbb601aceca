"""The client is a wheel of its own: what it contains, what it needs, and that it runs without the server."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), "client"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (made,) = folder.glob("*.whl")
    return made


def test_it_contains_the_client_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"allstop"}
    assert {"allstop/py.typed", "allstop/aio/__init__.py"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_is_imported_without_the_server_and_without_its_packages(wheel: Path) -> None:
    foreign = "{'django', 'runs', 'effects', 'dashboard'}"
    code = f"import sys, allstop, allstop.aio; print(sorted({foreign} & set(sys.modules)))"
    environ = {"PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=wheel.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
