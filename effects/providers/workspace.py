"""The provider workspace: an effect writes files below its workspace's folder, and leaves a manifest.

`kind.send`: {folder? (below which all paths lie)}. The body: {"files": [{"path", "text" or "base64"}]}.

Contents are staged beside their places and on the disk before the second look; after it there are only
renames. A journal says what was meant, what was there before, and which renames are done, so that a process
that was killed leaves a list and no guess. Each effect has a lock, which a process that is killed loses and
one that is frozen keeps: whoever holds it knows that nobody writes, and bars the attempts so far before it
says "absent".
All processes that send or look up have to see the same folder (`ALLSTOP_FILES`).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from effects import folder, outbound
from effects.folder import Entry, Unusable
from effects.models import Kind
from effects.new_kind import BadKind, NewKind, Questions, check_class
from effects.reconcile import ABSENT, CANT_TELL, PARTIAL, PRESENT, Answer
from effects.settle import Told
from runs.models import OperationClass

from .shape import Inspection, Ready, Sendable

QUESTIONS = Questions(
    commits="File by file, when it is renamed into its place.",
    tells_apart=("CONFIRMED", "PARTIAL", "NOT_APPLIED"),
    idempotency="The effect's journal and lock: an attempt that a look-up has barred writes nothing.",
    compensation="restore_files, where the effect declared it: what was there before is put back.",
    durable_before_pause="The journal: each path, size and digest, and what was there before.",
    when_unknown="Each file of the manifest, and whether it was put in its place.",
)
INSPECTED = {"inspect": "files"}
TOLD_MAX = 50  # files named in an answer; the journal holds all


class Writing(Exception):
    """Another process holds the effect's lock: it writes, or was frozen while it did."""


# what is there ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """One file of an effect: `written` (and there) · `changed since` · `gone since` · `left behind` (staged,
    never put in its place) · `not written`."""

    path: str
    size: int
    sha256: str
    state: str

    @property
    def happened(self) -> bool:
        return self.state in ("written", "changed since", "gone since")


def states_of(effect: Sendable) -> list[State]:
    """What became of each file of an effect, from its journal and from the disk; changes nothing.

    Empty when no attempt began. Raises OSError when the folder can't be read.
    """
    root = folder.root_of(effect.run.workspace_id)
    plan, done = _journal(root, effect)
    return [_state(root, effect, place, one, place in done) for place, one in enumerate(plan)]


def _state(root: Path, effect: Sendable, place: int, one: dict[str, Any], done: bool) -> State:
    now = folder.there(root, one["path"])
    mine = now is not None and now.sha256 == one["sha256"]
    if done:
        word = "written" if mine else "changed since" if now else "gone since"
    elif mine and one["before"] != one["sha256"]:
        word = "written"  # renamed, and killed before it could say so
    else:
        *folders, _ = one["path"].split("/")
        staged = "/".join([*folders, _staged(effect, place)])
        word = "left behind" if folder.there(root, staged) else "not written"
    return State(one["path"], one["size"], one["sha256"], word)


def _journal(root: Path, effect: Sendable) -> tuple[list[dict[str, Any]], set[int]]:
    """The newest attempt's plan, and the places of it that are done; all attempts write the same files."""
    plan: list[dict[str, Any]] = []
    done: set[int] = set()
    try:
        with folder.inside(root, [folder.OURS]) as at:
            file = os.open(f"{effect.pk}.journal", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)
    except FileNotFoundError:
        return plan, done
    with os.fdopen(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError):  # the last line of a process that was killed
                said = json.loads(line)
                plan = said.get("files") or plan
                done |= {said["done"]} if "done" in said else set()
    return plan, done


def look_up(effect: Sendable, kind: Kind) -> Answer:
    """What the disk says: present · partial · absent · can't tell. Bars the attempts so far from writing."""
    root = folder.root_of(effect.run.workspace_id)
    try:
        if not root.is_dir():
            return Answer(CANT_TELL, "the workspace's folder can't be seen from here")
        with _alone(root, effect) as lock:
            _bar(lock, effect.attempt)
            return _answer(states_of(effect))
    except Writing:
        return Answer(CANT_TELL, "a process still holds these files")
    except OSError as error:
        return Answer(CANT_TELL, f"the folder could not be read: {error.strerror}")


def inspect(effect: Sendable) -> Inspection | None:
    """What the disk holds of each file; unlike look_up(), it bars nobody."""
    try:
        states = states_of(effect)
    except OSError as error:
        return Inspection(f"The folder could not be read: {error.strerror}.")
    if not states:
        return Inspection("No attempt to write began.")
    happened = sum(one.happened for one in states)
    return Inspection(f"{happened} of {len(states)} files were put in their place.", _observed(states))


def _observed(states: list[State]) -> dict[str, Any]:
    return {"files": [f"{one.path}: {one.state}" for one in states[:TOLD_MAX]], "of": len(states)}


def _answer(states: list[State]) -> Answer:
    happened = [one for one in states if one.happened]
    observed = _observed(states)
    if states and len(happened) == len(states):
        return Answer(PRESENT, "each file was put in its place", observed)
    if not happened:
        left = sum(one.state == "left behind" for one in states)
        detail = f"no file was put in its place; {left} staged ones are left behind"
        return Answer(ABSENT, detail, observed, fenced=True)
    detail = f"{len(happened)} of {len(states)} files were put in their place"
    return Answer(PARTIAL, detail, observed, items=_items(states))


def _items(states: list[State]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for one in states[:TOLD_MAX]:
        named.setdefault(one.state, []).append(one.path)
    return named


# the lock -----------------------------------------------------------------------------------------


@contextmanager
def _alone(root: Path, effect: Sendable) -> Iterator[int]:
    """The effect's lock, a descriptor; it ends with the process. Raises Writing, OSError."""
    with folder.inside(root, [folder.OURS], make=True) as at:
        lock = os.open(f"{effect.pk}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=at)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Writing(effect.pk) from error
        yield lock
    finally:
        os.close(lock)


def _barred(lock: int) -> int:
    """The newest attempt that may not write any more."""
    return int(os.pread(lock, 20, 0) or 0)


def _bar(lock: int, attempt: int) -> None:
    if attempt > _barred(lock):
        os.pwrite(lock, f"{attempt:020d}".encode(), 0)
        os.fsync(lock)


# send ---------------------------------------------------------------------------------------------


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """Stage, look again, rename. applied · partial (which are there) · not_applied · unknown.

    What `ready` raises goes on to the caller, with nothing in its place and nothing left behind.
    """
    root = folder.root_of(effect.run.workspace_id)
    try:
        entries = folder.manifest(bytes(effect.body), str(kind.send.get("folder") or ""))
        with _alone(root, effect) as lock:
            if _barred(lock) >= effect.attempt:
                return Told("not_applied", detail="a look-up came first and barred this attempt")
            return _Sending(root, effect, entries).carry_out(ready)
    except (Unusable, outbound.Refused) as error:
        return Told("not_applied", detail=f"nothing was written: {error}")
    except Writing:
        return Told("unknown", detail="another process holds these files")
    except OSError as error:
        return Told("not_applied", detail=f"nothing was written: {error.strerror}")


compensate = send


class _Sending:
    """One attempt, under the effect's lock."""

    def __init__(self, root: Path, effect: Sendable, entries: list[Entry]) -> None:
        self.root, self.effect, self.entries = root, effect, entries
        self.staged: list[int] = []

    def carry_out(self, ready: Ready) -> Told:
        try:
            self._begin()
            for place in range(len(self.entries)):
                self._stage(place)
            ready()
        except BaseException:
            self._clear()
            raise
        return self._put()

    def _begin(self) -> None:
        """The journal's first line: what is meant, and what was there before; kept if the plan wants it."""
        earlier, _ = _journal(self.root, self.effect)
        plan = [self._planned(place, entry, earlier) for place, entry in enumerate(self.entries)]
        self._say({"attempt": self.effect.attempt, "files": plan})

    def _planned(self, place: int, entry: Entry, earlier: list[dict[str, Any]]) -> dict[str, Any]:
        before = folder.there(self.root, entry.path)
        if earlier and before is not None and before.sha256 == entry.sha256:
            return earlier[place]  # an attempt before this one put it there
        if before is not None and wants_back(self.effect):
            self._keep(place, entry.path)
        return {**entry.told, "before": before.sha256 if before else None}

    def _keep(self, place: int, path: str) -> None:
        """The content that a declared revert puts back."""
        *folders, name = path.split("/")
        with folder.inside(self.root, folders) as source, folder.inside(self.root, [folder.OURS]) as ours:
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=source), "rb") as file:
                content = file.read(folder.DIGESTED_MAX + 1)
            if len(content) > folder.DIGESTED_MAX:
                raise Unusable(f"{path}: what is there is too large to be kept for a revert")
            with suppress(FileNotFoundError):  # of an earlier attempt
                os.unlink(_kept(self.effect, place), dir_fd=ours)
            folder.write(ours, _kept(self.effect, place), content, mode=0o600)

    def _stage(self, place: int) -> None:
        *folders, _ = self.entries[place].path.split("/")
        name = _staged(self.effect, place)
        with folder.inside(self.root, folders, make=True) as at:
            with suppress(FileNotFoundError):  # of an attempt that was killed
                os.unlink(name, dir_fd=at)
            self.staged.append(place)
            folder.write(at, name, self.entries[place].content)

    def _clear(self) -> None:
        for place in self.staged:
            *folders, _ = self.entries[place].path.split("/")
            with suppress(OSError), folder.inside(self.root, folders) as at:
                os.unlink(_staged(self.effect, place), dir_fd=at)

    def _put(self) -> Told:
        """The renames. The first that fails ends them: what is there is told, and what is not."""
        for place, entry in enumerate(self.entries):
            try:
                *folders, name = entry.path.split("/")
                with folder.inside(self.root, folders) as at:
                    os.rename(_staged(self.effect, place), name, src_dir_fd=at, dst_dir_fd=at)
                    os.fsync(at)
                self._say({"done": place})
            except OSError as error:
                return self._partly(error)
        told = [entry.told for entry in self.entries]
        return Told(
            "applied", result={"files": told[:TOLD_MAX], "of": len(told)}, detail="each file is written"
        )

    def _partly(self, error: OSError) -> Told:
        try:
            states = states_of(self.effect)
        except OSError:
            states = []
        if not states:  # a rename may have come before: what can't be read now was not nothing
            return Told("unknown", detail=f"the folder can't be read any more: {error.strerror}")
        happened = sum(one.happened for one in states)
        detail = f"{happened} of {len(states)} files were put in their place: {error.strerror}"
        return Told("partial" if happened else "not_applied", items=_items(states), detail=detail)

    def _say(self, line: dict[str, Any]) -> None:
        """One line of the journal, on the disk when this returns."""
        name = f"{self.effect.pk}.journal"
        with folder.inside(self.root, [folder.OURS]) as at:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=at), "wb") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.fsync(at)


def _staged(effect: Sendable, place: int) -> str:
    return f"{folder.OURS}-{effect.pk}-{place}"


def _kept(effect: Sendable, place: int) -> str:
    return f"{effect.pk}.{place}.before"


# a declared revert --------------------------------------------------------------------------------


class NotDeclared(LookupError):
    """The effect's plan does not say that its files may be put back: nothing does it."""


def wants_back(effect: Sendable) -> bool:
    """Whether the plan that was declared with the intent is to put back what was there before."""
    try:
        plan = json.loads(bytes(getattr(effect, "plan", b"")))
        return bool(plan.get("kind") == "restore_files")
    except (ValueError, AttributeError, RecursionError):
        return False


def put_back(effect: Sendable, ready: Ready = lambda: None) -> Told:
    """Put back what was there before, under the plan `restore_files` that was declared with the intent.

    A file that somebody changed or deleted since is left as it is. applied · partial and not_applied (what
    was left) · unknown. Raises NotDeclared, OSError, and what `ready` raises, which is called directly
    before the first file.
    """
    if not wants_back(effect):
        raise NotDeclared(effect.pk)
    root = folder.root_of(effect.run.workspace_id)
    try:
        with _alone(root, effect) as lock:
            _bar(lock, effect.attempt)
            plan, _ = _journal(root, effect)
            if not plan:
                return Told("not_applied", detail="nothing was put back: no journal says what was there")
            ready()
            return _put_back(root, effect, plan)
    except Writing:
        return Told("unknown", detail="another process holds these files")


def _put_back(root: Path, effect: Sendable, plan: list[dict[str, Any]]) -> Told:
    states = states_of(effect)
    written = [place for place, one in enumerate(states) if one.state == "written"]
    for place in written:
        _restore(root, effect, place, plan[place])
    others = [place for place, one in enumerate(states) if one.happened and place not in written]
    left = [place for place in others if _digest(root, plan[place]["path"]) != plan[place]["before"]]
    if not others:
        return Told("applied", detail="each file is put back")
    detail = f"{len(written)} of {len(written) + len(others)} files were put back"
    if len(left) < len(others):
        detail += f"; {len(others) - len(left)} were as they were before already"
    if not left:
        return Told("applied", detail=detail)
    detail += f"; {len(left)} were changed or deleted since and are left as they are"
    items = _items([states[place] for place in left])
    return Told("partial" if written else "not_applied", items=items, detail=detail)


def is_back(effect: Sendable) -> Answer:
    """Whether each file that the effect wrote is as it was before: present (all of them are) · partial (which
    are left) · absent (none is) · can't tell. Asked under the effect's lock, so nobody is at work on them.
    """
    root = folder.root_of(effect.run.workspace_id)
    try:
        if not root.is_dir():
            return Answer(CANT_TELL, "the workspace's folder can't be seen from here")
        with _alone(root, effect):
            plan, done = _journal(root, effect)
            now = [_digest(root, one["path"]) for one in plan]
            ours = [place for place, one in enumerate(plan) if place in done or now[place] == one["sha256"]]
            left = [plan[place]["path"] for place in ours if now[place] != plan[place]["before"]]
    except Writing:
        return Answer(CANT_TELL, "a process still holds these files")
    except OSError as error:
        return Answer(CANT_TELL, f"the folder could not be read: {error.strerror}")
    if not plan:
        return Answer(CANT_TELL, "no journal says what was there before")
    if not left:
        return Answer(PRESENT, "each file is as it was before", {"of": len(ours)})
    detail = f"{len(left)} of {len(ours)} files are not as they were before"
    partly = PARTIAL if len(left) < len(ours) else ABSENT
    return Answer(partly, detail, {"of": len(ours)}, items={"left": left[:TOLD_MAX]})


def _digest(root: Path, path: str) -> str | None:
    found = folder.there(root, path)
    return found.sha256 if found else None


def _restore(root: Path, effect: Sendable, place: int, one: dict[str, Any]) -> None:
    *folders, name = one["path"].split("/")
    with folder.inside(root, folders) as at, folder.inside(root, [folder.OURS]) as ours:
        if one["before"] is None:
            with suppress(FileNotFoundError):  # somebody was faster: it is as it was before
                os.unlink(name, dir_fd=at)
        else:
            os.rename(_kept(effect, place), name, src_dir_fd=ours, dst_dir_fd=at)
        os.fsync(at)


# registering --------------------------------------------------------------------------------------


def check(new: NewKind) -> None:
    """It names a folder at most, and is of the one class. Raises BadKind."""
    check_class(new, OperationClass.WORKSPACE_CHANGE)
    if "url" in new.send:
        raise BadKind("send", "A kind of provider workspace names a folder, no address")
    if new.lookup not in ({}, INSPECTED):
        raise BadKind("lookup", "Files of provider workspace are inspected; there is nothing to say about it")
    try:
        folder.parts_of(new.send.get("folder") or "files")
    except folder.Unusable as error:
        raise BadKind("send.folder", str(error)) from error
