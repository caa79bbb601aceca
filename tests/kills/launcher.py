"""Starts a real process of ours in which named functions fail as machines do. The product holds no hooks.

python -m tests.kills.launcher --at runs.gate.dispatch:commit --do kill --mark FILE -- manage.py up --port 0

--at PLACE:WHEN[=TEXT]  before · after the function; commit: directly before the COMMIT of the transaction in
                  it; answer: directly after that COMMIT, before anybody was told. TEXT: only for a call with
                  this among its arguments. May be given several times
--do              kill (SIGKILL) · freeze (SIGSTOP) · sleep (--for SECONDS) · raise: this very process
--nth             at the n-th time instead of the first; there is one time for each --at
--mark FILE       a line is appended directly before it is done: the proof that this point was reached
--set NAME=JSON   a constant of a module, such as a lease that would last longer than a test
--instead NAME=NAME   another function in its place, given the real one as its first argument
--clock SECONDS   the wall clock of this process is that much ahead (negative: behind)

Names are dotted: modules in small letters, then at most one class, then the function. The command is what
follows `python`: a script or `-m module`, with its words.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tests.kills import clock

COMMIT = "django.db.backends.base.base.BaseDatabaseWrapper._commit"
WHENS = ("before", "after", "commit", "answer")
Patch = Callable[[Any], Any]

_within: ContextVar[tuple[object, ...]] = ContextVar("within", default=())


def split(name: str) -> tuple[str, list[str]]:
    """The module of a name, and what leads from it to the function."""
    parts = name.split(".")
    last = len(parts) - 1
    first = next((n for n, part in enumerate(parts) if part.lstrip("_")[:1].isupper()), last)
    return ".".join(parts[:first]), parts[first:]


class Fault:
    """What happens at one place."""

    def __init__(self, at: str, options: argparse.Namespace) -> None:
        self.at, _, self.text = at.partition("=")
        self.place, _, self.when = self.at.rpartition(":")
        if self.when not in WHENS or not self.place:
            raise SystemExit(f"--at is PLACE:WHEN, and WHEN one of {', '.join(WHENS)}; got {at!r}")
        self.options = options
        self.met = 0
        self.lock = threading.Lock()

    def patches(self) -> Iterator[tuple[str, Patch]]:
        yield self.place, self.around_call
        if self.when in ("commit", "answer"):
            yield COMMIT, self.around_commit

    def is_meant(self, *given: object) -> bool:
        return not self.text or self.text in repr(given)

    def around_call(self, real: Any) -> Any:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.is_meant(args, kwargs):
                return real(*args, **kwargs)
            if self.when == "before":
                self.strike()
            token = _within.set((*_within.get(), self))
            try:
                result = real(*args, **kwargs)
            finally:
                _within.reset(token)
            if self.when == "after":
                self.strike()
            return result

        return call

    def around_commit(self, real: Any) -> Any:
        @functools.wraps(real)
        def commit(connection: Any) -> Any:
            meant = self in _within.get()
            if meant and self.when == "commit":
                self.strike()
            result = real(connection)
            if meant and self.when == "answer":
                self.strike()
            return result

        return commit

    def strike(self) -> None:
        with self.lock:
            self.met += 1
            if self.met != self.options.nth:
                return
            self.mark()
        DO[self.options.do](self.options.seconds)

    def mark(self, text: str = "") -> None:
        if self.options.mark:
            line = {"at": self.at, "text": text or self.text, "do": self.options.do, "pid": os.getpid()}
            with Path(self.options.mark).open("a") as file:
                file.write(json.dumps(line) + "\n")


def lose_the_wire(_: float) -> None:
    from django.db import OperationalError

    raise OperationalError("server closed the connection unexpectedly")


DO: dict[str, Callable[[float], None]] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "freeze": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": time.sleep,
    "raise": lose_the_wire,
}


def instead(other: str, real: Any) -> Any:
    """The other function, given the real one first. It is looked for when it is first called."""

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        module, path = split(other)
        found: Any = functools.reduce(getattr, path, cast(Any, importlib.import_module(module)))
        return found(real, *args, **kwargs)

    return call


class Patches(importlib.abc.MetaPathFinder):
    """Changes a module directly after it was loaded, so that whoever imports from it gets the change."""

    def __init__(self) -> None:
        self.of: defaultdict[str, list[tuple[Sequence[str], Patch]]] = defaultdict(list)

    def add(self, name: str, patch: Patch) -> None:
        module, path = split(name)
        self.of[module].append((path, patch))

    def install(self) -> None:
        """What is loaded already (a part of the standard library) is changed at once."""
        sys.meta_path.insert(0, self)
        for name in [name for name in self.of if name in sys.modules]:
            self.apply(sys.modules[name])

    def apply(self, module: ModuleType) -> None:
        for path, patch in self.of[module.__name__]:
            owner: Any = functools.reduce(getattr, path[:-1], module)
            setattr(owner, path[-1], patch(vars(owner)[path[-1]]))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.of:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self.apply(module)

            loader.exec_module = exec_module
        return spec


def read(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and the command behind `--`."""
    parser = argparse.ArgumentParser(description="Start a process that fails at named points.")
    parser.add_argument("--at", action="append", default=[])
    parser.add_argument("--do", choices=list(DO), default="kill")
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--for", dest="seconds", type=float, default=5)
    parser.add_argument("--mark", default="")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--instead", action="append", default=[])
    parser.add_argument("--clock", type=float, default=0)
    cut = words.index("--")
    return parser.parse_args(words[:cut]), words[cut + 1 :]


def prepare(options: argparse.Namespace) -> None:
    """Have all of it happen when the modules are loaded."""
    if options.clock:
        moved = clock.shift(options.clock)
        Fault("clock:before", options).mark(f"{moved:+.0f}")
    patches = Patches()
    for at in options.at:
        for name, patch in Fault(at, options).patches():
            patches.add(name, patch)
    for word in options.set:
        name, _, value = word.partition("=")
        patches.add(name, functools.partial(lambda new, _: new, json.loads(value)))
    for word in options.instead:
        name, _, other = word.partition("=")
        patches.add(name, functools.partial(instead, other))
    patches.install()


def run(command: list[str]) -> None:
    """As `python <command>` would."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def main() -> None:
    options, command = read(sys.argv[1:])
    prepare(options)
    run(command)


if __name__ == "__main__":
    main()
