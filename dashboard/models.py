"""The tables of this room: notices and where they go."""

from dashboard.notices.models import (
    Attempt,
    Endpoint,
    NoMail,
    Notice,
    Posting,
    PostingState,
    Subscription,
)

__all__ = ["Attempt", "Endpoint", "NoMail", "Notice", "Posting", "PostingState", "Subscription"]
