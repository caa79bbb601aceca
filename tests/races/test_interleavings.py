"""A dispatch and a stop meet at one run, in each order that matters; nothing starts that no stop knows of.

The first half runs gate.dispatch and stops.request_stop on both databases. The second half feeds the same
checker the shapes that look right: it must catch them. That is how we know that it can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from effects import intents
from runs.guard import Opened, Refusal
from runs.models import Permit, Receipt, Run, Step
from tests.races import unsafe
from tests.races.checker import Verdict, verdict
from tests.races.sides import sides
from tests.worlds import World, fresh, in_seconds, intention

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]


@dataclass(frozen=True)
class Met:
    """What came of a meeting. `waited`: the second of the two waited for the first."""

    waited: bool
    worker: Any
    verdict: Verdict


class Scene:
    """A run with one step that a worker holds."""

    def __init__(self) -> None:
        self.world = World()
        self.run = self.world.run()
        self.step = self.world.claimed(self.run)
        # A first call at a boundary writes its receipt, and the run's row with it; here nothing is new.
        Receipt.objects.create(run=self.run, worker="w-1", boundary="dispatch", version=1)

    def verdict(self) -> Verdict:
        return verdict(self.world.workspace.pk)

    # --- the product's own ways -------------------------------------------------------------------------

    def dispatch(self) -> Any:
        return intents.dispatch(self.world.ask_of(self.step), intention())

    def register_and_dispatch(self) -> Any:
        return intents.dispatch(self.world.ask(self.run, step_key="another"), intention())

    def stop(self) -> Any:
        return self.world.stop(self.run)

    def heartbeat(self) -> None:
        """Holds the row of the step until its commit, as a slow one would."""
        with transaction.atomic():
            Step.objects.filter(pk=self.step.pk).update(lease_until=in_seconds(90))


Call = Callable[[], Any]


def or_error(call: Call) -> Any:
    try:
        return call()
    except OperationalError as error:
        return error


def worker_first(scene: Scene, dispatch: Call, stop: Call) -> Met:
    """The worker has checked and written; the stop comes before its commit."""
    with sides() as make:
        worker = make("worker", dispatch, hold="COMMIT")
        worker.stands()
        stopper = make("stop", stop)
        waited = stopper.waits_for(worker)
        if not waited:
            stopper.result()  # acknowledged, while the worker has yet to commit
        answer = or_error(worker.result)
        stopper.result()
    return Met(waited, answer, scene.verdict())


def stop_first(scene: Scene, dispatch: Call, stop: Call) -> Met:
    """The stop has ended the version and read its list; the worker comes before its commit."""
    with sides() as make:
        stopper = make("stop", stop, hold="COMMIT")
        stopper.stands()
        worker = make("worker", dispatch)
        waited = worker.waits_for(stopper)
        if not waited:
            worker.result()
        stopper.result()
        answer = or_error(worker.result)
    return Met(waited, answer, scene.verdict())


def heartbeat_between(scene: Scene, dispatch: Call, stop: Call) -> Met:
    """A heartbeat holds the step; the worker waits for it with its check done; then the stop comes."""
    with sides() as make:
        heart = make("heartbeat", scene.heartbeat, hold="COMMIT")
        heart.stands()
        worker = make("worker", dispatch)
        assert worker.waits_for(heart)
        stopper = make("stop", stop)
        waited = stopper.waits_for(worker)
        if not waited:
            stopper.result()
        heart.result()
        answer = or_error(worker.result)
        stopper.result()
    return Met(waited, answer, scene.verdict())


# --- The gate and the stop --------------------------------------------------------------------------------

WAYS = [Scene.dispatch, Scene.register_and_dispatch]


@pytest.mark.invariant("I2")
@pytest.mark.parametrize("way", WAYS)
def test_a_stop_waits_for_a_dispatch_that_has_checked_and_lists_it(way: Callable[[Scene], Any]) -> None:
    """E1, E4, E13, E14: also for an effect that is registered and dispatched in one call."""
    scene = Scene()
    met = worker_first(scene, lambda: way(scene), scene.stop)
    assert met.waited
    assert isinstance(met.worker, Opened)
    assert (met.verdict.listed, met.verdict.unlisted, met.verdict.stops) == (1, 0, 1)
    assert fresh(met.worker.step).status == "DISPATCHED"
    assert fresh(scene.step).status == ("DISPATCHED" if way is Scene.dispatch else "WITHHELD")


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("way", WAYS)
def test_a_dispatch_waits_for_a_stop_that_has_begun_and_is_refused(way: Callable[[Scene], Any]) -> None:
    """E5, E8, E12, E16: nothing that was read before the wait is believed after it."""
    scene = Scene()
    met = stop_first(scene, lambda: way(scene), scene.stop)
    assert met.waited
    assert isinstance(met.worker, Refusal)
    assert (met.worker.reason, met.worker.carried_version, met.worker.current_version) == ("stopped", 1, 2)
    assert (met.verdict.permits, met.verdict.listed, met.verdict.stops) == (0, 0, 1)
    assert fresh(scene.step).status == "WITHHELD"
    assert Step.objects.count() == 1


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I2")
def test_a_stop_waits_for_a_dispatch_that_itself_waits_for_a_heartbeat() -> None:
    """E2, E6: the check is done, the write is late."""
    scene = Scene()
    met = heartbeat_between(scene, scene.dispatch, scene.stop)
    assert met.waited
    assert isinstance(met.worker, Opened)
    assert (met.verdict.listed, met.verdict.unlisted) == (1, 0)
    assert fresh(scene.step).status == "DISPATCHED"


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I2")
def test_a_stop_waits_for_a_heartbeat_that_holds_a_step_which_it_withholds() -> None:
    scene = Scene()
    with sides() as make:
        heart = make("heartbeat", scene.heartbeat, hold="COMMIT")
        heart.stands()
        stopper = make("stop", scene.stop)
        assert stopper.waits_for(heart)
        worker = make("worker", scene.dispatch)
        assert worker.waits_for(stopper)
        heart.result()
        stopper.result()
        assert isinstance(worker.result(), Refusal)
    assert (fresh(scene.step).status, Permit.objects.count()) == ("WITHHELD", 0)


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I1")
def test_a_dispatch_on_a_snapshot_from_before_the_stop_is_tried_again_and_refused() -> None:
    """E11: a connection that is set to REPEATABLE READ starves of nothing but its first try."""
    scene = Scene()

    def old_snapshot() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_isolation = 'repeatable read'")
        try:
            return scene.dispatch()
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET default_transaction_isolation")

    met = stop_first(scene, old_snapshot, scene.stop)
    assert met.waited
    assert isinstance(met.worker, Refusal)
    assert met.verdict.permits == 0


@pytest.mark.only("postgresql")
@pytest.mark.invariant("I2")
def test_every_connection_reads_what_was_committed_before_each_statement() -> None:
    """E9, E10, E11: a stop that read one old snapshot would miss what it waited for."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW default_transaction_isolation")
        assert cursor.fetchone()[0] == "read committed"
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone()[0] == "on"


# --- The shapes that look right ---------------------------------------------------------------------------

Shape = Callable[[Run, Step], int]
StopShape = Callable[[Run], None]


def met_by(script: Callable[..., Met], dispatch: Shape | None, stop: StopShape | None) -> Met:
    """Two shapes in a script; None stands for the product's own dispatch, or its own stop."""
    scene = Scene()
    begun = scene.dispatch if dispatch is None else partial(dispatch, scene.run, scene.step)
    ended = scene.stop if stop is None else partial(stop, scene.run)
    return script(scene, begun, ended)


UNSAFE = [
    pytest.param(worker_first, unsafe.plain, unsafe.simple_stop, id="E1-plain-exists"),
    pytest.param(
        heartbeat_between, unsafe.one_statement, unsafe.simple_stop, id="E2-autocommit-behind-heartbeat"
    ),
    pytest.param(heartbeat_between, unsafe.plain, unsafe.simple_stop, id="E2-atomic-behind-heartbeat"),
    pytest.param(worker_first, unsafe.key_share, unsafe.simple_stop, id="E3-for-key-share"),
    pytest.param(stop_first, unsafe.plain, unsafe.simple_stop, id="E5-plain-exists"),
    pytest.param(stop_first, unsafe.one_statement, unsafe.simple_stop, id="E5-autocommit"),
    pytest.param(worker_first, None, unsafe.one_statement_stop, id="E7-list-in-the-same-statement"),
    pytest.param(stop_first, unsafe.step_locked_only, unsafe.simple_stop, id="E8-only-the-step-locked"),
    pytest.param(worker_first, unsafe.serializable, unsafe.simple_stop, id="E10-serializable-on-one-side"),
    pytest.param(worker_first, unsafe.repeatable_read, unsafe.repeatable_read_stop, id="E11-repeatable-read"),
    pytest.param(worker_first, None, unsafe.repeatable_read_stop, id="E11-stop-on-an-old-snapshot"),
    pytest.param(worker_first, unsafe.inserted, None, id="E13-inserted-as-dispatched"),
    pytest.param(stop_first, unsafe.inserted, None, id="E13-inserted-while-the-stop-commits"),
    pytest.param(stop_first, unsafe.advisory_inside, unsafe.advisory_stop, id="E15-advisory-lock-inside"),
    pytest.param(worker_first, unsafe.joined_dispatch, unsafe.simple_stop, id="joined-update"),
    pytest.param(stop_first, unsafe.joined_dispatch, unsafe.simple_stop, id="joined-update-stop-first"),
]


@pytest.mark.only("postgresql")
@pytest.mark.parametrize(("script", "dispatch", "stop"), UNSAFE)
def test_the_checker_sees_what_an_unsafe_shape_lets_through(
    script: Callable[..., Met], dispatch: Shape | None, stop: StopShape | None
) -> None:
    met = met_by(script, dispatch, stop)
    assert met.worker == 1 or isinstance(met.worker, Opened), "the worker was told that it may send"
    assert (met.verdict.unlisted, met.verdict.listed, met.verdict.stops) == (1, 0, 1)


@pytest.mark.parametrize("stop", [unsafe.simple_stop, None])
def test_a_check_and_a_write_in_two_statements_are_wrong_on_both_databases(stop: StopShape | None) -> None:
    scene = Scene()
    ended = scene.stop if stop is None else partial(stop, scene.run)
    with sides() as make:
        worker = make(
            "worker", partial(unsafe.two_statements, scene.run, scene.step), hold='UPDATE "runs_step"'
        )
        worker.stands()
        stopper = make("stop", ended)
        assert not stopper.waits_for(worker)
        stopper.result()
        worker.result()
    found = scene.verdict()
    assert (found.unlisted, found.listed, found.stops) == (1, 0, 1)


RIGHT = [
    pytest.param(worker_first, unsafe.share, unsafe.simple_stop, 1, id="E4-for-share"),
    pytest.param(stop_first, unsafe.share, unsafe.simple_stop, 0, id="E5-for-share"),
    pytest.param(heartbeat_between, unsafe.share, unsafe.simple_stop, 1, id="E6-for-share-behind-heartbeat"),
    pytest.param(
        worker_first, unsafe.serializable, unsafe.serializable_stop, 0, id="E9-serializable-on-both-sides"
    ),
    pytest.param(worker_first, unsafe.plain, None, 1, id="E12-plain-against-a-stop-that-withholds"),
    pytest.param(worker_first, unsafe.inserted_behind_a_lock, None, 1, id="E14-inserted-behind-a-lock"),
    pytest.param(stop_first, unsafe.advisory_first, unsafe.advisory_stop, 0, id="E16-advisory-lock-first"),
]


@pytest.mark.only("postgresql")
@pytest.mark.parametrize(("script", "dispatch", "stop", "listed"), RIGHT)
def test_the_checker_is_content_with_a_shape_that_is_right(
    script: Callable[..., Met], dispatch: Shape | None, stop: StopShape | None, listed: int
) -> None:
    met = met_by(script, dispatch, stop)
    assert (met.verdict.unlisted, met.verdict.listed, met.verdict.stops) == (0, listed, 1)
    assert met.waited or dispatch is unsafe.serializable
