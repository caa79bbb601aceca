"""A workspace and an agent's token, made in the database of a server: `python -m tests.client.seed` prints
it.
"""

from __future__ import annotations

import os

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from runs.access import SCOPE_MAY, SET_UP
    from runs.models import Workspace
    from runs.people import issue_token

    workspace = Workspace.objects.create(name="Finance", slug="finance")
    token = issue_token(actor=SET_UP, workspace_id=workspace.pk, name="agent", scopes=list(SCOPE_MAY))[1]
    print(token)  # noqa: T201


if __name__ == "__main__":
    main()
