"""What Stop can and cannot do is a page: the whole document; each dialog that stops something leads to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from dashboard.pages import explanation
from tests.worlds import World

ADDRESS = "/help/what-stop-can-and-cannot-do"
LISTED = re.compile(r"^- |^## ", re.MULTILINE)


def plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>|[*`#]|^- ", " ", text, flags=re.MULTILINE).split())


def test_nothing_of_the_document_is_left_out() -> None:
    shown = explanation.parts()
    text = explanation.DOCUMENT.read_text()
    assert len(shown) == 5
    assert sum(1 + len(part.items) for part in shown[1:]) == len(LISTED.findall(text))
    words = [word for part in shown for word in [part.title, *part.paragraphs, *part.items]]
    assert sorted(plain(" ".join(words).replace("&quot;", '"').replace("&#x27;", "'")).split()) == sorted(
        plain(text).split()
    )


def test_where_the_document_is_not_installed_the_page_says_so() -> None:
    assert explanation.parts(Path("/nowhere.md")) == []


@pytest.mark.django_db
def test_the_page_is_for_who_is_signed_in_and_each_stop_leads_to_it(client: Client) -> None:
    assert client.get(ADDRESS).status_code == 302
    world = World()
    assert world.dana.user is not None
    assert world.alice.user is not None
    client.force_login(world.dana.user)
    page = client.get(ADDRESS).content.decode()
    assert "Call back a request that is on its way." in page
    assert "<script" not in page.partition("<main")[2].partition("</main")[0]
    client.force_login(world.alice.user)
    run = world.run()
    stops = (f"/runs/{run.pk}/stop", f"/stop/scope?scope=workspace&id={world.workspace.pk}")
    assert [ADDRESS in client.get(address).content.decode() for address in stops] == [True, True]
