"""The lock: every package with its digests, no address, and what pyproject asks for."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
HOW = "uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate"


def text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def pins(name: str) -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    for package, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", text(name), re.M):
        found.setdefault(canonicalize_name(package), []).append(Version(version))
    return found


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", ["run", "dev"])
def test_no_address_index_or_comment_stands_in_the_lock(name: str) -> None:
    assert "://" not in text(name)
    odd = [
        line for line in text(name).splitlines() if not re.match(r"[a-z0-9._-]+==|    --hash=sha256:", line)
    ]
    assert odd == []


@pytest.mark.parametrize("name", ["run", "dev"])
def test_every_package_has_its_digests(name: str) -> None:
    blocks = re.split(r"^(?=\S)", text(name), flags=re.M)[1:]
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("name", ["run", "dev"])
def test_the_lock_satisfies_the_project(name: str) -> None:
    asked = project()["project"]["dependencies"]
    if name == "dev":
        asked = [*asked, *project()["dependency-groups"]["dev"]]
    found = pins(name)
    for requirement in map(Requirement, asked):
        versions = found.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement} is not locked; run: {HOW}"
        assert all(version in requirement.specifier for version in versions), (
            f"{requirement}: {versions}; run: {HOW}"
        )


def test_the_development_lock_contains_the_other_at_the_same_versions() -> None:
    run, dev = pins("run"), pins("dev")
    assert {name: dev.get(name) for name in run} == run


def test_the_unmaintained_name_of_the_state_machine_is_not_taken() -> None:
    assert "django-fsm-2" in pins("run")
    assert "django-fsm" not in pins("run")
