"""Run the tests: on SQLite, again on PostgreSQL, and in a browser. Its arguments are pytest's."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from django.core.management.base import BaseCommand

ROOT = Path(__file__).resolve().parents[3]
PASSES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "browser": "sqlite",
}
NOTHING_COLLECTED = 5
ORDER = ("set-up", "lint and types", "units", "races", "kills", "drills", "browser")
GIVE_UP_EARLY = ("-x", "--exitfirst", "--maxfail")
LOOK_ONLY = ("--help", "-h", "--version", "-V", "--collect-only", "--co", "--markers", "--fixtures")


class Command(BaseCommand):
    help = "Run the tests with pytest, which takes all arguments: manage.py test -k gate"

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(run(argv[2:]))


def run(words: list[str]) -> int:
    """All passes, then minutes by suite and the counts. The exit code is pytest's first bad one."""
    if any(word.split("=")[0] in LOOK_ONLY for word in words):
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="allstop-tally-") as folder:
        codes: list[int] = []
        for name in PASSES:
            codes.append(one_pass(name, words, Path(folder)))
            if codes[-1] not in (0, NOTHING_COLLECTED) and hasty(words):
                break
        report([read(Path(folder, name), code) for name, code in zip(PASSES, codes, strict=False)])
    return verdict(codes)


def hasty(words: list[str]) -> bool:
    return any(word.startswith(GIVE_UP_EARLY) for word in words)


def one_pass(name: str, words: list[str], folder: Path) -> int:
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ALLSTOP_TEST_PASS": name,
        "ALLSTOP_TEST_DATABASE": PASSES[name],
        "ALLSTOP_TEST_SET_UP": "1",
        "ALLSTOP_TEST_TALLY": str(folder / name),
    }
    print(f"--- Pass: {name}", flush=True)
    command = [sys.executable, "-m", "pytest", *words]
    try:
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    except KeyboardInterrupt:
        return 130


def read(path: Path, code: int) -> tuple[Counter[str], Counter[str]]:
    """Seconds by suite and counts of one pass. A pass that died without a tally has failed."""
    try:
        found = json.loads(path.read_text())
    except OSError:
        return Counter(), Counter(failed=0 if code in (0, NOTHING_COLLECTED) else 1)
    counts = Counter[str](found["counts"])
    if code not in (0, NOTHING_COLLECTED) and not counts["failed"]:
        counts["failed"] = 1
    return Counter(found["seconds"]), counts


def report(tallies: list[tuple[Counter[str], Counter[str]]]) -> None:
    seconds, counts = earlier(), Counter[str]()
    for took, counted in tallies:
        seconds.update(took)
        counts.update(counted)
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
    bad = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    if bad:
        return bad[0]
    return 0 if 0 in codes else NOTHING_COLLECTED
