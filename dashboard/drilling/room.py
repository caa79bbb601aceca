"""The workspace in which drills run, and the short-lived token that one of them is given.

Nobody works there: its members are the admins of this installation, and as readers those who started a
drill, so that they can open what it left.
"""

from __future__ import annotations

from runs import access, everywhere, people
from runs.access import DRILLS, SET_UP
from runs.models import Membership, Role, Token, User, Workspace
from runs.store import verb

NAME = "Drills"
# All that a drill does: work as an agent, stop, resume, declare kinds, shut and release gates. It can let
# nobody in, tell nobody anything, and decide no review.
SCOPES = (
    *("runs:read", "runs:write", "stop:write", "resume:write"),
    *("kinds:write", "rules:write", "gate:write"),
)
TOKEN_MINUTES = 30
A_DAY = 24 * 60


def workspace() -> Workspace:
    """The workspace of drills; made when it is first asked for."""
    found = everywhere.make_workspace(slug=DRILLS, name=NAME)
    outside = User.objects.filter(is_active=True, is_superuser=True).exclude(memberships__workspace=found)
    for user in outside:
        let_in(user, Role.ADMIN)
    return found


@verb
def let_in(user: User, role: str = Role.VIEWER) -> None:
    """Make someone a member, unless they are one; on record. The workspace is there."""
    room = Workspace.objects.select_for_update(no_key=True).get(slug=DRILLS)
    if not Membership.objects.filter(user=user, workspace=room).exists():
        people.enrol(SET_UP, room, user, role)


def give_token(name: str, minutes: float = TOKEN_MINUTES) -> tuple[Token, str]:
    """A token for one drill, and its text, which is kept nowhere."""
    return people.issue_token(
        actor=SET_UP,
        workspace_id=workspace().pk,
        name=name,
        scopes=list(SCOPES),
        days=minutes / A_DAY,
    )


def take_token(token_id: str) -> None:
    """Nobody gets in with it any more; one that is gone already is no error."""
    room = Workspace.objects.filter(slug=DRILLS).first()
    if room is None or not token_id:
        return
    try:
        people.revoke_token(actor=SET_UP, workspace_id=room.pk, token_id=token_id)
    except access.NotFound:
        return


def may_start(user: User) -> bool:
    """Whether this person may start drills: an admin of this installation, or of a workspace people work in.

    A drill touches nothing but the workspace of drills.
    """
    if not user.is_active:
        return False
    mine = Membership.objects.filter(user=user, role=Role.ADMIN).exclude(workspace__slug=DRILLS)
    return user.is_superuser or mine.exists()
