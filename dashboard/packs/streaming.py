"""Evidence as an answer: built in a file first, so that what breaks off is an error and never half of it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import StreamingHttpResponse

from runs.models import Run

from .writing import write

CHUNK = 256 * 1024


class Streamed(StreamingHttpResponse):
    """Its parts are taken one by one, also by an asynchronous server.

    Django would gather them all first: whatever is iterated in a thread becomes a list.
    """

    async def __aiter__(self) -> AsyncIterator[Any]:
        take = sync_to_async(partial(next, iter(self), None))
        while (part := await take()) is not None:
            yield part


def pack_answer(run: Run) -> Streamed:
    """The run's pack as a download."""
    return download(partial(write, run), "application/zip", f"{run.pk}-evidence.zip")


def download(written: Callable[[IO[bytes]], object], content_type: str, name: str) -> Streamed:
    """What this writes, as a file of that name. While it is read, no database connection is held."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the last read, or when collected
    try:
        written(file)
    except BaseException:
        file.close()
        raise
    size = file.tell()
    file.seek(0)
    if not connection.in_atomic_block:
        connection.close()
    answer = Streamed(_parts(file), content_type=content_type)
    answer["Content-Length"] = str(size)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(CHUNK):
            yield part
