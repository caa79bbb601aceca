"""One stream as JSON lines: what the chain hashes, bodies, seals, and a signed statement as its last line.

`verify.py FILE.jsonl` follows it. A first line says of which stream it is; a seal stands behind the line that
it seals. The statement names the digest of all before it: a chain alone is gone on with by anybody, and
says nothing of the word "removed". Without the last line the file was cut off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Max

from dashboard.statements import sign
from dashboard.statements.making import named
from dashboard.statements.signing import introduce
from runs.evidence import last_line, seal_stream
from runs.models import Seal
from runs.store import database_time

from .streaming import Streamed, download
from .writing import _line_of_json, _Lines, _seals

FORMAT = "allstop.stream/1"
Row = dict[str, Any]


def written(stream: str) -> Iterator[bytes]:
    """The lines of the file, a few in memory at a time. Who may have it is the caller's question."""
    seal_stream(stream)
    sealed = Seal.objects.filter(stream=stream).aggregate(top=Max("upto_seq"))["top"] or 0
    at, upto, text = database_time().isoformat(), last_line(stream), hashlib.sha256()
    lines = _Lines(stream, upto)
    about = {"format": FORMAT, "stream": stream, "at": at, "upto_seq": upto}
    for row in _rows(about, lines, _seals(stream, sealed)):
        data = _line_of_json(row)
        text.update(data)
        yield data
    introduce()
    told = {"stream": stream, "sha256": text.hexdigest()}
    heads = [named(stream, upto, lines.head)] if upto else []
    yield _line_of_json(dict(sign("pack", {"at": at, "streams": heads, "pack": told}).envelope))


def _rows(about: Row, lines: Iterable[Row], seals: Iterator[Row]) -> Iterator[Row]:
    yield about
    seal = next(seals, None)
    for line in lines:
        yield line
        while seal is not None and seal["upto_seq"] <= line["seq"]:
            yield seal
            seal = next(seals, None)
    if seal is not None:  # what is left of an end that was cut off
        yield from (seal, *seals)


def lines_answer(stream: str, name: str) -> Streamed:
    """The stream as a download."""
    return download(lambda file: file.writelines(written(stream)), "application/x-ndjson", name)
