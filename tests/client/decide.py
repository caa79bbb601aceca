"""A reviewer in the database of a server: `python -m tests.client.decide 2` decides the first two reviews
that wait there. Keys that end with `:no` are rejected.
"""

from __future__ import annotations

import os
import sys
import time

import django


def main(number: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    django.setup()
    from effects import approvals
    from effects.models import Review
    from runs.access import person
    from runs.models import Membership, Role, User, Workspace

    bob = User.objects.create_user("bob@example.org", "a long password", name="Bob")
    Membership.objects.create(user=bob, workspace=Workspace.objects.get(), role=Role.REVIEWER)
    decided = 0
    while decided < number:
        for review in Review.objects.filter(closed_at__isnull=True, granted_at__isnull=True):
            if review.effect_key.endswith(":no"):
                approvals.reject(actor=person(bob), review_id=review.pk, reason="wrong card")
            else:
                approvals.approve(actor=person(bob), review_id=review.pk, digest=review.digest, signed_in_s=1)
            decided += 1
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]))
