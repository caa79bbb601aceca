"""TLS of outbound calls: the name is in SNI, Host and certificate; the address is the checked one."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pytest_django.fixtures import Settings

from effects import outbound
from effects.outbound import NoConnection
from tests.effects.outside import (
    INNER,
    get,
    names,
    ok,
    post,
    seen,
    server,
    url_of,
)


@contextmanager
def secure(folder: Path, name: str) -> Iterator[tuple[HTTPServer, list[str], Path]]:
    """A TLS server with a certificate for `name`; the names that callers asked for, and whom to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(secret + pem)
    (folder / "trusted.pem").write_bytes(pem)
    context, asked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    context.load_cert_chain(folder / "both.pem")
    context.sni_callback = lambda _, wanted, __: asked.append(str(wanted))
    with server(ok) as made:
        made.socket = context.wrap_socket(made.socket, server_side=True)
        yield made, asked, folder / "trusted.pem"


def trust(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(outbound, "_tls", lambda: context)


def test_the_checked_address_is_called_with_the_name_in_sni_and_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    with secure(tmp_path, "bank.example") as (bank, asked, certificate):
        trust(monkeypatch, certificate)
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(bank, "bank.example", "https")]
        names(monkeypatch, INNER)
        assert json.loads(get(url_of(bank, "bank.example", "https")).body) == {"ok": True}
        assert asked == ["bank.example"]
        assert seen(bank)[0][1]["Host"] == f"bank.example:{bank.server_port}"


def test_a_public_name_is_called_with_sni_at_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above without an exemption: loopback plays the public address, and all other rules hold."""
    with secure(tmp_path, "bank.example") as (bank, asked, certificate):
        trust(monkeypatch, certificate)
        names(monkeypatch, INNER)
        strict = outbound.forbidden
        monkeypatch.setattr(
            outbound, "forbidden", lambda ip: "" if ip == ipaddress.ip_address(INNER) else strict(ip)
        )
        assert get(url_of(bank, "bank.example", "https")).status == 200
        assert (asked, len(seen(bank))) == (["bank.example"], 1)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_of_another_name_or_of_nobody_ends_it_before_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, trusted: bool
) -> None:
    name = "other.example" if trusted else "bank.example"
    with secure(tmp_path, name) as (bank, asked, certificate):
        if trusted:
            trust(monkeypatch, certificate)
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(bank, "bank.example", "https")]
        names(monkeypatch, INNER)
        with pytest.raises(NoConnection, match="certificate verify failed"):
            post(url_of(bank, "bank.example", "https"))
        assert (asked, seen(bank)) == (["bank.example"], [])


def test_a_server_that_speaks_no_tls_gets_no_request(settings: Settings) -> None:
    with server(ok) as plain:
        settings.ALLSTOP_OUTBOUND_ORIGINS = [url_of(plain, scheme="https")]
        with pytest.raises(NoConnection):
            post(url_of(plain, scheme="https"))
        assert seen(plain) == []
