from django.apps import AppConfig


class EffectsConfig(AppConfig):
    name = "effects"
    verbose_name = "Effects"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from runs import step_stops, stops

        from . import delivery_moves, ends, reviews

        stops.follow(ends.stopped, ends.concerned)
        stops.follow(delivery_moves.stopped, delivery_moves.concerned)
        stops.follow(reviews.stopped, reviews.concerned)
        step_stops.follow(reviews.step_stopped)
