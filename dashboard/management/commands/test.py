"""Run the tests: on SQLite and on PostgreSQL at the same time, then in browsers. Its arguments are pytest's.

Tests that let threads race have the machine to themselves: the two passes take turns for those
(tests/turns.py). Those that kill processes mostly wait for them, and do so in both passes at once. Of the
browsers one walks through the pages, and one has them all audited, each with a server of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from django.core.management.base import BaseCommand

ROOT = Path(__file__).resolve().parents[3]
PASSES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "browser": "sqlite",
    "accessible": "sqlite",
}
AT_ONCE = [["sqlite", "postgresql"], ["browser", "accessible"]]
NOTHING_COLLECTED, INTERRUPTED = 5, 130
ORDER = ("set-up", "lint and types", "units", "races", "kills", "drills", "browser")
GIVE_UP_EARLY = ("-x", "--exitfirst", "--maxfail")
TALK = ("--pdb", "--trace")
LOOK_ONLY = ("--help", "-h", "--version", "-V", "--collect-only", "--co", "--markers", "--fixtures")


@dataclass
class Tally:
    """Seconds by suite of one pass, while another ran beside it or alone; and its counts."""

    together: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


class Command(BaseCommand):
    help = "Run the tests with pytest, which takes all arguments: manage.py test -k gate"

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(run(argv[2:]))


def run(words: list[str]) -> int:
    """All passes, then minutes by suite and the counts. The exit code is pytest's first bad one."""
    if any(word.split("=")[0] in LOOK_ONLY for word in words):
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="allstop-tally-") as folder:
        codes = all_passes(words, Path(folder))
        report({name: read(Path(folder, name), code) for name, code in codes.items()})
    return verdict([*codes.values()])


def all_passes(words: list[str], folder: Path) -> dict[str, int]:
    """The exit codes of the passes that were not told to end. With -x a bad one is the last."""
    codes: dict[str, int] = {}
    for names in [[name] for name in PASSES] if talks(words) else AT_ONCE:
        codes |= run_together([Pass(name, words, folder, names) for name in names], hasty(words))
        if INTERRUPTED in codes.values() or (hasty(words) and any(map(is_bad, codes.values()))):
            break
    return codes


def hasty(words: list[str]) -> bool:
    return any(word.startswith(GIVE_UP_EARLY) for word in words)


def talks(words: list[str]) -> bool:
    """Whether someone may want to type: then there is one pass at a time."""
    return any(word.startswith(TALK) for word in words)


def is_bad(code: int | None) -> bool:
    return code not in (None, 0, NOTHING_COLLECTED)


class Pass:
    """One pytest. The first of those that run together writes to our output; another one to a file, from
    which it is shown when the first one is over.
    """

    def __init__(self, name: str, words: list[str], folder: Path, together: list[str]) -> None:
        self.name, self.told = name, 0
        self.file = folder / f"{name}.said" if name != together[0] else None
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "ALLSTOP_TEST_PASS": name,
            "ALLSTOP_TEST_DATABASE": PASSES[name],
            "ALLSTOP_TEST_SET_UP": "1",
            "ALLSTOP_TEST_TALLY": str(folder / name),
            "ALLSTOP_TEST_TURN": str(folder / f"turn-{together[0]}") if len(together) > 1 else "",
            "ALLSTOP_TEST_TEMPLATE": str(folder / "template.sqlite3"),
        }
        self.process = self._start([sys.executable, "-m", "pytest", *words], environ)

    def _start(self, command: list[str], environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        if self.file is None:
            print(f"--- Pass: {self.name}", flush=True)
            return subprocess.Popen(command, cwd=ROOT, env=environ)
        if sys.stdout.isatty():
            command += ["--color=yes"]
        with self.file.open("wb") as out:
            none, same = subprocess.DEVNULL, subprocess.STDOUT
            return subprocess.Popen(command, cwd=ROOT, env=environ, stdin=none, stdout=out, stderr=same)

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def show(self) -> None:
        """What it has written since the last time."""
        if self.file is None:
            return
        if not self.told:
            print(f"--- Pass: {self.name}")
        new = self.file.read_bytes()[self.told :]
        self.told += len(new)
        print(new.decode(errors="replace"), end="", flush=True)

    def watch(self, too_late: Callable[[], bool]) -> int | None:
        """Its exit code at its end, shown until then. None if it had to be told to end before."""
        while self.code is None:
            if too_late():
                self.process.terminate()
                self.process.wait()
                return None
            time.sleep(0.2)
            self.show()
        self.show()
        return self.code


def run_together(passes: list[Pass], hasty: bool) -> dict[str, int]:
    """The exit codes of those that ended by themselves: `hasty`, the first bad one ends the others."""
    codes: dict[str, int | None] = {}
    try:
        for each in passes:
            codes[each.name] = each.watch(lambda: hasty and any(is_bad(one.code) for one in passes))
    except KeyboardInterrupt:  # they have had it too, and stop what they started
        for each in passes:
            each.process.wait()
            codes.setdefault(each.name, INTERRUPTED)
    return {name: code for name, code in codes.items() if code is not None}


def read(path: Path, code: int) -> Tally:
    """What one pass took and came to. A pass that died without a tally has failed."""
    try:
        found = json.loads(path.read_text())
    except OSError:
        return Tally(counts=Counter(failed=int(is_bad(code))))
    tally = Tally(**{name: Counter(found["seconds"].get(name, {})) for name in ("together", "alone")})
    tally.counts.update(found["counts"])
    if is_bad(code) and not tally.counts["failed"]:
        tally.counts["failed"] = 1
    return tally


def report(tallies: dict[str, Tally]) -> None:
    """Minutes on the clock: of what ran together, the longest counts."""
    seconds, counts = earlier(), Counter[str]()
    for names in AT_ONCE:
        beside: list[dict[str, int]] = [dict(tallies[name].together) for name in names if name in tallies]
        seconds.update(max(beside, key=lambda took: sum(took.values()), default={}))
    for tally in tallies.values():
        seconds.update(tally.alone)
        counts.update(tally.counts)
    print("\nminutes by suite")
    for suite in ORDER:
        if seconds[suite]:
            print(f"  {suite:<16}{seconds[suite] / 60:6.1f}")
    print(f"  {'together':<16}{sum(seconds.values()) / 60:6.1f}\n")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)


def earlier() -> Counter[str]:
    """Seconds that were spent before us, from ALLSTOP_TEST_EARLIER: `set-up=31;lint and types=20`."""
    words = os.environ.get("ALLSTOP_TEST_EARLIER", "").split(";")
    return Counter({name: float(value) for name, _, value in (word.partition("=") for word in words if word)})


def verdict(codes: list[int]) -> int:
    bad = [code for code in codes if is_bad(code)]
    if bad:
        return bad[0]
    return 0 if 0 in codes else NOTHING_COLLECTED
