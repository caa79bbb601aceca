"""A pack over HTTP: for members, piece by piece; checked from a file or a URL, and keys by a command."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.http import StreamingHttpResponse

from dashboard.packs import streaming
from dashboard.packs.streaming import Streamed
from dashboard.packs.writing import VERIFIER
from dashboard.statements.making import make_day
from effects import downloads
from runs import keyring
from runs.evidence import digest, seal_stream
from runs.models import Evidence
from tests.dashboard.packing import a_pack, zipped
from tests.dashboard.scenes import browser
from tests.wire import agent_of
from tests.worlds import World

pytestmark = [pytest.mark.django_db, pytest.mark.invariant("I26"), pytest.mark.usefixtures("place")]


@pytest.fixture
def world() -> World:
    return World()


def test_members_take_a_pack_from_the_page_and_from_the_api(world: World, place: Path) -> None:
    run = world.run()
    for answer in (
        browser(world.dana).get(f"/runs/{run.pk}/pack.zip"),
        agent_of(world.workspace).client.get(
            f"/api/v1/runs/{run.pk}/pack",
            headers={"Authorization": f"Bearer {agent_of(world.workspace).token}"},
        ),
    ):
        assert (answer.status_code, answer["Content-Type"]) == (200, "application/zip")
        data = answer.getvalue()
        assert answer["Content-Length"] == str(len(data))
        assert f'filename="{run.pk}-evidence.zip"' in answer["Content-Disposition"]
        with zipfile.ZipFile(io.BytesIO(data)) as pack:
            assert pack.testzip() is None
            assert {"verify.py", "README.txt", "lines.jsonl", "statement.json"} <= set(pack.namelist())
    assert browser(world.mallory).get(f"/runs/{run.pk}/pack.zip").status_code == 404


def test_a_pack_that_breaks_off_is_an_error_and_no_half_of_a_zip(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        streaming.pack_answer(world.run())


async def test_an_asynchronous_server_takes_one_piece_at_a_time() -> None:
    taken: list[int] = []

    def parts() -> Iterator[bytes]:
        for number in range(3):
            taken.append(number)
            yield b"x"

    seen = [list(taken) async for _ in Streamed(parts())]
    assert seen == [[0], [0, 1], [0, 1, 2]]
    taken.clear()
    with pytest.warns(
        Warning, match="consume synchronous iterators"
    ):  # the control: Django gathers all first
        seen = [list(taken) async for _ in StreamingHttpResponse(parts())]
    assert seen == [[0, 1, 2]] * 3


def test_keys_and_statements_are_for_members_as_page_file_and_api(world: World, place: Path) -> None:
    seal_stream(world.run().pk)
    (row,) = make_day(world.workspace.pk)
    dana, agent = browser(world.dana), agent_of(world.workspace)
    html = dana.get("/seals").content.decode()
    assert row.key in html
    assert digest(VERIFIER.read_bytes()) in html
    envelope = dana.get(f"/seals/{row.pk}.json").json()
    assert envelope == {"statement": row.body, "signature": row.signature, "public": envelope["public"]}
    told = agent.get(f"/statements/{row.pk}").data
    assert {name: told[name] for name in envelope} == envelope
    assert [one["id"] for one in agent.get(f"/statements?day={row.day}").data["items"]] == [row.pk]
    assert agent.get("/keys").data == dana.get("/seals/keys.json").json()
    mallory = browser(world.mallory)
    assert mallory.get(f"/seals/{row.pk}.json").status_code == 404
    assert mallory.get("/seals/sta_absent.json").status_code == 404


def test_lines_that_are_not_sealed_yet_are_marked_so(world: World) -> None:
    run, dana = world.run(), browser(world.dana)
    marked = dana.get(f"/runs/{run.pk}/evidence").content.decode().count("not sealed yet")
    seal_stream(run.pk)
    world.stop(run)
    after = dana.get(f"/runs/{run.pk}/evidence").content.decode()
    lines = Evidence.objects.filter(stream=run.pk).count()
    assert marked >= 1
    assert after.count("not sealed yet") == lines - marked
    seal_stream(run.pk)
    assert "not sealed yet" not in dana.get(f"/runs/{run.pk}/evidence").content.decode()


def test_the_page_says_when_nothing_can_be_signed(world: World, place: Path) -> None:
    (place / "keys" / keyring.SEAL).unlink()
    assert "Nothing is signed now" in browser(world.dana).get("/seals").content.decode()


# --- manage.py verify -----------------------------------------------------------------------------------


def command(*words: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("verify", *words, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


@contextmanager
def served(answers: dict[str, tuple[int, bytes]]) -> Iterator[tuple[str, list[Any]]]:
    """A server on this machine; the second value is what it was asked with."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            status, body = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "/pack.zip")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_pack_is_checked_from_a_file_and_from_a_url_and_keys_are_printed(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = a_pack(world.run())
    pack = zipped(files, place / "pack.zip")
    told, code = command("--keys")
    key = json.loads(files["keys.json"])["keys"][0]
    assert (code, key["id"] in told, key["public"] in told) == (0, True, True)
    told, code = command(str(pack), "--key", key["id"])
    assert (code, "intact" in told) == (0, True)
    broken = zipped({**files, "seals.jsonl": b""}, place / "broken.zip")
    assert command(str(broken))[1] == 1
    monkeypatch.setenv("ALLSTOP_TOKEN", "als_of_mine")
    with served({"/pack.zip": (200, pack.read_bytes()), "/broken": (200, broken.read_bytes())}) as (
        url,
        asked,
    ):
        told, code = command(f"{url}/pack.zip", "--json")
        assert (code, json.loads(told)["intact"]) == (0, True)
        assert asked[0]["Authorization"] == "Bearer als_of_mine"
        told, code = command(f"{url}/broken")
        assert (code, "seals.jsonl: file." in told) == (1, True)


def test_no_redirect_is_followed_nothing_endless_read_and_only_this_machine_is_asked_without_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(downloads, "MOST", 10)
    with served({"/moved": (302, b""), "/pack.zip": (200, b"x" * 5)}) as (url, asked):
        with pytest.raises(CommandError, match="answers 302; redirects are not followed"):
            command(f"{url}/moved")
        assert len(asked) == 1
        with pytest.raises(downloads.NoAnswer, match="sends more than 4 bytes"):
            downloads.download(f"{url}/pack.zip", io.BytesIO(), {}, most=4)
    with pytest.raises(CommandError, match="http is not https"):
        command("http://192.0.2.1/pack.zip")
    with pytest.raises(CommandError, match=r"192\.168\.0\.1.* not public"):
        command("https://192.168.0.1/pack.zip")


def test_a_file_that_is_no_pack_and_no_statement_is_an_error(place: Path) -> None:
    (place / "other.txt").write_text("hello")
    with pytest.raises(CommandError, match="can't be checked"):
        command(str(place / "other.txt"))
    with pytest.raises(CommandError, match="can't be checked"):
        command(str(place / "absent.zip"))


def test_the_command_checks_the_database_against_a_statement_that_was_kept(world: World, place: Path) -> None:
    run = world.run()
    (place / "kept.json").write_bytes(a_pack(run)["statement.json"])
    assert command(run.pk, "--statement", str(place / "kept.json"))[1] == 0
    told = json.loads((place / "kept.json").read_text())
    (place / "kept.json").write_text(
        json.dumps({**told, "statement": told["statement"].replace("pack", "Pack")})
    )
    told_, code = command(run.pk, "--statement", str(place / "kept.json"))
    assert (code, "kept.json: signature." in told_) == (1, True)


def test_a_key_is_rotated_by_a_command(place: Path) -> None:
    out = StringIO()
    before = keyring.read(keyring.SEAL)
    call_command("seal", "--rotate", stdout=out)
    assert "handed over to" in out.getvalue()
    assert keyring.read(keyring.SEAL) != before
