"""The effects' tests live in the same world, and under the same eye, as those of runs."""

from tests.runs.conftest import guarded_updates, world

__all__ = ["guarded_updates", "world"]
