"""What has happened before the rules begin: so short sequences come to what long ones seldom meet."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from effects.drain import drain_run
from effects.models import Compensation, Effect
from runs import gate
from runs.models import Run, Step

from .base import CHARGE
from .outside import HOW
from .repairs import Repairs
from .workers import KEYS, small


class Machine(Repairs):
    """All rules together, and the scenes that they begin in."""

    def start_with(self, first: str, scene: str) -> None:
        super().start_with(first, scene)
        if scene:
            getattr(self, f"scene_{scene}")(self.run_of(0))

    # --- what matters most is drawn more often ---

    @precondition(lambda self: self.calls)
    @rule(n=small, far=st.integers(1, 3), how=st.sampled_from(HOW))
    def a_worker_wakes(self, n: int, far: int, how: str) -> None:
        call = self.pick_of(self.calls, n)
        assert call is not None
        self._go_on(call, far, how)

    @precondition(lambda self: self.has_effect("UNKNOWN"))
    @rule(n=small)
    def the_sweep_asks(self, n: int) -> None:
        """What is unknown, and its answer at once."""
        effect = self.pick_of(list(self._effects("UNKNOWN")), n)
        if effect is not None:
            self._ask(effect, True)
            self._apply(len(self.asks) - 1)

    @rule(n=small, key=st.sampled_from(KEYS), far=st.sampled_from([0, 1, 3]), how=st.sampled_from(HOW))
    def a_worker_begins(self, n: int, key: str, far: int, how: str) -> None:
        run = self.run_of(n)
        self._work(run, key, CHARGE, run.cancel_version, 0, far, how)

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

    def scene_long(self, run: Run) -> None:
        """The same, hours later: the window of its provider is over, its holder is not."""
        self.scene_lost(run)
        self.move_clock(7_300)

    def scene_forgotten(self, run: Run) -> None:
        """It arrived, nobody heard of it, and by now its provider has forgotten the key."""
        self.scene_late(run)
        self.bank.arrive()
        self.move_clock(90_000)

    def scene_stepped(self, run: Run) -> None:
        """A claimed step under which one effect was sent."""
        claimed = gate.claim(self.world.ask(run, step_key="s"))
        assert isinstance(claimed, Step)
        self.claims.append(claimed)
        self._under(claimed, "x")
        self._go_on(self.calls[0], 3, "answered")

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
