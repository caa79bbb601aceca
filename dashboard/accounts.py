from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class Adapter(DefaultAccountAdapter):
    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """None: where a person lands says enough. After a sign-out they would come a page too late."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody signs up: an admin of a workspace adds people."""
        return False
