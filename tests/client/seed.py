"""A workspace and an agent's token, made in the database of a server: `python -m tests.client.seed` prints
it.
"""

from __future__ import annotations

import os

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from runs.access import SCOPE_MAY, issue_token
    from runs.models import Workspace

    workspace = Workspace.objects.create(name="Finance", slug="finance")
    print(issue_token(workspace=workspace, name="agent", scopes=list(SCOPE_MAY), created_by=None)[1])  # noqa: T201


if __name__ == "__main__":
    main()
