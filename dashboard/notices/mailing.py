"""Sends notices by e-mail to members who asked for them, through the server of EMAIL_URL."""

from __future__ import annotations

import json
import time

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet

from effects import mail
from runs.models import Membership

from .models import Event, NoMail, Notice, Posting
from .outbox import link_to
from .postings import Came, note, take, waiting

PASS_S = 20.0


def is_due() -> bool:
    """Whether some e-mail is due, and there is a server for it."""
    return bool(settings.EMAIL_CONFIGURED) and _due().exists()


def _due() -> QuerySet[Posting]:
    return waiting().filter(user__isnull=False)


def send_due() -> int:
    """Send what is due until one try fails: the server may be away. How many were taken."""
    taken, end = 0, time.monotonic() + PASS_S
    while settings.EMAIL_CONFIGURED and time.monotonic() < end:
        posting = _due().select_related("notice__workspace", "user").first()
        if posting is None or not take(posting):
            break
        came = send(posting)
        note(posting.pk, came)
        taken += came.taken
        if not came.taken and not came.gone:
            break
    return taken


def send(posting: Posting) -> Came:
    """One e-mail, to somebody who is still a member and still wants it."""
    user, notice = posting.user, posting.notice
    assert user is not None
    member = Membership.objects.filter(user=user, workspace_id=notice.workspace_id, user__is_active=True)
    if not member.exists():
        return Came(False, "no member of the workspace any more", gone=True)
    if NoMail.objects.filter(pk=user.pk).exists():
        return Came(False, "this person wants no e-mail any more", gone=True)
    began = time.monotonic()
    told = mail.send(message_to(user.email, notice))
    took = int((time.monotonic() - began) * 1000)
    return Came(told.outcome == "applied", told.detail, took_ms=took)


def message_to(address: str, notice: Notice) -> EmailMessage:
    """Ids, status and a link, as the webhook tells them; nothing that somebody typed."""
    data = json.loads(notice.body)["data"]
    title = Event(notice.event).label
    number = f" (stop #{data['stop_number']})" if "stop_number" in data else ""
    return EmailMessage(
        subject=f"Allstop: {title}{number}",
        body="\n".join([f"{title}{number}.", "", *_facts(data), "", link_to(notice), "", FOOT]),
        to=[address],
        headers={"Message-ID": f"<{notice.pk}@allstop.invalid>", "Auto-Submitted": "auto-generated"},
    )


FOOT = "You asked for this under Notices in Allstop, and can end it there. It asks you to sign in."
SHOWN = {
    "run_id": "Run",
    "run_status": "Status of the run",
    "run_version": "Version of the run",
    "stop_mode": "Mode of the stop",
    "unknown_id": "Unknown",
    "unknown_since": "Unknown since",
    "as_of": "As of",
}


def _facts(data: dict[str, object]) -> list[str]:
    return [f"{word}: {data[name]}" for name, word in SHOWN.items() if data.get(name)]
