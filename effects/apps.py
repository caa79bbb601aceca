from django.apps import AppConfig


class EffectsConfig(AppConfig):
    name = "effects"
    verbose_name = "Effects"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from runs import halts, step_stops, stops

        from . import close, delivery_moves, ends, forwards, proposals, repair_moves, reviews

        stops.follow(ends.stopped, ends.concerned)
        stops.follow(delivery_moves.stopped, delivery_moves.concerned)
        stops.follow(reviews.stopped, reviews.concerned)
        stops.follow(forwards.stopped, forwards.concerned)
        step_stops.follow(reviews.step_stopped)
        halts.tell_kinds(repair_moves.answered)
        close.when_at_rest(proposals.by_drain)
