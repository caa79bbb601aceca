"""One e-mail through the server of EMAIL_URL, and what is known of it afterwards."""

from __future__ import annotations

import contextlib
import smtplib
from collections.abc import Callable
from typing import Any

from django.core.mail import EmailMessage, get_connection

from .settle import Told

# The server said no to this very message: it did not take it.
REFUSED = (
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPSenderRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPNotSupportedError,
)


def send(message: EmailMessage, ready: Callable[[], None] = lambda: None) -> Told:
    """Send once: applied (the server took it) · not_applied (it refused, or nothing was sent) · unknown.

    `ready` is called when the connection stands, directly before the first line of the message; what it
    raises passes through, and nothing was sent.
    """
    connection: Any = get_connection()
    try:
        connection.open()
    except (OSError, smtplib.SMTPException) as error:
        return Told("not_applied", detail=f"nothing was sent: {_said(error)}")
    try:
        ready()
        connection.send_messages([message])
    except REFUSED as error:
        return Told("not_applied", detail=f"the mail server refused it: {_said(error)}")
    except (OSError, smtplib.SMTPException) as error:
        return Told("unknown", detail=f"no answer of the mail server: {_said(error)}")
    finally:
        with contextlib.suppress(OSError, smtplib.SMTPException):
            connection.close()
    return Told("applied", detail="the mail server took it")


def _said(error: Exception) -> str:
    """The kind of error and its code: a server's own text may hold an address or a password."""
    code = getattr(error, "smtp_code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__
