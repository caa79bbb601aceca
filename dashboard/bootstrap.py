"""From a bare clone to a private environment with the locked packages. Standard library only.

Must parse on Python 3.6, so that a Python that is too old gets its sentence and not a traceback.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 11)
DEVELOPMENT = ("test", "bench", "drill")  # these commands take the development packages as well
NEEDED = {
    "run": ("django", "channels", "daphne", "celery", "ninja"),
    "dev": ("django", "channels", "daphne", "celery", "ninja", "pytest", "playwright"),
}
STAMP, LOCK, LOG = "allstop.json", "allstop.lock", "install.log"
HANDED_OVER = "ALLSTOP_HANDED_OVER"


def hand_over(argv: List[str]) -> None:
    """Return if this interpreter can run the command; otherwise become one that can."""
    check_python()
    wanted = "dev" if argv[1:2] and argv[1] in DEVELOPMENT else "run"
    home = place()
    inside = same(sys.prefix, home)
    arrived = os.environ.pop(HANDED_OVER, "")
    if inside and not marked(home):
        return  # made and entered by someone else, uv for one
    if not inside and others_suffice(wanted):
        return
    if not inside and arrived:
        give_up(
            "{} started, but not as the environment in {}. Remove that folder and try again.",
            sys.prefix,
            home,
        )
    installed = ensure(home, wanted)
    if installed or not inside:
        become(home, argv)


def give_up(sentence: str, *words: object) -> None:
    raise SystemExit("manage.py: " + sentence.format(*words))


def say(sentence: str, *words: object) -> None:
    print(sentence.format(*words), file=sys.stderr, flush=True)


def check_python() -> None:
    if tuple(sys.version_info[:2]) >= OLDEST:
        return
    newer = [name for name in ("python3.14", "python3.13", "python3.12", "python3.11") if shutil.which(name)]
    give_up(
        "Allstop needs Python {}.{} or newer; this is Python {}.{}. {}",
        *OLDEST,
        *sys.version_info[:2],
        "Start it with {} manage.py instead.".format(newer[0])
        if newer
        else "Install a newer one and start again.",
    )


def place() -> str:
    """The private environment: .venv beside manage.py, or where ALLSTOP_VENV says."""
    return os.path.abspath(os.path.expanduser(os.environ.get("ALLSTOP_VENV") or os.path.join(ROOT, ".venv")))


def same(one: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(one, other)


def python_of(home: str) -> str:
    return (
        os.path.join(home, "Scripts", "python.exe")
        if os.name == "nt"
        else os.path.join(home, "bin", "python")
    )


def others_suffice(wanted: str) -> bool:
    """Whether we run in an environment of the user's own: an active one, or a container's Python."""
    missing = [name for name in NEEDED[wanted] if find_spec(name) is None]
    active = sys.prefix != sys.base_prefix
    if active and missing:
        give_up(
            "The active environment {} lacks {}. Run: python -m pip install --require-hashes "
            "-r requirements/{}.txt (or leave it with `deactivate`: a private one is then made for you).",
            sys.prefix,
            ", ".join(missing),
            wanted,
        )
    return not missing


# --- The stamp: what was installed, or that an installation began and did not end ---------------------------


def digest(name: str) -> str:
    with open(os.path.join(ROOT, "requirements", name + ".txt"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def marked(home: str) -> bool:
    return os.path.exists(os.path.join(home, STAMP))


def read_stamp(home: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(home, STAMP)) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def write_stamp(home: str, state: str, **installed: str) -> None:
    path = os.path.join(home, STAMP)
    with open(path + ".new", "w") as file:
        json.dump(dict(installed, state=state, python=version()), file)
    os.replace(path + ".new", path)


def version() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def whole(home: str) -> bool:
    """An installation that ended, made by this version of Python."""
    stamp = read_stamp(home)
    return (
        stamp.get("state") == "ready" and stamp.get("python") == version() and os.path.exists(python_of(home))
    )


def current(home: str, wanted: str) -> bool:
    """Whole, and with the packages of today's lock. The development lock contains the other one."""
    stamp = read_stamp(home)
    return whole(home) and any(stamp.get(name) == digest(name) for name in {wanted, "dev"})


# --- Installing ---------------------------------------------------------------------------------------------


def ensure(home: str, wanted: str) -> bool:
    """Make the environment current. Answers whether anything was installed."""
    if current(home, wanted):
        return False
    if of_someone_else(home):
        return adopt(home, wanted)
    check_venv_module()
    make_folder(home)
    try:
        with alone(home):
            return not current(home, wanted) and install(home, wanted)
    except KeyboardInterrupt:
        give_up("Interrupted. Run the same command again: it starts the installation over.")
    return False


def of_someone_else(home: str) -> bool:
    """A folder with things in it and no stamp. Ours has, before its stamp, nothing but the lock."""
    if not os.path.isdir(home) or marked(home):
        return False
    return bool(set(os.listdir(home)) - {STAMP, STAMP + ".new", LOCK})


def adopt(home: str, wanted: str) -> bool:
    """An environment that we did not make is used when it has everything, and never changed."""
    code = "import " + ", ".join(NEEDED[wanted])
    try:
        lacking = subprocess.call([python_of(home), "-c", code], stderr=subprocess.DEVNULL) != 0
    except OSError:
        lacking = True
    if lacking:
        give_up(
            "{} was not made by this command and lacks packages. Move it away, or activate it and run: "
            "python -m pip install --require-hashes -r requirements/{}.txt",
            home,
            wanted,
        )
    return False


def check_venv_module() -> None:
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        give_up(
            "This Python has no venv module, so no private environment can be made. On Debian or Ubuntu run: "
            "apt-get install python3-venv. Elsewhere install Python's venv package. "
            "Then run the same command again."
        )


def make_folder(home: str) -> None:
    try:
        os.makedirs(home, exist_ok=True)
        with open(os.path.join(home, LOCK), "a"):
            pass
    except OSError as error:
        give_up(
            "{} can't be written ({}), so no private environment can be made there. Copy the checkout to "
            "a folder of yours, or keep the environment elsewhere: ALLSTOP_VENV=DIR python3 manage.py …",
            os.path.dirname(home),
            error.strerror,
        )


@contextmanager
def alone(home: str) -> Iterator[None]:
    """One installation at a time; a second command waits for the first."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(os.path.join(home, LOCK), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another manage.py is installing into {}; waiting for it.", home)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(home: str, wanted: str) -> bool:
    fresh = not whole(home)
    if read_stamp(home).get("state") == "installing":
        say("An earlier installation into {} did not finish; starting it over.", home)
    write_stamp(home, "installing")
    if fresh:
        make_environment(home)
    lock = os.path.join(ROOT, "requirements", wanted + ".txt")
    with open(lock) as file:
        count = sum("==" in line for line in file)
    say("Installing {} packages into {} (once; about a minute) …", count, home)
    packages(home, lock)
    write_stamp(home, "ready", **{wanted: digest(wanted)})
    return True


def make_environment(home: str) -> None:
    for name in os.listdir(home):
        path = os.path.join(home, name)
        if name not in (STAMP, LOCK):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    base = getattr(sys, "_base_executable", None) or sys.executable
    code, said = logged(home, [base, "-m", "venv", home])
    if code:
        give_up("Python could not make an environment in {}:\n{}", home, tail(said))


def packages(home: str, lock: str) -> None:
    pip = [python_of(home), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    code, said = logged(home, [*pip, "--require-hashes", "--no-deps", "--prefer-binary", "-r", lock])
    if code:
        give_up("{}\n{}", reason(said), tail(said))


def logged(home: str, command: List[str]) -> Tuple[int, str]:
    """Run a command with its words in the install log. Answers its exit code and those words."""
    path = os.path.join(home, LOG)
    with open(path, "wb") as file:
        code = subprocess.call(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    with open(path, errors="replace") as words:
        return code, words.read()


def tail(said: str) -> str:
    return "\n".join("    " + line for line in said.strip().splitlines()[-6:])


REASONS = (
    (
        "DO NOT MATCH THE HASHES",
        "A package that was downloaded is not the one whose digest the lock records. It was not installed. "
        "Clear pip's cache (pip cache purge), check the package index in use, and try again.",
    ),
    ("No space left on device", "The disk is full. Make room and run the same command again."),
    (
        "NewConnection|name resolution|Connection refused|establish a new connection|timed out|"
        "ProxyError|SSLError|ConnectTimeout|unreachable|RemoteDisconnected|Could not fetch URL|"
        "from versions: none",
        "The packages can't be downloaded: the network or the package index does not answer. Connect, or set "
        "pip's index or proxy (PIP_INDEX_URL, HTTPS_PROXY), and run the same command again.",
    ),
)


def reason(said: str) -> str:
    for pattern, sentence in REASONS:
        if re.search(pattern, said):
            return sentence
    return "The packages could not be installed. Mend what pip says below and run the same command again."


def become(home: str, argv: List[str], environ: Optional[Dict[str, str]] = None) -> None:
    """Replace this process by the same command in the private environment."""
    python = python_of(home)
    sys.stdout.flush()
    environ = dict(os.environ if environ is None else environ, **{HANDED_OVER: "1"})
    try:
        os.execve(python, [python, *argv], environ)
    except OSError as error:
        give_up(
            "{} can't be started ({}). Remove {} and run the same command again.",
            python,
            error.strerror,
            home,
        )
