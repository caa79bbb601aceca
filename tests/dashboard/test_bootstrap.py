"""`python3 manage.py …` from a bare clone: it installs, repairs, hands over, or says what to do.

A small checkout and a shelf with one wheel stand in for the real ones; interpreter, venv and pip are real.
"""

import ast
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.tools import obey_permissions

ROOT = Path(__file__).resolve().parents[2]
FIRST = (  # what runs before Django is set up
    "manage.py",
    "dashboard/__init__.py",
    "dashboard/bootstrap.py",
    "dashboard/data.py",
    "runs/__init__.py",
    "runs/keyring.py",
)
PYTHON = getattr(sys, "_base_executable", sys.executable)
STAND_IN = """
import sys
def execute_from_command_line(argv):
    print("RAN", *argv[1:], "IN", sys.prefix)
"""


def wheel(shelf: Path, version: str) -> str:
    """A wheel that answers to `django` and only says where it runs. Its line of the lock."""
    info = f"django-{version}.dist-info"
    files = {
        "django/__init__.py": "",
        "django/core/__init__.py": "",
        "django/core/management/__init__.py": STAND_IN,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: django\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={digest64(text)},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    path = shelf / f"django-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return f"django=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def digest64(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass
class Checkout:
    folder: Path
    shelf: Path
    site: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / ".venv"

    def lock(self, version: str) -> None:
        for name in ("run", "dev"):
            (self.folder / "requirements" / f"{name}.txt").write_text(wheel(self.shelf, version))

    def pretend(self, code: str) -> None:
        """Run code in every interpreter that is started, before anything of ours."""
        (self.site / "sitecustomize.py").write_text(f"import sys\n{code}\n")
        self.environ["PYTHONPATH"] = str(self.site)

    def start(
        self, *words: str, python: str = PYTHON, prepare: Callable[[], object] | None = None
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [python, "manage.py", *words],
            cwd=self.folder,
            env=self.environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def run(self, *words: str, **how: object) -> tuple[int, str]:
        started = self.start(*words, **how)  # type: ignore[arg-type]
        said, _ = started.communicate(timeout=120)
        return started.returncode, said

    def stamp(self) -> dict[str, str]:
        return dict(json.loads((self.home / "allstop.json").read_text()))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "checkout", tmp_path / "shelf", tmp_path / "site")
    rooms = [made.folder / name for name in ("dashboard", "runs", "requirements")]
    for folder in (*rooms, made.shelf, made.site):
        folder.mkdir(parents=True)
    for name in FIRST:
        (made.folder / name).write_bytes((ROOT / name).read_bytes())
    made.environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(made.shelf),
    }
    made.lock("5.2.1")
    # Whatever this machine's Python has, a bare clone starts without.
    made.pretend("if sys.prefix == sys.base_prefix: sys.modules['django'] = None")
    return made


def test_a_bare_clone_installs_the_locked_packages_and_runs_the_command_in_them(checkout: Checkout) -> None:
    code, said = checkout.run("check", "--fast")
    assert code == 0, said
    assert f"RAN check --fast IN {checkout.home}" in said
    assert checkout.stamp()["state"] == "ready"


def test_the_second_start_installs_nothing(checkout: Checkout) -> None:
    checkout.run("check")
    code, said = checkout.run("check")
    assert code == 0
    assert said == f"RAN check IN {checkout.home}\n"


def test_a_changed_lock_is_installed_before_the_command_runs(checkout: Checkout) -> None:
    checkout.run("check")
    before = checkout.stamp()
    checkout.lock("5.2.2")
    code, said = checkout.run("check")
    assert code == 0, said
    assert "Installing 1 packages" in said
    assert checkout.stamp()["run"] != before["run"]
    assert list(checkout.home.glob("lib/*/site-packages/django-5.2.2.dist-info"))


@pytest.mark.parametrize(
    ("command", "lock"), [("test", "dev"), ("bench", "dev"), ("up", "run"), ("check", "run")]
)
def test_only_the_commands_for_developers_take_the_development_packages(
    checkout: Checkout, command: str, lock: str
) -> None:
    checkout.environ["XDG_DATA_HOME"] = str(checkout.site)
    code, said = checkout.run(command)
    assert code == 0, said
    assert set(checkout.stamp()) == {"state", "python", lock}


def test_the_development_packages_contain_those_to_run(checkout: Checkout) -> None:
    checkout.run("test")
    assert checkout.run("check") == (0, f"RAN check IN {checkout.home}\n")


def test_both_files_that_run_first_can_be_read_by_a_python_that_is_too_old() -> None:
    for name in ("manage.py", "dashboard/bootstrap.py", "dashboard/__init__.py"):
        ast.parse((ROOT / name).read_text(), feature_version=(3, 6))


def test_a_python_that_is_too_old_is_told_so(checkout: Checkout) -> None:
    checkout.pretend("sys.version_info = (3, 9, 2, 'final', 0)")
    code, said = checkout.run("up")
    assert code == 1
    assert "Allstop needs Python 3.11 or newer; this is Python 3.9." in said
    assert "Traceback" not in said
    assert not checkout.home.exists()


def test_a_missing_venv_module_is_named_with_the_command_that_brings_it(checkout: Checkout) -> None:
    checkout.pretend("sys.modules['django'] = sys.modules['ensurepip'] = None")
    code, said = checkout.run("up")
    assert code == 1
    assert "This Python has no venv module" in said
    assert "apt-get install python3-venv" in said
    assert "Traceback" not in said


def test_without_a_network_it_says_that_the_packages_can_not_be_downloaded(checkout: Checkout) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        del checkout.environ[name]
    checkout.environ |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    code, said = checkout.run("check")
    assert code == 1
    assert "The packages can't be downloaded" in said
    assert "run the same command again" in said
    assert "Traceback" not in said


def test_an_installation_that_failed_is_started_over_when_the_network_is_back(checkout: Checkout) -> None:
    shelf = checkout.environ.pop("PIP_FIND_LINKS")
    assert checkout.run("check")[0] == 1
    assert checkout.stamp()["state"] == "installing"
    checkout.environ["PIP_FIND_LINKS"] = shelf
    code, said = checkout.run("check")
    assert code == 0, said
    assert "did not finish; starting it over" in said
    assert checkout.stamp()["state"] == "ready"


@pytest.mark.kill
def test_an_installation_that_was_killed_is_repaired(checkout: Checkout) -> None:
    victim = checkout.start("check")
    until = time.monotonic() + 30
    while not (checkout.home / "pyvenv.cfg").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    assert checkout.stamp()["state"] == "installing"
    code, said = checkout.run("check")
    assert code == 0, said
    assert "did not finish; starting it over" in said
    assert f"RAN check IN {checkout.home}" in said


def test_a_checkout_that_can_not_be_written_says_where_else_to_put_the_environment(
    checkout: Checkout,
) -> None:
    checkout.folder.chmod(0o555)
    code, said = checkout.run("check", prepare=obey_permissions)
    assert code == 1
    assert f"{checkout.folder} can't be written" in said
    assert "ALLSTOP_VENV=DIR" in said
    assert "Traceback" not in said


def test_the_environment_can_be_kept_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    checkout.environ["ALLSTOP_VENV"] = str(tmp_path / "elsewhere")
    checkout.folder.chmod(0o555)
    code, said = checkout.run("check", prepare=obey_permissions)
    assert code == 0, said
    assert f"RAN check IN {tmp_path / 'elsewhere'}" in said


def test_a_package_with_another_digest_is_refused(checkout: Checkout) -> None:
    path = checkout.folder / "requirements" / "run.txt"
    head, _, digest = path.read_text().rpartition(":")
    path.write_text(f"{head}:{'0' * len(digest.strip())}\n")
    code, said = checkout.run("check")
    assert code == 1
    assert "not the one whose digest the lock records" in said


def test_an_environment_made_by_someone_else_is_never_changed(checkout: Checkout) -> None:
    checkout.home.mkdir()
    (checkout.home / "theirs").write_text("")
    code, said = checkout.run("check")
    assert code == 1
    assert "was not made by this command" in said
    assert [path.name for path in checkout.home.iterdir()] == ["theirs"]


def test_a_folder_that_another_command_has_just_begun_is_ours(checkout: Checkout) -> None:
    checkout.home.mkdir()
    (checkout.home / "allstop.lock").write_text("")
    code, said = checkout.run("check")
    assert code == 0, said


def test_an_active_environment_is_respected(checkout: Checkout) -> None:
    checkout.pretend("")
    code, said = checkout.run("--version", python=sys.executable)
    assert code == 0, said
    assert not checkout.home.exists()


def test_an_active_environment_without_the_packages_is_told_what_to_install(checkout: Checkout) -> None:
    checkout.pretend("sys.modules['django'] = None")
    code, said = checkout.run("up", python=sys.executable)
    assert code == 1
    assert f"The active environment {sys.prefix} lacks django" in said
    assert "-r requirements/run.txt" in said


def test_two_commands_at_once_install_once(checkout: Checkout) -> None:
    both = [checkout.start("check"), checkout.start("check")]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("Installing" in words for words in said) == 1
    assert all(f"RAN check IN {checkout.home}" in words for words in said)
