"""One stream as JSON lines: what the chain hashes, bodies, seals, and a signed statement as its last line.

`verify.py FILE.jsonl` follows it. A first line says of which stream it is; a seal stands behind the line that
it seals. Without the last line the file was cut off.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any

from django.db import connection
from django.db.models import Max

from dashboard.statements import sign
from dashboard.statements.making import named
from dashboard.statements.signing import introduce
from runs.evidence import last_line, seal_stream
from runs.models import Seal
from runs.store import database_time

from .streaming import Streamed, _parts
from .writing import _line_of_json, _Lines, _seals

FORMAT = "allstop.stream/1"


def rows(stream: str) -> Iterator[dict[str, Any]]:
    """The lines of the file, a few in memory at a time. Who may have it is the caller's question."""
    seal_stream(stream)
    sealed = Seal.objects.filter(stream=stream).aggregate(top=Max("upto_seq"))["top"] or 0
    at, upto = database_time().isoformat(), last_line(stream)
    yield {"format": FORMAT, "stream": stream, "at": at, "upto_seq": upto}
    lines, seals = _Lines(stream, upto), _seals(stream, sealed)
    seal = next(seals, None)
    for line in lines:
        yield line
        while seal is not None and seal["upto_seq"] <= line["seq"]:
            yield seal
            seal = next(seals, None)
    if seal is not None:  # what is left of an end that was cut off
        yield from (seal, *seals)
    introduce()
    heads = [named(stream, upto, lines.head)] if upto else []
    yield dict(sign("pack", {"at": at, "streams": heads, "pack": {"stream": stream}}).envelope)


def lines_answer(stream: str, name: str) -> Streamed:
    """The stream as a download. While it is read, no database connection is held."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the last read, or when collected
    try:
        for row in rows(stream):
            file.write(_line_of_json(row))
    except BaseException:
        file.close()
        raise
    size = file.tell()
    file.seek(0)
    if not connection.in_atomic_block:
        connection.close()
    answer = Streamed(_parts(file), content_type="application/x-ndjson")
    answer["Content-Length"] = str(size)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
