"""The admin beside the pages, whatever else is mounted."""

from django.urls import URLPattern, URLResolver, path

from dashboard.admin import site
from dashboard.urls import urlpatterns as others

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", site.urls), *others]
