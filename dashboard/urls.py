from django.urls import URLPattern, URLResolver, include, path

from dashboard import api, health, metrics
from dashboard.admin import site
from dashboard.pages.urls import handler403, handler404, handler429, handler500
from effects import hooks

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", health.livez),
    path("readyz", health.readyz),
    path("metrics", metrics.metrics),
    path("api/v1/", include("dashboard.api")),
    path("hooks/<str:account_id>", api.door(hooks.hook), name="hook"),
    path("admin/", site.urls),
    path("", include("dashboard.pages.urls")),
]

__all__ = ["handler403", "handler404", "handler429", "handler500", "urlpatterns"]
