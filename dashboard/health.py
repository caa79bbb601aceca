"""Is this process alive, and could it record a stop right now? For proxies and container health checks."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from runs.models import IdempotencyRecord
from runs.store import new_id


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """200 as long as requests are answered at all; asks nobody."""
    return HttpResponse("alive\n", "text/plain; charset=utf-8")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when a row was written as a stop would write it (and taken back), else 503."""
    try:
        with transaction.atomic():
            IdempotencyRecord.objects.create(owner="readyz", key=new_id("rdy"), request_digest="")
            transaction.set_rollback(True)
    except (DatabaseError, InterfaceError):
        return HttpResponse("a stop can NOT be recorded\n", "text/plain; charset=utf-8", 503)
    return HttpResponse("a stop can be recorded\n", "text/plain; charset=utf-8")
