"""The document on providers: its examples can be registered as they stand, its answers are the code's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from effects.models import Account, Provider
from effects.new_kind import ANSWERS
from effects.providers import PROVIDERS
from tests import browsers
from tests.wire import agent_of
from tests.worlds import World

TEXT = (Path(__file__).resolve().parents[2] / "docs/providers.md").read_text()
EXAMPLES = [
    json.loads(found) for found in re.findall(r"^```json\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
]


@pytest.mark.django_db
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: str(one["provider"]))
def test_an_example_is_a_kind_with_its_providers_answers(
    world: World, settings: Settings, example: dict[str, Any]
) -> None:
    for name in ("bank", "models"):
        Account.objects.create(workspace=world.workspace, name=name)
    settings.EMAIL_CONFIGURED = True
    settings.ALLSTOP_CHROMIUM = browsers.of_ours()
    said = agent_of(world.workspace).put("/kinds/an.example", example)
    assert (said.status, len(said.data["defaults"])) == (201, 6), said.text
    assert said.data["send"] == example.get("send")


def test_each_provider_has_an_example_and_stands_with_its_own_six_answers() -> None:
    assert (
        {one["provider"] for one in EXAMPLES}
        == set(Provider) - {Provider.OUTSIDE}
        == set(PROVIDERS) - {"outside"}
    )
    for provider in EXAMPLES:
        for name in ANSWERS:
            said = getattr(PROVIDERS[provider["provider"]].QUESTIONS, name)
            assert f"| {said if isinstance(said, str) else ', '.join(said)} |" in TEXT
