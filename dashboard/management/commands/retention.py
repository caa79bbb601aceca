"""What the rules of each workspace keep no longer: manage.py retention --dry-run | --apply."""

from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from dashboard import retention
from runs.models import Workspace


class Command(BaseCommand):
    help = "Count what the rules of retention let go (--dry-run), or let it go (--apply), batch by batch."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--dry-run", action="store_true", help="count only; nothing is changed")
        how.add_argument("--apply", action="store_true", help="let it go; may be stopped and called again")
        parser.add_argument("--workspace", metavar="SLUG", default="", help="default: all of them")
        parser.add_argument("--data", metavar="DIR", help="folder of the database")

    def handle(self, *args: Any, **options: Any) -> None:
        found = Workspace.objects.order_by("slug")
        for workspace in found.filter(slug=options["workspace"]) if options["workspace"] else found:
            (self.let_go if options["apply"] else self.count)(workspace)
        if not options["workspace"]:
            self.sessions(apply=options["apply"])

    def count(self, workspace: Workspace) -> None:
        for one in retention.due(workspace.pk):
            kept = f"kept {one.days} days: {one.rows} would go" if one.days else "kept for good"
            self.stdout.write(f"{workspace.slug}: {one.label.lower()}: {kept}")

    def let_go(self, workspace: Workspace) -> None:
        gone: Counter[str] = Counter()
        for name, rows in retention.apply(workspace.pk):
            gone[name] += rows
        for one in retention.KEPT:
            if gone[one.name]:
                self.stdout.write(f"{workspace.slug}: {one.label.lower()}: {gone[one.name]} gone")
        if not gone:
            self.stdout.write(f"{workspace.slug}: nothing had to go")

    def sessions(self, *, apply: bool) -> None:
        rows = retention.sessions_over().count()
        while apply and retention.end_sessions():
            pass
        self.stdout.write(f"sign-in sessions that are over: {rows} {'gone' if apply else 'would go'}")
