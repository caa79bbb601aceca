"""The outside world of these tests: a function that counts how often it was really called."""

from __future__ import annotations

from typing import Any

from allstop import Effect, Run


class Charge:
    """Stands for a provider's API. `raises`: what a call raises after it was made."""

    def __init__(self, raises: BaseException | None = None, returns: Any = None) -> None:
        self.calls: list[str] = []
        self._raises = raises
        self._returns = returns

    def __call__(self, key: str) -> Any:
        self.calls.append(key)
        if self._raises is not None:
            raise self._raises
        return {"id": "ch_1"} if self._returns is None else self._returns


def charging(run: Run, key: str = "charge:7") -> Effect:
    return run.effect(key=key, kind="bank.charge", body='{"amount": 100}', none_because="a test")
