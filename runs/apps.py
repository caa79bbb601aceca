from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import children, stops

        stops.follow(children.follow, many=children.follow_many)
        stops.join(children.again, concerned=children.outside)
