"""What the agents of the seven scenarios do. Each takes a Work (see agent.py)."""

from __future__ import annotations

import hashlib
import http.client
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from allstop import MustWait, Outcome, WaitingForApproval

from .agent import Work
from .files import HALF, WHOLE

TOKENS = 40  # that the drill's model would make, one every PIECE_S
PIECE_S = 0.1
TIMEOUT_S = 0.5  # so long the agent waits for an answer that does not come


def reason(work: Work) -> None:
    """A model turn that goes on until a stop is known; then an effect, which nothing should permit."""
    turn = work.run.turn()

    def think() -> str:
        for number in range(TOKENS):
            turn.spend(model="drill-model", tokens_in=12, tokens_out=number + 1)
            turn.partial(f"thought {number} ")
            work.mark("reasoning")
            time.sleep(PIECE_S)
        return "an answer"

    try:
        turn.send(think)
    finally:
        work.mark("over")
    work.charge(work.words["effect"])


def look(work: Work) -> None:
    """A read that is under way until it is let go; then an effect."""

    def read() -> dict[str, Any]:
        work.mark("reading")
        work.wait()
        place = urlsplit(work.provider)
        asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            asked.request("GET", f"/charges?key={work.words['effect']}")
            return {"status": asked.getresponse().status}
        finally:
            asked.close()

    work.told["read"] = work.run.read(read)["status"]
    work.mark("read")
    work.charge(work.words["effect"])


def write_files(work: Work) -> None:
    """Three files: a whole one, one that is broken off at a safe point after its first half, and one more."""
    write(work, "one")
    write(work, "two", half=True)
    write(work, "three")


def write(work: Work, name: str, *, half: bool = False) -> None:
    """One file of the drill's own folder, with its size and digest in the report."""
    effect = work.run.effect(
        key=f"{work.words['effect']}:{name}",
        kind="drill.file",
        op_class="workspace_change",
        none_because="a drill",
    )
    effect.send(put, work, name, half)


def put(work: Work, name: str, half: bool) -> Outcome:
    """Write the first half; then the second, unless the file is to be left as it is."""
    path = work.folder / f"file-{name}"
    path.write_bytes(HALF)
    if half:
        work.mark("half")
        work.wait()
    else:
        path.write_bytes(WHOLE)
    data = path.read_bytes()
    item = {"path": path.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return Outcome("partial" if half else "applied", items=[item], detail="Broken off." if half else None)


def time_out(work: Work) -> None:
    """A request whose answer does not come in time; after the stop the same key again, then another."""
    key = work.words["effect"]
    with suppress(TimeoutError):
        work.charge(key, within_s=TIMEOUT_S)
    work.mark("timed-out")
    work.wait()
    try:
        work.charge(key)
    except MustWait:
        work.told["again"] = "must wait"
    work.charge(f"{key}:next")


def ask_people(work: Work) -> None:
    """An effect that people decide about, asked for again after the stop."""
    with suppress(WaitingForApproval):
        work.charge(work.words["effect"], approval=True)
    work.mark("waiting")
    work.wait()
    work.charge(work.words["effect"], approval=True)


def three_charges(work: Work) -> None:
    """Three effects: one that is taken, one that is declined, one whose answer is held."""
    key = work.words["effect"]
    for name in ("taken", "declined", "held"):
        work.mark(name)
        work.charge(f"{key}:{name}")


def three_again(work: Work) -> None:
    """The same three, after a resume: only what is known not to have happened is sent."""
    skipped: list[str] = []
    for name in ("taken", "declined", "held"):
        effect = work.effect(f"{work.words['effect']}:{name}")
        effect.send(work.post, effect.key)
        skipped += [name] if effect.skipped else []
    work.told["skipped"] = " and ".join(skipped)
