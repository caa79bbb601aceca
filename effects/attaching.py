"""Evidence that people attach to an unknown: a provider's reference, a link, a quote, or a small file."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

from runs import redaction
from runs.access import Actor, demand
from runs.evidence import Line, digest, record
from runs.guard import lock_run
from runs.models import User
from runs.saying import words_in
from runs.store import verb

from .models import Attachment
from .unknowns import row_of
from .verdicts import FILE_MAX, TEXT_MAX, NotResolved

MOST = 50
FORMS = ("reference", "link", "quote", "file")
ANY_TYPE = "application/octet-stream"
# What a browser shows as it is, and never runs; everything else is a row of bytes.
TYPES = re.compile(r"(text/(plain|csv)|application/(pdf|json|zip)|image/(png|jpeg|gif|webp))")


def attach(
    *,
    actor: Actor,
    subject_id: str,
    form: str,
    text: str = "",
    file_name: str = "",
    content_type: str = "",
    content: bytes = b"",
) -> Attachment | NotResolved:
    """Keep evidence: form "reference" · "link" · "quote" (`text`) · "file" (`content`, up to FILE_MAX bytes).

    Name and type of a file are cleaned before they are kept. Raises NotFound, NotAllowed.
    """
    said = redaction.text(words_in(text))[:TEXT_MAX]
    content = _without_secrets(content)
    why = _objection(form, said, content)
    if why:
        demand(actor, "resolve", row_of(subject_id)[1].run)
        return NotResolved(why)
    named = {"file_name": clean_name(redaction.text(file_name)), "content_type": clean_type(content_type)}
    given: dict[str, object] = {"content": content, **named}
    if form != "file":
        given = {"text": said}
    return _attach(actor, subject_id, form, given)


def _without_secrets(content: bytes) -> bytes:
    """A file that is a text is kept without them, and its digest is of what is kept; others as they are."""
    try:
        return redaction.text(content.decode()).encode() if len(content) <= FILE_MAX else content
    except UnicodeDecodeError:
        return content


def _objection(form: str, said: str, content: bytes) -> str:
    if form not in FORMS:
        return "form"
    if form == "file":
        return "evidence" if not content else "too_big" if len(content) > FILE_MAX else ""
    if not said:
        return "evidence"
    return "" if form != "link" or _is_link(said) else "link"


def _is_link(said: str) -> bool:
    try:
        parts = urlsplit(said)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", said)


@verb
def _attach(actor: Actor, subject_id: str, form: str, given: dict[str, object]) -> Attachment | NotResolved:
    run = lock_run(row_of(subject_id)[1].run_id)
    demand(actor, "resolve", run)
    matter, row = row_of(subject_id)
    person: User | None = actor.user
    if person is None or actor.via != "page":
        return NotResolved("token")
    if Attachment.objects.filter(subject_id=subject_id).count() >= MOST:
        return NotResolved("too_many")
    kept = given.get("content") or str(given.get("text", "")).encode()
    assert isinstance(kept, bytes)
    made = Attachment.objects.create(
        workspace_id=run.workspace_id,
        run=run,
        matter=matter,
        subject_id=subject_id,
        form=form,
        person=person,
        digest=digest(kept),
        **given,
    )
    told = {"attachment": made.pk, "form": form, "digest": made.digest, "bytes": len(kept)}
    record(run, Line("unknown.attached", actor.id, told | _shown(made), effect_key=row.key))
    return Attachment.objects.defer("content").get(pk=made.pk)


def _shown(made: Attachment) -> dict[str, str]:
    return {"file_name": made.file_name} if made.form == "file" else {"text": made.text[:300]}


def clean_name(name: str) -> str:
    """The last part of a path, of signs that nothing takes for something else; "file" if none is left."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    kept = "".join(
        sign if unicodedata.category(sign)[0] in "LN" or sign in " ._-()" else "_"
        for sign in last
        if unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    return kept.strip(" .")[-200:] or "file"


def clean_type(content_type: str) -> str:
    """The media type if it is one of a few harmless ones; else a row of bytes."""
    plain = content_type.split(";")[0].strip().lower()
    return plain if TYPES.fullmatch(plain) else ANY_TYPE
