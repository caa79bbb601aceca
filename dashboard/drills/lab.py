"""What one drill works with: an instance, a provider, a network, agents; and where it notes what it found."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .api import Api, Json, Said
from .checks import Findings, NotMade
from .instance import Instance, Private
from .processes import Agent, environment
from .provider import Provider
from .proxy import Proxy
from .waiting import until

Tell = Callable[[str], None]
Holds = Callable[[Json], bool]
EVIDENCE_WITHIN_S = 8.0


@dataclass
class Lab:
    """One drill at work. `key`: its run's, and what the keys of its effects begin with.

    private: the instance may be killed and its store taken away; None where it is not ours.
    """

    name: str
    title: str
    instance: Instance
    provider: Provider
    folder: Path
    tell: Tell
    private: Private | None = None
    findings: Findings = field(default_factory=Findings)
    key: str = ""
    _run: Json = field(default_factory=dict)
    _ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.key = self.key or f"drill-{self.name}-{uuid.uuid4().hex[:8]}"
        self.api = Api(self.instance.url, self.instance.token)
        self._ends.callback(self.api.close)

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.provider.release()
        self._ends.close()

    # -- what happens

    def step(self, said: str) -> None:
        """A tick for whoever watches: what was done just now."""
        self.tell(said)

    def proxy(self) -> Proxy:
        """A network of its own between agents and the instance."""
        return self._ends.enter_context(Proxy(self.instance.for_agents))

    def agent(
        self,
        way: str,
        *,
        key: str = "",
        url: str = "",
        lease_s: float = 30,
        beat_s: float = 60,
        patience_s: float = 20,
        **words: str,
    ) -> Agent:
        """Start an agent on the run with this key (the drill's own). way: MODULE:FUNCTION of this package.

        url: where it asks, a proxy for one. words: what the way finds in `work.words`.
        """
        folder = self.folder / f"agent-{next(self._numbers)}"
        folder.mkdir()
        options = {
            "way": way,
            "key": key or self.key,
            "name": f"DRILL: {self.title}",
            "provider": self.provider.url,
            "folder": folder,
            "lease": lease_s,
            "beat": beat_s,
            "patience": patience_s,
        }
        told = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        told += [part for name, text in words.items() for part in ("--word", f"{name}={text}")]
        environ = environment(
            ALLSTOP_URL=url or self.instance.for_agents,
            ALLSTOP_TOKEN=self.instance.token,
            ALLSTOP_BUFFER=str(self.folder / "buffer"),
        )
        agent = Agent(told, environ, folder)
        self._ends.callback(agent.end)
        return agent

    def run(self, key: str = "", within_s: float = 20) -> Json:
        """The run with this key (the drill's own), once it is registered; its report is the drill's.

        Raises NotMade when no agent registers it.
        """
        found = until(lambda: self.api.run_of(key or self.key), within_s)
        if not found:
            raise NotMade(f"No agent registered the run {key or self.key} in time.")
        if not key:
            self.findings.report = f"{found['url'].rstrip('/')}/report"
            self._run = found
        return found

    def reported(self) -> None:
        """Note what the report of the drill's run says of itself, and of work begun after the stop."""
        if not self._run:
            return
        report = self.api.get(f"runs/{self._run['id']}/report")
        self.evidence("Questions that the report answers", 5, len(report["sections"]))
        self.evidence("The report says that it is a drill's", True, report["run"]["drill"])
        self.evidence("Work begun after the stop, by the report", 0, report["new_work"]["found"])

    def stop(self, run: Json, *, key: str = "", **words: object) -> Said:
        """Press Stop on the run, with a mode, a deadline_s, …; a cancel unless they say otherwise."""
        body = {"reason": "drill", "note": f"DRILL: {self.title}", "deadline_s": 30, **words}
        return self.api.ask("POST", f"runs/{run['id']}/stops", body, key=key or uuid.uuid4().hex)

    # -- what was found

    def situation(self, what: str, expected: object, observed: object, ok: bool | None = None) -> None:
        """Note whether the situation occurred. Raises NotMade if not: nothing that follows would say much."""
        if not self.findings.add("situation", what, expected, observed, ok):
            raise NotMade("")

    def reached(self, agent: Agent, mark: str, what: str, within_s: float = 20) -> None:
        """Note that an agent stands at that mark. Raises NotMade, with its last words, when it does not."""
        there = agent.reached(mark, within_s)
        last = (agent.said().strip().splitlines() or ["nothing was heard of it"])[-1]
        self.situation(what, "yes", "yes" if there else last[:300], there)

    def stopped(self, said: Said) -> Json:
        """The stop that was acknowledged by this answer. Raises NotMade when it was not."""
        self.situation("Stop acknowledged", "201", said.status, said.status == 201)
        stop: Json = said.data
        self.step(f"Stop #{stop['number']} acknowledged.")
        return stop

    def safety(self, what: str, expected: object, observed: object, ok: bool | None = None) -> None:
        """Note what the provider's ledger says."""
        self.findings.add("safety", what, expected, observed, ok)

    def evidence(self, what: str, expected: object, observed: object, ok: bool | None = None) -> None:
        """Note what an operator can read."""
        self.findings.add("evidence", what, expected, observed, ok)

    def sends(self, key: str, expected: int, applied: int | None = None) -> None:
        """How often the provider was asked, and how often the world changed, under that key."""
        changed, name = expected if applied is None else applied, self.short(key)
        self.safety(f"Requests for {name} at the provider", expected, self.provider.sends(key))
        self.safety(f"Changes by {name} at the provider", changed, self.provider.applied(key))

    def short(self, key: str) -> str:
        """A key of this drill without what all of them begin with."""
        return key.removeprefix(f"{self.key}:")

    def lines(
        self,
        run: Json,
        expected: dict[str, int],
        where: Holds = lambda line: True,
        within_s: float = EVIDENCE_WITHIN_S,
    ) -> list[Json]:
        """Note how many lines of each kind the run's evidence has; waits until they are there.

        where: which lines count. Returns all of them.
        """

        def counted() -> Counter[str]:
            return Counter(line["kind"] for line in self.api.lines(run["id"]) if where(line))

        def there() -> bool:
            found = counted()
            return all(found[kind] >= count for kind, count in expected.items())

        until(there, within_s, 0.15)
        found = counted()
        for kind, count in expected.items():
            self.evidence(f"Lines {kind}", count, found[kind])
        return self.api.lines(run["id"])

    def rests(
        self, run: Json, status: str, outcome: str | None = None, within_s: float = EVIDENCE_WITHIN_S
    ) -> Json:
        """Note where the run comes to rest, and what its outcome is called; waits for it."""
        until(lambda: self.api.get(f"runs/{run['id']}")["status"] == status, within_s, 0.15)
        now: Json = self.api.get(f"runs/{run['id']}")
        self.evidence("Status of the run", status, now["status"])
        if outcome is not None:
            self.evidence("Outcome of the run", outcome, now["outcome"])
        return now

    def effect(self, run: Json, key: str, settlement: str, within_s: float = EVIDENCE_WITHIN_S) -> None:
        """Note how the effect with that key is settled; waits for it."""

        def seen() -> str:
            return self.settlement(run, key)

        until(lambda: seen() == settlement, within_s, 0.15)
        self.evidence(f"Effect {self.short(key)}", settlement, seen())

    def settlement(self, run: Json, key: str) -> str:
        """How the effect with that key is settled now; empty when there is none."""
        effects: Iterable[Json] = self.api.get(f"runs/{run['id']}/effects")["items"]
        return next((str(effect["settlement"]) for effect in effects if effect["key"] == key), "")

    def permits(self, run: Json, key: str) -> int:
        """How many permits the gate gave for that key."""
        return sum(
            line["kind"] == "permit.opened" and line["effect_key"] == key
            for line in self.api.lines(run["id"])
        )

    def ended(self, agent: Agent, expected: str, within_s: float = 20) -> None:
        """Note how the agent's process ended."""
        self.evidence("The agent ended with", expected, agent.ended(within_s))


def first(lines: Iterable[Json], kind: str, **fields: Any) -> Json:
    """The first line of that kind with these fields; empty when there is none."""
    for line in lines:
        if line["kind"] == kind and all(line.get(name) == value for name, value in fields.items()):
            return line
    return {}
