"""What has happened before the rules begin: so short sequences come to what long ones seldom meet."""

from __future__ import annotations

from effects.drain import drain_run
from effects.models import Compensation, Effect
from runs import gate
from runs.models import Run, Step

from .base import CHARGE
from .repairs import Repairs


class Machine(Repairs):
    """All rules together, and the scenes that they begin in."""

    def start_with(self, first: str, scene: str) -> None:
        super().start_with(first, scene)
        if scene:
            getattr(self, f"scene_{scene}")(self.run_of(0))

    def _rest(self, run: Run, mode: str) -> None:
        self._press(run, mode, "alice")
        drain_run(run.pk)

    def scene_opened(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 0, 0, "answered")

    def scene_looked(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 0, 1, "answered")

    def scene_late(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 0, 3, "late")

    def scene_lost(self, run: Run) -> None:
        """Its holder looked, and was not heard of again; it may send still."""
        self.scene_looked(run)
        self.move_clock(61)
        drain_run(run.pk)

    def scene_shut(self, run: Run) -> None:
        """The gate of the workspace is shut, its runs are not reached, a worker holds a permit."""
        self.scene_opened(run)
        self._stop_scope("workspace", "pause", "alice", dies=True)

    def scene_paused(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 0, 3, "answered")
        self._rest(run, "pause")

    def scene_resumed(self, run: Run) -> None:
        """Also with a claim from before."""
        claimed = gate.claim(self.world.ask(run, step_key="s"))
        assert isinstance(claimed, Step)
        self.claims.append(claimed)
        self._rest(run, "pause")
        self._resume(Run.objects.get(pk=run.pk))

    def scene_stale(self, run: Run) -> None:
        """A worker looked before the pause; the run goes on at another version, without it."""
        self.scene_opened(run)
        self._go_on(self.calls[0], 2, "refused")
        self._say(self.calls[0], honest=True)
        self._rest(run, "pause")
        self._resume(Run.objects.get(pk=run.pk))

    def scene_stopped(self, run: Run) -> None:
        """Cancelled, and it awaits what became of an effect."""
        self.scene_late(run)
        self._rest(run, "cancel")

    def scene_waiting(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 1, 0, "answered")

    def scene_message(self, run: Run) -> None:
        self._queue(run, "m")
        self._end_run(run, "complete")

    def scene_done(self, run: Run) -> None:
        self._work(run, "a", CHARGE, 1, 0, 3, "answered")
        self._end_run(run, "complete")

    def scene_proposed(self, run: Run) -> None:
        self.scene_done(run)
        self._propose(Effect.objects.get(run=run), "alice")

    def scene_approved(self, run: Run) -> None:
        self.scene_proposed(run)
        for who in ("bob", "carol")[: self.needed]:
            self._approve(self.review_at(0), who)

    def scene_sent(self, run: Run) -> None:
        self.scene_approved(run)
        self._carry_out(Compensation.objects.get(run=run), 0, "answered")
