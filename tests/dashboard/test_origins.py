"""Who may open a socket: a page of exactly this server, by scheme, host and port."""

from urllib.parse import urlparse

import pytest
from channels.testing import WebsocketCommunicator

from dashboard.asgi import application, sockets


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://localhost:8000"])
def test_a_page_of_this_server_may_ask(origin: str) -> None:
    assert sockets.valid_origin(urlparse(origin))


@pytest.mark.parametrize(
    "origin",
    [
        "https://127.0.0.1:8000",
        "http://127.0.0.1:8001",
        "http://127.0.0.1",
        "http://127.0.0.1.example.com:8000",
        "http://localhost.:8000",
        "null",
        "file://",
    ],
)
async def test_any_other_page_is_refused_before_a_word(origin: str) -> None:
    socket = WebsocketCommunicator(application, "/live/", headers=[(b"origin", origin.encode())])
    assert (await socket.connect())[0] is False


async def test_a_client_that_names_no_page_is_refused() -> None:
    socket = WebsocketCommunicator(application, "/live/")
    assert (await socket.connect())[0] is False
