"""A signed-in browser of each person, for the tests of pages."""

from __future__ import annotations

import re

from django.test import Client

from runs.access import Actor


def browser(who: Actor | None = None, *, strict: bool = False) -> Client:
    """A client that is signed in as this person (None: nobody); `strict` checks forms' tokens."""
    client = Client(enforce_csrf_checks=strict)
    if who is not None and who.user is not None:
        client.force_login(who.user)
    return client


def text_of(html: str) -> str:
    """What a page says, without its marks."""
    plain = re.sub(r"<(script|style|svg|template)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain))
