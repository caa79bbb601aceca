import atexit
import gc

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "dashboard"
    verbose_name = "Dashboard"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Registers the checks, and makes our Celery app the one that shared tasks belong to. The package's
        # own __init__ stays empty: the demo's processes and the bootstrap import it without a server.
        from dashboard import auditing, celery, checks  # noqa: F401
        from dashboard.notices import outbox
        from runs import evidence

        evidence.listen(outbox.EVENT_OF, outbox.heard)
        auditing.listen()
        gc.freeze()  # all that is loaded by now is garbage at the end only: then connections are closed by it
        atexit.register(gc.unfreeze)
        gc.enable()  # manage.py has switched it off until here
