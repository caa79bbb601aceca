"""HTTP and WebSocket, one process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()  # sets Django up, so it comes before the imports below

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from django.conf import settings

from dashboard.live import websocket_urlpatterns

# Scheme, host and port must all match: a page of another port of this machine is a stranger.
sockets = OriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), settings.ALLSTOP_ORIGINS)
application = ProtocolTypeRouter({"http": pages, "websocket": sockets})
