"""The content security policy in a real browser: our own socket passes, everything foreign is refused."""

import pytest
from playwright.sync_api import Browser

from tests.processes import Processes
from tests.servers import free_port

OPEN_SOCKET = """url => new Promise(done => {
    const refused = [];
    document.addEventListener("securitypolicyviolation", event => refused.push(event.effectiveDirective));
    let socket;
    try { socket = new WebSocket(url); } catch (error) { done({refused: [error.name]}); return; }
    setTimeout(() => done({opened: false, refused}), 3000);
    socket.onopen = () => done({opened: true, refused});
    socket.onclose = event => setTimeout(() => done({opened: false, code: event.code, refused}), 200);
})"""


@pytest.mark.kill
def test_a_page_opens_the_socket_of_its_own_server_and_no_other(
    browser: Browser, processes: Processes
) -> None:
    web = processes.web()
    with browser.new_page() as page:
        page.goto(web.url)
        own = page.evaluate(OPEN_SOCKET, web.url.replace("http", "ws") + "/live/")
        other = page.evaluate(OPEN_SOCKET, f"ws://127.0.0.1:{free_port()}/live/")
    assert own["refused"] == []
    assert "connect-src" in other["refused"] or "SecurityError" in other["refused"]
