from django.urls import URLPattern, URLResolver, include, path

from dashboard import health, metrics
from dashboard.admin import site
from dashboard.pages.urls import handler403, handler404, handler429, handler500

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", health.livez),
    path("readyz", health.readyz),
    path("metrics", metrics.metrics),
    path("api/v1/", include("dashboard.api")),
    path("admin/", site.urls),
    path("", include("dashboard.pages.urls")),
]

__all__ = ["handler403", "handler404", "handler429", "handler500", "urlpatterns"]
