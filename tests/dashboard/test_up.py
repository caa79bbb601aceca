"""`manage.py up`: one line when it is ready, a sentence for each way to fail, and a clean end."""

import http.client
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.databases import Database, SqliteTemplate
from tests.processes import ROOT, Processes
from tests.servers import free_port
from tests.tools import obey_permissions

READY = "Allstop is ready at "


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Processes]:
    """Processes with nothing set: the database is the file in the data folder."""
    made = Processes(tmp_path, "")
    yield made
    made.end()


def get(url: str, path: str = "/") -> http.client.HTTPResponse:
    place = urlsplit(url)
    asked = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
    asked.request("GET", path)
    answer = asked.getresponse()
    answer.read()
    asked.close()
    return answer


def failed(processes: Processes, *words: str, **environ: str) -> str:
    """What `up` says when it can't start. It must be a sentence, not a traceback."""
    process = processes.start("up", [sys.executable, "manage.py", "up", "--no-demo", *words], **environ)
    assert process.popen.wait(60) == 1, process.said()
    assert "Traceback" not in process.said()
    assert READY not in process.said()
    return process.said()


@pytest.mark.kill
def test_it_says_once_that_it_is_ready_and_then_the_first_page_answers(processes: Processes) -> None:
    web = processes.web()
    assert get(web.url).status < 500
    assert web.said().count(READY) == 1
    assert re.search(rf"^{READY}http://127\.0\.0\.1:\d+$", web.said(), re.M)


@pytest.mark.kill
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_it_ends_cleanly_when_told(processes: Processes, name: str) -> None:
    web = processes.web()
    web.popen.send_signal(getattr(signal, name))
    assert web.popen.wait(30) == 0
    assert "Traceback" not in web.said()


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_database_and_key_are_kept_in_the_data_folder_for_their_owner_alone(
    bare: Processes, tmp_path: Path
) -> None:
    data = tmp_path / "kept here"
    bare.environ = {"SECRET_KEY": "", "ALLSTOP_DATA": ""}
    bare.web("--data", str(data)).terminate()
    key = (data / "secret_key").read_text()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "secret_key").stat().st_mode) == 0o600
    assert stat.S_IMODE((data / "allstop.sqlite3").stat().st_mode) == 0o600
    bare.web("--data", str(data)).terminate()
    assert (data / "secret_key").read_text() == key


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_port_that_is_taken_is_named_with_another_to_choose(processes: Processes) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = failed(processes, "--port", str(port))
    assert f"Port {port} of 127.0.0.1 can't be had (Address already in use)" in said
    assert f"--port {port + 1}" in said


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_second_demo_on_one_data_folder_is_refused_with_the_way_out(
    bare: Processes, template: SqliteTemplate
) -> None:
    (bare.folder / "data").mkdir()
    shutil.copy(template.file, bare.folder / "data" / "allstop.sqlite3")  # its tables are there already
    first = bare.web(demo=True)
    second = bare.start("up", [sys.executable, "manage.py", "up", "--port", "0"])
    assert second.popen.wait(60) == 1
    assert "already. Stop that one" in second.said()
    assert "--data DIR" in second.said()
    first.kill()
    assert get(bare.web(demo=True).url).status < 500  # a killed one holds nothing


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_database_that_can_not_be_reached_is_named_without_its_password(bare: Processes) -> None:
    port = free_port()
    said = failed(bare, "--port", "0", DATABASE_URL=f"postgres://someone:hush@127.0.0.1:{port}/allstop")
    assert f"The database at 127.0.0.1:{port}/allstop can't be reached" in said
    assert "DATABASE_URL" in said
    assert "hush" not in said


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_file_that_is_no_database_is_named(bare: Processes, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear database, " * 100)
    said = failed(bare, "--port", "0", DATABASE_URL=f"sqlite:///{tmp_path}/letter.txt")
    assert f"The database at {tmp_path}/letter.txt can't be reached" in said


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_data_folder_that_can_not_be_written_is_named_with_the_option_to_use(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    command = [sys.executable, "manage.py", "up", "--no-demo", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, preexec_fn=obey_permissions, check=False
    )
    tmp_path.chmod(0o755)
    assert done.returncode == 1
    assert f"The data folder {tmp_path / 'data'} can't be written (Permission denied)" in done.stderr
    assert "--data DIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kill
def test_two_servers_that_start_together_change_the_tables_one_after_the_other(
    tmp_path: Path, empty: Database
) -> None:
    processes = Processes(tmp_path, empty.url)
    try:
        command = [sys.executable, "manage.py", "up", "--no-demo", "--port", "0"]
        for process in [processes.start("up", command) for _ in range(2)]:
            process.wait_for(READY)
    finally:
        processes.end()


SLOW = """
import asyncio, sys
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["127.0.0.1"], SECURE=False)
from dashboard.server import Server
async def app(scope, receive, send):
    await receive()
    print("begun", flush=True)
    await asyncio.sleep(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"whole"})
Server(app, host="127.0.0.1", port=int(sys.argv[1]), ready=lambda: print("ready", flush=True)).run()
print("gone", flush=True)
"""


@pytest.mark.kill
@pytest.mark.only("sqlite")
def test_a_request_under_way_gets_its_answer_before_the_server_goes(tmp_path: Path) -> None:
    port, bodies = free_port(), []
    server = Processes(tmp_path, "").start(
        "slow", [sys.executable, "-c", SLOW, str(port)], PYTHONPATH=str(ROOT)
    )
    server.wait_for("ready")

    def ask() -> None:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asked.request("GET", "/")
        bodies.append(asked.getresponse().read())
        asked.close()

    asking = threading.Thread(target=ask)
    asking.start()
    server.wait_for("begun")
    assert server.terminate(seconds=20) == 0
    asking.join(20)
    assert bodies == [b"whole"]
    assert "gone" in server.said()
