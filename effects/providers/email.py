"""The provider email: an effect is one message through the server of EMAIL_URL; its outcome is per recipient.

The body: {"to": [addresses], "cc"?: [addresses], "subject", "text" or "html"}. `kind.send` is empty;
`kind.lookup` is empty, or that of provider http where the mail service keeps a record.

A mail server takes the message for all receivers that it accepted, or for none, at one moment: its answer to
the end of the text. Before that, nothing can arrive; when that answer is lost, nobody here can say.
"""

from __future__ import annotations

import hashlib
import json
import re
import smtplib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import get_connection
from django.core.validators import validate_email

from effects.models import Kind
from effects.new_kind import BadKind, NewKind, Questions, check_class, check_lookup
from effects.settle import Told
from runs.models import OperationClass

from .http import inspect, look_up
from .shape import Ready, Sendable

QUESTIONS = Questions(
    commits="When the mail server answers 250 to the end of the text, for every receiver that it accepted.",
    tells_apart=("CONFIRMED", "PARTIAL", "NOT_APPLIED"),
    idempotency="None at the server. The Message-ID comes from the effect key, the same on every attempt.",
    compensation="None: a mail that was sent can't be called back. A second mail may correct it.",
    durable_before_pause="The key, and the message as it will be sent.",
    when_unknown="The text left and the server's answer was lost: each accepted receiver may have it.",
)
LIMIT_S = 60.0  # from the greeting to the server's last answer
MOST, SUBJECT_MAX, TEXT_MAX = 50, 300, 200 * 1024  # receivers · characters · bytes
FIELDS = {"to", "cc", "subject", "text", "html"}
# Sent as 7 bits, so that no server has to be asked whether it takes more.
POLICY = SMTP.clone(cte_type="7bit")
FIRST_DOT = re.compile(rb"(?m)^\.")
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class BadLetter(ValueError):
    """The body is no message that can be sent as it is. Nothing was sent."""


@dataclass(frozen=True)
class Letter:
    """One message, read from an effect's body."""

    to: list[str]
    cc: list[str]
    subject: str
    text: str
    is_html: bool

    @property
    def receivers(self) -> list[str]:
        return [*self.to, *self.cc]


# reading the body ---------------------------------------------------------------------------------


def letter_of(body: bytes) -> Letter:
    """Raises BadLetter: for what is missing, too much, or could be read as a header of its own."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadLetter("the body is not JSON") from error
    if not isinstance(said, dict) or set(said) - FIELDS:
        raise BadLetter("the body holds to, cc, subject and text or html, and nothing else")
    if ("text" in said) == ("html" in said):
        raise BadLetter("the body needs text or html")
    text = said.get("text", said.get("html"))
    if not isinstance(text, str) or len(text.encode(errors="replace")) > TEXT_MAX:
        raise BadLetter(f"the text is no text, or larger than {TEXT_MAX // 1024} KiB")
    letter = Letter(
        _addresses(said.get("to")), _addresses(said.get("cc", [])), _subject(said), text, "html" in said
    )
    _check_receivers(letter)
    return letter


def _subject(said: dict[str, Any]) -> str:
    subject = said.get("subject")
    if not isinstance(subject, str) or not subject.strip() or len(subject) > SUBJECT_MAX:
        raise BadLetter(f"the subject is a line of 1 to {SUBJECT_MAX} characters")
    if UNSEEN.search(subject):
        raise BadLetter("the subject holds a line break, or a sign that can't be seen")
    return subject


def _addresses(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise BadLetter("to and cc are lists of addresses")
    for one in given:
        try:
            validate_email(one)
            Address(addr_spec=one)
        except (ValidationError, ValueError, IndexError) as error:
            raise BadLetter("a receiver is no plain address") from error
        if not one.isascii() or len(one) > 254 or one.startswith('"'):
            raise BadLetter("a receiver is no plain address")
    return given


def _check_receivers(letter: Letter) -> None:
    if not letter.to or len(letter.receivers) > MOST:
        raise BadLetter(f"a message has 1 to {MOST} receivers, one of them in to")
    if len({one.lower() for one in letter.receivers}) < len(letter.receivers):
        raise BadLetter("a receiver is there twice")


def message_id(effect: Sendable) -> str:
    """The same on every attempt, and no other effect's."""
    name = hashlib.sha256(f"{effect.run_id}\n{effect.key}".encode()).hexdigest()[:40]
    return f"<{name}@allstop.invalid>"


def _written(letter: Letter, effect: Sendable) -> bytes:
    message = EmailMessage(policy=POLICY)
    message["From"] = settings.DEFAULT_FROM_EMAIL
    message["To"] = [Address(addr_spec=one) for one in letter.to]
    if letter.cc:
        message["Cc"] = [Address(addr_spec=one) for one in letter.cc]
    message["Subject"] = letter.subject
    message["Message-ID"] = message_id(effect)
    message["Date"] = formatdate()
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text, subtype="html" if letter.is_html else "plain")
    return FIRST_DOT.sub(b"..", message.as_bytes())


# send ---------------------------------------------------------------------------------------------


@dataclass
class _Receivers:
    """What the server said of each receiver so far."""

    accepted: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)

    def told(self, word: str = "accepted") -> dict[str, Any]:
        named = {word: self.accepted, "refused": self.refused}
        return {name: value for name, value in named.items() if value}


def send(effect: Sendable, kind: Kind, ready: Ready) -> Told:
    """One message: applied (all accepted) · partial (some) · not_applied (none, or not taken) · unknown.

    `ready` is called when the connection stands, directly before MAIL FROM. Items name the receivers by what
    the server said; its own words are not kept, for they may hold anything.
    """
    try:
        letter = letter_of(bytes(effect.body))
        text = _written(letter, effect)
        with _server() as server:
            ready()
            return _hand_over(_Dialogue(server), letter, text, message_id(effect))
    except (BadLetter, _NoServer) as error:
        return Told("not_applied", detail=f"nothing was sent: {error}")


compensate = send


class _NoServer(ConnectionError):
    """No mail server could be spoken with."""


@contextmanager
def _server() -> Iterator[smtplib.SMTP]:
    """A session that is open and signed in. Raises _NoServer."""
    backend: Any = get_connection()
    try:
        yield _opened(backend)
    finally:
        server = getattr(backend, "connection", None)
        if isinstance(server, smtplib.SMTP) and server.sock is not None:
            server.sock.settimeout(2)  # a goodbye that isn't answered holds nobody up
        with suppress(OSError, smtplib.SMTPException):
            backend.close()


def _opened(backend: Any) -> smtplib.SMTP:
    try:
        backend.open()
        server = getattr(backend, "connection", None)
        if not isinstance(server, smtplib.SMTP):
            raise _NoServer("this installation has no mail server (EMAIL_URL)")
        server.ehlo_or_helo_if_needed()
    except (OSError, smtplib.SMTPException) as error:
        if isinstance(error, _NoServer):
            raise
        raise _NoServer(f"no mail server: {_name(error)}") from error
    return server


def _name(error: Exception) -> str:
    code = getattr(error, "smtp_code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


class _Dialogue:
    """Commands and the codes of their answers, all within one limit."""

    def __init__(self, server: smtplib.SMTP) -> None:
        self.server, self.end = server, time.monotonic() + LIMIT_S

    def ask(self, command: str, *words: str) -> int:
        self._hurry()
        return int(self.server.docmd(command, *words)[0])

    def give(self, text: bytes) -> int:
        """The text with its end; what the server says of it."""
        self._hurry()
        self.server.send(text if text.endswith(b"\r\n") else text + b"\r\n")
        self.server.send(b".\r\n")
        self._hurry()
        return int(self.server.getreply()[0])

    def _hurry(self) -> None:
        left = self.end - time.monotonic()
        if left <= 0 or self.server.sock is None:
            raise TimeoutError(f"{LIMIT_S:g} seconds were over")
        self.server.sock.settimeout(left)


def _hand_over(dialogue: _Dialogue, letter: Letter, text: bytes, ref: str) -> Told:
    seen = _Receivers()
    try:
        refusal = _envelope(dialogue, letter, seen)
    except (OSError, smtplib.SMTPException) as error:
        return Told("not_applied", detail=f"the server ended before the text: {_name(error)}")
    if refusal:
        return Told("not_applied", items=seen.told("not tried") or None, detail=refusal)
    try:
        code = dialogue.give(text)
    except (OSError, smtplib.SMTPException) as error:
        detail = f"the text left and no answer came: {_name(error)}"
        return Told("unknown", items=seen.told("unknown"), provider_ref=ref, detail=detail)
    if code // 100 != 2:
        return Told(
            "not_applied", items=seen.told("not taken"), detail=f"the server refused the text: {code}"
        )
    return _taken(seen, ref)


def _envelope(dialogue: _Dialogue, letter: Letter, seen: _Receivers) -> str:
    """Name the sender and each receiver, and ask to send the text; why not, or nothing."""
    code = dialogue.ask("MAIL", f"FROM:<{parseaddr(settings.DEFAULT_FROM_EMAIL)[1]}>")
    if code // 100 != 2:
        return f"the server refused the sender: {code}"
    for receiver in letter.receivers:
        code = dialogue.ask("RCPT", f"TO:<{receiver}>")
        if code // 100 == 2:
            seen.accepted.append(receiver)
        else:
            seen.refused[receiver] = code
    if not seen.accepted:
        return "the server refused each receiver"
    code = dialogue.ask("DATA")
    return "" if code == 354 else f"the server refused the text: {code}"


def _taken(seen: _Receivers, ref: str) -> Told:
    total = len(seen.accepted) + len(seen.refused)
    detail = f"the server took it for {len(seen.accepted)} of {total} receivers"
    if seen.refused:
        return Told("partial", result={"message_id": ref}, provider_ref=ref, items=seen.told(), detail=detail)
    return Told("applied", result={"message_id": ref, **seen.told()}, provider_ref=ref, detail=detail)


# registering --------------------------------------------------------------------------------------


def check(new: NewKind) -> None:
    """Raises BadKind."""
    if not settings.EMAIL_CONFIGURED:
        raise BadKind("provider", "This installation has no mail server: set EMAIL_URL")
    check_class(new, OperationClass.EXTERNAL_WRITE)
    if new.send:
        raise BadKind("send", "A kind of provider email has nothing to say here: the body is the message")
    check_lookup(new)


__all__ = ["QUESTIONS", "check", "compensate", "inspect", "look_up", "send"]
