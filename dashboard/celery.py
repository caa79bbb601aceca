"""The Celery app. Messages are wake-ups; rows are the truth, and the periodic tasks find what was lost."""

import os

from celery import Celery
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

from django.conf import settings

PERIODIC = {
    "sweep": {"task": "effects.tasks.sweep", "schedule": 1.0},
    "reconcile": {"task": "effects.tasks.reconcile_due", "schedule": 2.0},
    "audit": {"task": "runs.tasks.audit", "schedule": 3.0},
    "seal": {"task": "runs.tasks.seal", "schedule": 5.0},
    "report": {"task": "dashboard.tasks.issue_due", "schedule": 3.0},
    "statements": {"task": "dashboard.tasks.state_day", "schedule": 60.0},
    "forget": {"task": "runs.tasks.forget", "schedule": 600.0},
    "notices": {"task": "dashboard.tasks.tell", "schedule": 2.0},
    "drills": {"task": "dashboard.tasks.drills", "schedule": 5.0},
    "forget notices": {"task": "dashboard.tasks.forget_notices", "schedule": 3600.0},
}
# These talk to providers or carry out a drill, and each may take seconds.
CALLS = (
    *("effects.tasks.execute", "effects.tasks.check", "effects.tasks.deliver"),
    *("dashboard.tasks.send_notices", "dashboard.tasks.send_mail", "dashboard.tasks.drill"),
)
# A tick that nobody took in time is dropped: the next one does the same work.
BEAT = {name: {**entry, "options": {"expires": 10.0}} for name, entry in PERIODIC.items()}

app = Celery("allstop")
app.conf.update(
    broker_url=settings.REDIS_URL or "memory://localhost/",
    # In memory a worker polls: the default of one second would be the latency of every task. A broker that
    # went silent is noticed and left within seconds.
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 3, "health_check_interval": 20}
    if settings.REDIS_URL
    else {"polling_interval": 0.02},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_ignore_result=True,
    task_acks_late=True,
    task_publish_retry=False,
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    # A worker takes from its queues in turn: a sweep waits for no backlog of calls to a slow provider.
    task_queues=[Queue("celery"), Queue("calls")],
    task_routes={name: {"queue": "calls"} for name in CALLS},
    timezone="UTC",
    beat_schedule=BEAT,
    beat_scheduler="celery.beat:Scheduler",  # keeps no file: after a restart everything is due
    # Threads: a task waits for a provider far more than it computes, and one pid is one worker.
    worker_pool="threads",
    worker_concurrency=16,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)
app.autodiscover_tasks()
