"""Issue or revoke a token for the workspace of drills: `python -m dashboard.drilling.token issue`.

For whoever holds the machine: it prints id and text of the token, which is kept nowhere.
"""

from __future__ import annotations

import os
import sys

import django


def main(words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from dashboard.drilling import room

    if words[:1] == ["revoke"]:
        room.take_token(words[1])
        return
    token, text = room.give_token("drill")
    sys.stdout.write(f"{token.pk} {text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
