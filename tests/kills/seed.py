"""A workspace, its agent's token, and Alice's session: `python -m tests.kills.seed` prints both secrets."""

from __future__ import annotations

import os

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    from runs.access import SCOPE_MAY, SET_UP
    from runs.models import Membership, Role, User, Workspace
    from runs.people import issue_token

    team = Workspace.objects.create(name="Finance", slug="finance")
    alice = User.objects.create_user("alice@example.org", "a long password", name="Alice")
    Membership.objects.create(user=alice, workspace=team, role=Role.OPERATOR)
    session = SessionStore()
    session[SESSION_KEY] = str(alice.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = alice.get_session_auth_hash()
    session.save()
    token = issue_token(actor=SET_UP, workspace_id=team.pk, name="agent", scopes=list(SCOPE_MAY))[1]
    print(token, session.session_key)  # noqa: T201


if __name__ == "__main__":
    main()
