"""The Celery app. Messages are wake-ups; rows are the truth, and the periodic tasks find what was lost."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

from django.conf import settings

PERIODIC = {
    "sweep": {"task": "effects.tasks.sweep", "schedule": 1.0},
    "reconcile": {"task": "effects.tasks.reconcile_due", "schedule": 2.0},
    "seal": {"task": "runs.tasks.seal", "schedule": 5.0},
}

app = Celery("allstop")
app.conf.update(
    broker_url=settings.REDIS_URL or "memory://",
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    task_acks_late=True,
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    beat_schedule=PERIODIC,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
)
app.autodiscover_tasks()
