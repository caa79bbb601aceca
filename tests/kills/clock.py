"""A wall clock that is wrong, in one process only. Clocks that only count on (monotonic, boot time) stay.

`time.time` is replaced before anybody imports it. `datetime.now` and `utcnow` read the clock in C, and the
class is a key in the tables of both database drivers: so their C functions are replaced, not the class.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

_PLAIN = 0x0001 | 0x0002 | 0x0010  # METH_VARARGS | METH_KEYWORDS | METH_CLASS
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_Function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
_kept: list[Any] = []  # C holds on to these


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def shift(seconds: float) -> float:
    """Be that much ahead from now on. Returns by how much it is, as datetime says."""
    real, real_ns = time.time, time.time_ns

    def now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
        return cls.fromtimestamp(real() + seconds, tz)

    def utcnow(cls: type[datetime]) -> datetime:
        return cls.fromtimestamp(real() + seconds, UTC).replace(tzinfo=None)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    _replace("now", now)
    _replace("utcnow", utcnow)
    return datetime.now(UTC).timestamp() - real()


def _replace(name: str, function: Callable[..., datetime]) -> None:
    """Have the class method of datetime's C implementation call this instead."""

    def call(cls: Any, args: Any, kwargs: int | None) -> Any:
        named = ctypes.cast(kwargs, ctypes.py_object).value if kwargs else {}
        return function(cls, *args, **named)

    descriptor = vars(datetime)[name]
    place = id(descriptor) + object.__basicsize__ + 3 * _POINTER  # behind the head, type, name and qualname
    method = ctypes.cast(ctypes.c_void_p.from_address(place).value or 0, ctypes.POINTER(_Method)).contents
    made = _Function(call)
    _kept.append((made, descriptor))
    method.flags = _PLAIN
    method.function = ctypes.cast(made, ctypes.c_void_p).value
