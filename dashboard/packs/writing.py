"""write(): the evidence pack of a run, into a file, with bounded memory."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.db.models import Max
from django.template.loader import render_to_string

from dashboard.pages.report import ReportPage
from dashboard.statements import Signed, sign, told
from dashboard.statements.making import named
from dashboard.statements.rotation import public_keys
from dashboard.statements.signing import introduce, text_of
from effects.models import Attachment, Report
from runs.evidence import COLUMNS, chain, last_line, seal_stream
from runs.guard import lock_run
from runs.models import Evidence, EvidencePayload, Run, Seal
from runs.store import database_time, verb

FORMAT = "allstop.pack/1"
AT_A_TIME = 1_000  # lines in memory
HERE = Path(__file__).parent
VERIFIER = HERE / "verify.py"
ICON = re.compile(r'<svg class="i [^>]*><use [^>]*></svg>')  # they stand in a file of the server
# What a file is called by its type, so that it opens; its own name stands in attachments.jsonl.
ENDINGS = {
    "application/json": "json",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/plain": "txt",
}


class Zip:
    """Writes files into a zip as they come, and hashes them."""

    def __init__(self, out: IO[bytes], at: datetime) -> None:
        self.zip, self.when = zipfile.ZipFile(out, "w"), at.timetuple()[:6]
        self.digests: dict[str, str] = {}

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        info, text = zipfile.ZipInfo(name, self.when), hashlib.sha256()
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        with self.zip.open(info, "w", force_zip64=True) as file:
            for part in parts:
                text.update(part)
                file.write(part)
        self.digests[name] = text.hexdigest()

    def add_json(self, name: str, value: Any) -> None:
        self.add(name, [json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"])


def write(run: Run, out: IO[bytes]) -> None:
    """The pack of this run as it stands, up to its last line. Who may have it is the caller's question.

    Its stream is sealed before; the statement comes last and names each file's digest and the head.
    """
    seal_stream(run.pk)
    now = _moment(run.pk)
    at, upto = now.at, now.upto
    lines = _Lines(run.pk, upto)
    pack = Zip(out, at)
    with pack.zip:
        for name in ("README.txt", "verify.py"):
            pack.add(name, [(HERE / name).read_bytes()])
        pack.add("lines.jsonl", map(_line_of_json, lines))
        pack.add("seals.jsonl", map(_line_of_json, _seals(run.pk, now.sealed)))
        reports = list(_add_reports(pack, run, now.issued))
        _add_attachments(pack, now.attached)
        introduce()
        pack.add_json("keys.json", public_keys())
        about = {"format": FORMAT, "run": run.pk, "name": run.name, "key": run.key, "status": run.status}
        about |= {"workspace": {"id": run.workspace_id, "name": run.workspace.name}}
        pack.add_json("pack.json", {**about, "at": at.isoformat(), "upto_seq": upto, "reports": reports})
        signed = sign(
            "pack",
            {
                "at": at.isoformat(),
                "workspace": run.workspace_id,
                "streams": [named(run.pk, upto, lines.head)] if upto else [],
                "pack": {"run": run.pk, "files": pack.digests},
            },
        )
        pack.add_json("statement.json", signed.envelope)


@dataclass(frozen=True)
class Moment:
    """What there was at one moment: the last line, and all that lines up to it may tell of.

    A seal beyond `upto` is what is left of an end that was cut off.
    """

    at: datetime
    upto: int
    sealed: int
    issued: list[int]
    attached: list[str]


@verb
def _moment(run_id: str) -> Moment:
    """Read under the run's lock: a version or an attachment comes with its line, here too."""
    lock_run(run_id)
    issued = Report.objects.filter(run=run_id).order_by("version").values_list("version", flat=True)
    attached = Attachment.objects.filter(run=run_id).order_by("pk").values_list("pk", flat=True)
    sealed = Seal.objects.filter(stream=run_id).aggregate(top=Max("upto_seq"))["top"] or 0
    return Moment(database_time(), last_line(run_id), sealed, list(issued), list(attached))


def _line_of_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class _Lines:
    """The lines with their bodies, some at a time; at the end `head` is that of the last one."""

    def __init__(self, stream: str, upto: int) -> None:
        self.stream, self.upto, self.head = stream, upto, ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for first in range(1, self.upto + 1, AT_A_TIME):
            mine = {"stream": self.stream, "seq__range": (first, min(first + AT_A_TIME - 1, self.upto))}
            bodies = {body.seq: body for body in EvidencePayload.objects.filter(**mine)}
            for line in Evidence.objects.filter(**mine).order_by("seq"):
                self.head = chain(self.head, line)
                yield _told(line, bodies.get(line.seq))


def _told(line: Evidence, body: EvidencePayload | None) -> dict[str, Any]:
    """All columns that the chain hashes, in the words that it hashes, and the body."""
    names = ("stream", "seq", "at", "payload_digest", *COLUMNS)
    row = {name: _plain(getattr(line, name)) for name in names}
    removed = body is not None and body.removed_at is not None
    row["body"] = body.body if body is not None and not removed else None
    if removed and body is not None:
        row |= {"removed_at": _plain(body.removed_at), "removed_under": body.removed_under}
    return row


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _seals(stream: str, upto: int) -> Iterator[dict[str, Any]]:
    seals = Seal.objects.filter(stream=stream, upto_seq__lte=upto).order_by("upto_seq")
    for seal in seals.iterator(chunk_size=AT_A_TIME):
        yield {"upto_seq": seal.upto_seq, "head": seal.head, "at": seal.at.isoformat()}


def _add_reports(pack: Zip, run: Run, numbers: list[int]) -> Iterator[dict[str, Any]]:
    """Each issued version: its JSON as issued, to the byte; a page to read; its statement."""
    if numbers:
        pack.add("reports/style.css", [_style()])
    for number in numbers:
        report = Report.objects.select_related("statement").get(run=run, version=number)
        names = {"json": f"reports/v{number}.json", "html": f"reports/v{number}.html"}
        names["statement"] = f"statements/report-v{number}.json"
        pack.add(names["json"], [report.body.encode()])
        pack.add(names["html"], [page_of(run, number).encode()])
        pack.add_json(names["statement"], _envelope(report))
        yield {"version": number, "id": report.pk, "digest": report.digest, **names}


def _envelope(report: Report) -> dict[str, str]:
    statement = getattr(report, "statement", None)
    if statement is not None:
        return told(statement).envelope
    about = {"id": report.pk, "run": report.run_id, "version": report.version, "digest": report.digest}
    text = text_of("report", "", {"at": report.issued_at.isoformat(), "streams": [], "report": about})
    return Signed(text, unsigned="not signed: it was issued before statements were made").envelope


def page_of(run: Run, version: int) -> str:
    """A version as a page that needs no server; its links lead to this one."""
    page = ReportPage(run.pk, version, "", False)
    html: str = render_to_string("packs/report.html", {"page": page, "report": page.report, "run": run})
    html = ICON.sub("", html)
    return html.replace(
        'href="/', f'href="{settings.ALLSTOP_ORIGINS[0]}/' if settings.ALLSTOP_ORIGINS else ""
    )


def _style() -> bytes:
    found = finders.find("allstop.css")
    return Path(found).read_bytes() if found else b""


def _add_attachments(pack: Zip, ids: list[str]) -> None:
    """What people attached: texts stand in the list, files beside it, one in memory at a time.

    Each row is read once: what a rule lets go meanwhile is there with its content, or is said to be gone.
    """
    told_ = []
    for pk in ids:
        row = Attachment.objects.get(pk=pk)
        if row.form == "file":
            pack.add(_name(row), [bytes(row.content)])
        told_.append(_line_of_json(_attached(row)))
    pack.add("attachments.jsonl", told_)


def _attached(row: Attachment) -> dict[str, Any]:
    told_: dict[str, Any] = {"id": row.pk, "form": row.form, "subject": row.subject_id, "matter": row.matter}
    told_ |= {"text": row.text, "file": _name(row) if row.form == "file" else "", "file_name": row.file_name}
    if row.removed_at is not None:
        told_ |= {"removed_at": row.removed_at.isoformat(), "removed_under": row.removed_under}
    return told_ | {"digest": row.digest, "person": row.person_id, "at": row.at.isoformat()}


def _name(row: Attachment) -> str:
    return f"attachments/{row.pk}.{ENDINGS.get(row.content_type, 'bin')}"
