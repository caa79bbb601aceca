"""A signed-in browser of each person, for the tests of pages."""

from __future__ import annotations

import re

from django.test import Client

from runs import access
from runs.access import Actor
from runs.models import Role
from tests.worlds import World, a_person


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


def an_admin(world: World) -> Actor:
    """Erin, who administers the workspace of Alice and Bob."""
    return access.person(a_person("erin", world.workspace, Role.ADMIN))


def secret_in(html: str) -> str:
    """The text that a page shows once."""
    return html.partition('<code id="secret">')[2].partition("</code>")[0]
