"""The socket: hints only, for those who may see the topic, for as long as they may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

from dashboard import live
from runs.models import Membership, Role, Run, User, Workspace
from runs.wake import group_of

pytestmark = pytest.mark.django_db(transaction=True)


def person(email: str) -> User:
    return User.objects.create_user(email, "a long password", name=email.split("@")[0].title())


def sign_in(user: User) -> Any:
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.create()
    return store


class Scene:
    """Dana reads Finance; Mallory is in a workspace of her own."""

    def __init__(self) -> None:
        self.finance = Workspace.objects.create(name="Finance", slug="finance")
        self.elsewhere = Workspace.objects.create(name="Elsewhere", slug="elsewhere")
        self.dana, self.mallory = person("dana@example.org"), person("mallory@example.org")
        self.role = Membership.objects.create(user=self.dana, workspace=self.finance, role=Role.VIEWER)
        Membership.objects.create(user=self.mallory, workspace=self.elsewhere, role=Role.ADMIN)
        self.run = Run.objects.create(workspace=self.finance, key="k", name="n", parameters_digest="")
        self.topic = f"run:{self.run.pk}"
        self.session = sign_in(self.dana)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@asynccontextmanager
async def page(session: Any) -> AsyncIterator[WebsocketCommunicator]:
    socket = WebsocketCommunicator(live.Live.as_asgi(), "/live/")
    socket.scope["session"] = session
    connected, _ = await socket.connect()
    assert connected
    yield socket
    await socket.disconnect()


async def subscribe(socket: WebsocketCommunicator, *topics: str) -> None:
    await socket.send_to(text_data=json.dumps({"topics": topics}))


async def close_code(socket: WebsocketCommunicator) -> int:
    message = await socket.receive_output(timeout=3)
    assert message["type"] == "websocket.close", message
    return int(message["code"])


async def poke(topic: str, seq: int) -> None:
    layer: Any = get_channel_layer()
    await layer.group_send(group_of(topic), {"type": "hint", "topics": [topic], "seq": seq})


@pytest.mark.invariant("I25")
async def test_dana_subscribes_and_gets_hints_that_carry_no_state(scene: Scene) -> None:
    async with page(scene.session) as socket:
        await subscribe(socket, scene.topic)
        assert await socket.receive_json_from() == {"seq": 0, "topics": [scene.topic]}
        await poke(scene.topic, 17)
        assert await socket.receive_json_from() == {"seq": 17, "topics": [scene.topic]}


async def test_someone_signed_out_is_told_so_by_4401(scene: Scene) -> None:
    async with page(None) as socket:
        assert await close_code(socket) == 4401


@pytest.mark.invariant("I28")
@pytest.mark.parametrize("topic", ["run:{run}", "workspace:{workspace}:runs"])
async def test_mallory_can_not_tell_a_foreign_topic_from_an_absent_one(scene: Scene, topic: str) -> None:
    session = await database_sync_to_async(sign_in)(scene.mallory)
    codes = []
    for run, workspace in ((scene.run.pk, scene.finance.pk), ("run_absent", "ws_absent")):
        async with page(session) as socket:
            await subscribe(socket, topic.format(run=run, workspace=workspace))
            codes.append(await close_code(socket))
    assert codes == [4403, 4403]


@pytest.mark.parametrize("topic", ["", "*", "run", "run:", "run:*", "workspace:*:runs", "t.0", "user:1"])
async def test_no_other_topic_exists(scene: Scene, topic: str) -> None:
    async with page(scene.session) as socket:
        await subscribe(socket, topic)
        assert await close_code(socket) == 4403


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "null",
        "[]",
        '{"topics": "run:1"}',
        '{"topics": [1]}',
        '{"stop": "run:1"}',
        '{"topics": [], "x": 1}',
        "{",
    ],
)
async def test_anything_but_a_list_of_topics_ends_the_socket(scene: Scene, text: str) -> None:
    async with page(scene.session) as socket:
        await socket.send_to(text_data=text)
        assert await close_code(socket) == 4400


async def test_caps_end_a_greedy_socket(scene: Scene) -> None:
    greedy = [["t" * 17_000], [f"run:{n}" for n in range(51)]]
    for topics in greedy:
        async with page(scene.session) as socket:
            await subscribe(socket, *topics)
            assert await close_code(socket) == 4429


async def test_twenty_messages_a_second_are_enough(scene: Scene) -> None:
    async with page(scene.session) as socket:
        for _ in range(40):
            await subscribe(socket)
        seen = 0
        while (message := await socket.receive_output(timeout=5))["type"] == "websocket.send":
            seen += 1
        assert message["code"] == 4429
        assert 20 <= seen < 40


Change = Callable[[Scene], Any]
LOSSES: list[tuple[str, Change, int]] = [
    ("her role is taken", lambda s: s.role.delete(), 4403),
    ("she signs out", lambda s: s.session.flush(), 4401),
    ("she is deactivated", lambda s: User.objects.filter(pk=s.dana.pk).update(is_active=False), 4401),
    ("her password changes", lambda s: User.objects.filter(pk=s.dana.pk).update(password="x"), 4401),
]


@pytest.mark.invariant("I29")
@pytest.mark.parametrize(("loss", "change", "code"), LOSSES, ids=[loss[0] for loss in LOSSES])
async def test_an_open_socket_closes_on_its_own_when(
    scene: Scene, loss: str, change: Change, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RECHECK_S", 0.05)
    async with page(scene.session) as socket:
        await subscribe(socket, scene.topic)
        await socket.receive_json_from()
        await database_sync_to_async(change)(scene)
        assert await close_code(socket) == code


@pytest.mark.invariant("I29")
async def test_a_hint_after_five_seconds_is_preceded_by_a_check(scene: Scene) -> None:
    async with page(scene.session) as socket:
        await subscribe(socket, scene.topic)
        await socket.receive_json_from()
        await database_sync_to_async(scene.role.delete)()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live, "RECHECK_S", -1.0)  # the last check is too old; the timer still sleeps
            await poke(scene.topic, 18)
            assert await close_code(socket) == 4403


async def test_hints_alone_ask_the_database_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = live.verdict

    def verdict(*args: Any) -> Any:
        asked.append(args)
        return real(*args)

    monkeypatch.setattr(live, "verdict", verdict)
    async with page(scene.session) as socket:
        await subscribe(socket, scene.topic)
        await socket.receive_json_from()
        before = len(asked)
        for seq in range(30):
            await poke(scene.topic, seq)
            await socket.receive_json_from()
        assert before == 2
        assert len(asked) == before
