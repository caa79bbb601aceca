"""Calls that leave the machine: only where they may go, and never in doubt whether a byte has left."""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects import outbound
from effects.outbound import NoAnswer, NoConnection, Refused, Request
from tests.effects.outside import (
    INNER,
    PUBLIC,
    answer,
    get,
    names,
    nobody_connects,
    ok,
    post,
    seen,
    server,
    url_of,
)
from tests.provider import Provider, refused_address


@pytest.fixture
def bank(tmp_path: Path, settings: Settings) -> Iterator[Provider]:
    with Provider(tmp_path / "ledger") as bank:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [bank.url]
        yield bank


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "LIMIT_S", 0.5)


# --- Where a call may go --------------------------------------------------------------------------------


def test_an_origin_that_the_operator_listed_is_called_as_it_is(bank: Provider) -> None:
    answered = post(f"{bank.url}/charges", b'{"amount": 1e2}')
    assert (answered.status, answered.content_type, answered.cut) == (201, "application/json", False)
    assert bank.ledger.lines("request", "k")[0]["text"] == '{"amount": 1e2}'


@pytest.mark.parametrize(
    "other", ["http://localhost:{port}", "http://127.0.0.2:{port}", "http://127.1:{port}"]
)
def test_an_exemption_is_for_one_exact_origin(bank: Provider, other: str) -> None:
    with pytest.raises(Refused):
        get(other.format(port=bank.port) + "/charges?key=k")
    assert bank.ledger.lines() == []
    assert get(f"{bank.url}/charges?key=k").status == 404  # the listed one is let through


def test_another_port_of_a_listed_host_is_refused(bank: Provider) -> None:
    with server(ok) as other, pytest.raises(Refused):
        get(url_of(other))
    assert seen(other) == []


def test_an_origin_that_can_not_be_read_exempts_nothing(settings: Settings) -> None:
    settings.ALLSTOP_OUTBOUND_ORIGINS = ["*", "http://", "http://user@127.0.0.1:1", "127.0.0.1", "http://a:b"]
    assert outbound.exempt_origins() == set()
    settings.ALLSTOP_OUTBOUND_ORIGINS = ["HTTP://Bank.example", "https://bank.example:443/"]
    assert outbound.exempt_origins() == {"http://bank.example:80", "https://bank.example:443"}


FORMS = [
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "localhost",
    "0.0.0.0",  # noqa: S104
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:8.8.8.8]",
    "[::7f00:1]",
    "[64:ff9b::a00:1]",
    "[2002:a00:1::]",
    "[2001:0:a00:1::]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[ff02::1]",
]


@pytest.mark.parametrize("host", FORMS)
def test_an_address_that_is_not_public_is_refused_before_a_connection(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    tried = nobody_connects(monkeypatch)
    with pytest.raises(Refused):
        get(f"https://{host}:8443/")
    assert tried == []


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1111]"])
def test_a_public_address_is_connected_to(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """The control of the test above: the same call, and it would have been sent."""
    tried = nobody_connects(monkeypatch)
    with pytest.raises(NoConnection):
        get(f"https://{host}:8443/")
    assert [place[:2] for place in tried] == [(host.strip("[]"), 8443)]


def test_one_forbidden_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = nobody_connects(monkeypatch)
    rows = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 443)) for place in ("93.184.216.34", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    with pytest.raises(Refused, match=r"10\.0\.0\.1"):
        get("https://two-faces.example/")
    assert tried == []


@pytest.mark.parametrize(
    "url",
    [
        "http://93.184.216.34/",
        "gopher://93.184.216.34/",
        "file:///etc/passwd",
        "ftp://93.184.216.34/",
        "//93.184.216.34/",
        "",
        "https://user:secret@93.184.216.34/",
        "https://user@93.184.216.34/",
        "https://93.184.216.34:0/",
        "https://93.184.216.34:99999/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https:///path",
        "https://93.184.216.34\\@bank.example/",
        "https://93.184.216.34/a b",
        "https://93.184.216.34/\r\nX-Injected: 1",
        "https://bänk.example/",
    ],
)
def test_an_address_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    tried = nobody_connects(monkeypatch)
    with pytest.raises(Refused):
        get(url)
    assert tried == []


def test_a_name_is_asked_for_once_and_that_address_is_called(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """Rebinding: the name points to a public place when it is checked, and inside when it is used."""
    with server(ok, PUBLIC) as public, server(ok, INNER, public.server_port) as inner:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [f"http://bank.example:{public.server_port}"]
        asked = names(monkeypatch, PUBLIC, INNER)
        assert get(f"http://bank.example:{public.server_port}/x").status == 200
        assert (asked, len(seen(public)), len(seen(inner))) == (["bank.example"], 1, 0)
        assert seen(public)[0][1]["Host"] == f"bank.example:{public.server_port}"
        # The control: a client that asks again is led inside.
        names(monkeypatch, PUBLIC, INNER)
        socket.getaddrinfo("bank.example", 1)
        with urllib.request.build_opener().open(f"http://bank.example:{public.server_port}/x", timeout=5):
            assert len(seen(inner)) == 1


def test_a_name_that_turns_inward_before_it_is_checked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = nobody_connects(monkeypatch)
    names(monkeypatch, "10.0.0.7")
    with pytest.raises(Refused, match=r"bank\.example is 10\.0\.0\.7"):
        get("https://bank.example/")
    assert tried == []


def test_a_redirect_is_an_answer_and_is_not_followed(settings: Settings) -> None:
    with server(ok) as inner, server(lambda h: answer(h, 302, b"", Location=url_of(inner))) as outer:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(outer), url_of(inner)]
        assert get(url_of(outer)).status == 302
        assert (len(seen(outer)), len(seen(inner))) == (1, 0)
        with urllib.request.build_opener().open(url_of(outer), timeout=5):
            assert len(seen(inner)) == 1  # the control follows


def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, bank: Provider, settings: Settings
) -> None:
    with server(ok) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, url_of(proxy))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert get(f"{bank.url}/charges?key=k").status == 404
        assert seen(proxy) == []
        with urllib.request.build_opener().open(f"{bank.url}/charges?key=k", timeout=5):
            assert len(seen(proxy)) == 1  # the control goes through the proxy


# --- Whether a byte has left ----------------------------------------------------------------------------


def test_a_refused_connection_is_no_connection(settings: Settings) -> None:
    with refused_address() as url:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url]
        with pytest.raises(NoConnection, match="refused"):
            post(url)


def test_a_name_that_does_not_exist_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(NoConnection, match="resolved"):
        get("https://nowhere.example/")


@pytest.mark.usefixtures("quick")
def test_a_resolver_that_is_silent_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20) and [])
    began = time.monotonic()
    with pytest.raises(NoConnection, match="in time"):
        get("https://slow.example/")
    over.set()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(("fault", "arrived"), [("drop_before", 1), ("drop_after", 1)])
def test_a_connection_that_breaks_after_the_request_is_no_answer(
    bank: Provider, fault: str, arrived: int
) -> None:
    bank.fault(fault, key="k")
    with pytest.raises(NoAnswer):
        post(f"{bank.url}/charges")
    assert bank.ledger.sends("k") == arrived  # no second try


def test_what_ready_raises_passes_through_and_nothing_was_sent(bank: Provider) -> None:
    class Shut(Exception):
        pass

    def ready() -> None:
        raise Shut

    with pytest.raises(Shut):
        outbound.call(Request("POST", f"{bank.url}/charges", body=b"{}"), ready)
    assert bank.ledger.lines() == []


@pytest.mark.usefixtures("quick")
def test_a_ready_that_takes_all_the_time_leaves_nothing_sent(bank: Provider) -> None:
    with pytest.raises(NoConnection, match="nothing was sent"):
        outbound.call(Request("POST", f"{bank.url}/charges", body=b"{}"), lambda: time.sleep(0.6))
    assert bank.ledger.lines() == []


def test_a_key_leaves_verbatim_or_not_at_all(bank: Provider) -> None:
    for key in ("pay:7/ä?", "a  b"):
        post(f"{bank.url}/charges", key=key)
    raw = [line["key"].encode("latin-1").decode() for line in bank.ledger.lines("request")]
    assert raw == ["pay:7/ä?", "a  b"]
    for key in ("k\r\nX-Injected: 1", "k\n", " k", "k ", "a\x00b"):
        with pytest.raises(Refused):
            post(f"{bank.url}/charges", key=key)
    assert len(bank.ledger.lines("request")) == 2


# --- How long, how much ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_an_answer_that_is_held_is_left_in_time(bank: Provider) -> None:
    bank.fault("hold_after", key="k")
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer"):
        post(f"{bank.url}/charges")
    assert time.monotonic() - began < 5
    assert bank.ledger.applied("k") == 1  # it happened, and that is not known here


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["head", "body"])
def test_an_answer_that_drips_can_not_stretch_the_limit(settings: Settings, where: str) -> None:
    over, drops = threading.Event(), []

    def drip(handler: Any) -> None:
        if where == "body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not over.wait(0.1):
            handler.wfile.write(b"x")
            drops.append(1)

    with server(drip) as slow:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(slow)]
        began = time.monotonic()
        with pytest.raises(NoAnswer):
            get(url_of(slow))
        assert time.monotonic() - began < 5
        assert len(drops) >= 2  # each came sooner than a limit per read would notice
        over.set()


def test_an_answer_of_ten_megabytes_is_cut(settings: Settings) -> None:
    written = []

    def much(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(160):
            handler.wfile.write(b"x" * 65536)
            written.append(65536)

    with server(much) as huge:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(huge)]
        answered = get(url_of(huge))
    assert (answered.status, answered.cut, len(answered.body)) == (200, True, outbound.CAP)
    assert outbound.CAP < 10 * 1024 * 1024 == 160 * 65536


def test_an_answer_of_exactly_the_cap_is_whole(settings: Settings) -> None:
    with server(lambda h: answer(h, 200, b"x" * outbound.CAP)) as big:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(big)]
        answered = get(url_of(big))
    assert (len(answered.body), answered.cut) == (outbound.CAP, False)


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 twohundred OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_an_answer_that_breaks_off_or_is_no_http_is_no_answer(settings: Settings, words: bytes) -> None:
    with server(lambda handler: handler.wfile.write(words)) as broken:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(broken)]
        with pytest.raises(NoAnswer):
            get(url_of(broken))
        assert len(seen(broken)) == 1


def test_a_packed_answer_is_not_unpacked(settings: Settings) -> None:
    packed = b"\x1f\x8b a bomb"
    with server(lambda h: answer(h, 200, packed, **{"Content-Encoding": "gzip"})) as bomb:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(bomb)]
        assert get(url_of(bomb)).body == packed
    assert seen(bomb)[0][1]["Accept-Encoding"] == "identity"


def test_no_call_leaves_descriptors_open(bank: Provider) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux lists them")
    get(f"{bank.url}/charges?key=k")
    before = descriptors()
    for _ in range(20):
        get(f"{bank.url}/charges?key=k")
        with pytest.raises(Refused):
            get("https://127.0.0.1/")
    time.sleep(0.1)
    assert descriptors() <= before + 2
