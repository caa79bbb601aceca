"""The tables of this room: notices and where they go; drills and when they are due; statements and keys."""

from dashboard.drilling.models import DrillResult, DrillRun, DrillSchedule
from dashboard.notices.models import (
    Attempt,
    Endpoint,
    NoMail,
    Notice,
    Posting,
    PostingState,
    Subscription,
)
from dashboard.statements.models import SealKey, Statement, StatementKind

__all__ = [
    "Attempt",
    "DrillResult",
    "DrillRun",
    "DrillSchedule",
    "Endpoint",
    "NoMail",
    "Notice",
    "Posting",
    "PostingState",
    "SealKey",
    "Statement",
    "StatementKind",
    "Subscription",
]
