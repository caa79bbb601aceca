"""Settings. Everything an installation may decide is read from the environment (see docs/operating)."""

import os
from pathlib import Path
from typing import Any

import environ
from csp.constants import NONE, SELF

from dashboard import data, logs

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
ALLSTOP_DATA = data.folder()
# The folder of seal.key and redaction.key. Every process that signs or redacts sees the same.
ALLSTOP_KEYS = data.keys(ALLSTOP_DATA)

DEBUG = env.bool("ALLSTOP_DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or data.secret_key(ALLSTOP_DATA)

# Names this server answers to, and the exact origins (scheme, host, port) its pages are opened at.
ALLOWED_HOSTS = ALLSTOP_HOSTS = env.list("ALLSTOP_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
ALLSTOP_ORIGINS = env.list("ALLSTOP_ORIGINS", default=["http://127.0.0.1:8000", "http://localhost:8000"])
# Where drills reach this instance from its worker, when neither the address that `up` keeps in the data
# folder nor an origin above answers there.
ALLSTOP_SELF_URL = env.str("ALLSTOP_SELF_URL", default="")
# Exact origins that outbound calls may reach without https and at private addresses.
ALLSTOP_OUTBOUND_ORIGINS = env.list("ALLSTOP_OUTBOUND_ORIGINS", default=[])
# The last moment at which a send may begin after its permit, in seconds.
ALLSTOP_PERMIT_S = env.float("ALLSTOP_PERMIT_S", default=10.0)
# Where kinds of provider workspace write, one folder per workspace. All processes see the same.
ALLSTOP_FILES = env.str("ALLSTOP_FILES", default="") or str(ALLSTOP_DATA / "files")
# The browser of kinds of provider browser; without one, Playwright's own. As root it has no sandbox.
ALLSTOP_CHROMIUM = env.str("ALLSTOP_CHROMIUM", default="")
ALLSTOP_CHROMIUM_SANDBOX = env.bool("ALLSTOP_CHROMIUM_SANDBOX", default=os.geteuid() != 0)

# Whoever shows it may read /metrics; without one, only this machine may.
ALLSTOP_METRICS_TOKEN = env.str("ALLSTOP_METRICS_TOKEN", default="")
# API calls a minute, and how many at once, of one token and of one address. 0: no limit. Stops have none.
ALLSTOP_CALLS_PER_TOKEN = env.int("ALLSTOP_CALLS_PER_TOKEN", default=6000)
ALLSTOP_CALLS_PER_ADDRESS = env.int("ALLSTOP_CALLS_PER_ADDRESS", default=12000)

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "allauth",
    "allauth.account",
    "django_fsm",
    "django_htmx",
    "ninja",
    "csp",
    "runs",
    "effects",
    "dashboard",
]

MIDDLEWARE = [
    "dashboard.front.front",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "dashboard.urls"
ASGI_APPLICATION = "dashboard.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database -----------------------------------------------------------------------------------------

SQLITE = {
    # BEGIN IMMEDIATE: a writer waits for its turn at the start instead of failing in the middle.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # No temporary file: a stop that touches many pages would fail on a full disk before its COMMIT tells.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
    "PRAGMA temp_store=MEMORY;",
}

POSTGRESQL = {
    "pool": {
        "min_size": 1,
        "max_size": env.int("ALLSTOP_POOL", default=20),
        # Whoever presses Stop while the store is away is told so within seconds.
        "timeout": env.float("ALLSTOP_POOL_WAIT_S", default=3.0),
        # A pool that fails to connect asks ever more seldom, for minutes; one that gave up asks at once.
        "reconnect_timeout": 3,
    },
    "options": " ".join(
        f"-c {name}={value}"
        for name, value in {
            "default_transaction_isolation": r"read\ committed",
            "idle_in_transaction_session_timeout": "5s",
            "statement_timeout": "10s",
            "lock_timeout": "3s",
        }.items()
    ),
    "connect_timeout": 3,
    "tcp_user_timeout": 10_000,  # milliseconds: a machine that has gone is not waited for while TCP repeats
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def database(url: str) -> dict[str, Any]:
    """The entry of DATABASES for sqlite:///… or postgres://…; without a URL, a file in the data folder."""
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(ALLSTOP_DATA / "allstop.sqlite3")}
    config: dict[str, Any] = environ.Env.db_url_config(url) if url else file
    mine = SQLITE if config["ENGINE"].endswith("sqlite3") else POSTGRESQL
    config["OPTIONS"] = {**mine, **config.get("OPTIONS", {})}
    return {**config, "ATOMIC_REQUESTS": False, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}


DATABASES = {"default": database(env.str("DATABASE_URL", default=""))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Messages: rows are the truth, these only wake someone up --------------------------------------------

REDIS_URL = env.str("REDIS_URL", default="")


def channel_layer(url: str) -> dict[str, Any]:
    """In process without Redis; with it, hosts that neither time out a silent socket nor run out of them."""
    if not url:
        return {"BACKEND": "channels.layers.InMemoryChannelLayer"}
    host = {"address": url, "socket_timeout": None, "max_connections": 20000}
    return {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [host]}}


CHANNEL_LAYERS = {"default": channel_layer(REDIS_URL)}
# Of each process: the limits of sign-ins. Bounded, and large enough that a flood pushes no limit out.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 20_000},
    }
}

# --- E-mail: a run's own messages, and notices to people who asked for them ------------------------------

EMAIL_URL = env.str("EMAIL_URL", default="")
EMAIL_CONFIGURED = bool(EMAIL_URL)
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
EMAIL_TIMEOUT = 10
# After so many seconds, something unknown is past its due time, and who asked for it is told.
ALLSTOP_UNKNOWN_DUE_S = env.float("ALLSTOP_UNKNOWN_DUE_S", default=14_400.0)
DEFAULT_FROM_EMAIL = env.str("ALLSTOP_EMAIL_FROM", default="Allstop <allstop@localhost>")
if EMAIL_CONFIGURED:
    vars().update({name: said for name, said in environ.Env.email_url_config(EMAIL_URL).items() if said})

# --- People -------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "runs.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
ACCOUNT_ADAPTER = "dashboard.accounts.Adapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
SESSION_ENGINE = "django.contrib.sessions.backends.db"

# --- What a browser may do ----------------------------------------------------------------------------

SECURE = bool(ALLSTOP_ORIGINS) and all(origin.startswith("https://") for origin in ALLSTOP_ORIGINS)
CSRF_TRUSTED_ORIGINS = ALLSTOP_ORIGINS
CSRF_FAILURE_VIEW = "dashboard.pages.errors.csrf_failed"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
ALLSTOP_BEHIND_PROXY = env.bool("ALLSTOP_BEHIND_PROXY", default=False)
if ALLSTOP_BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = SECURE
# Subdomains and preload lists are the decision of whoever owns the domain.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "style-src": [SELF],
        "script-src": [SELF],
        "connect-src": [SELF],  # covers the page's own socket too
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    },
}

# --- Files, words, time ---------------------------------------------------------------------------------

STATIC_URL = "static/"
STATICFILES_DIRS = [path for path in [BASE_DIR / "static"] if path.is_dir()]
# The container collects its files; a checkout serves them from where they lie.
STATIC_ROOT = env.str("ALLSTOP_STATIC", default="") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage",
    },
}

LANGUAGE_CODE = "en"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

ALLSTOP_LOG_FORMAT = env.str("ALLSTOP_LOG_FORMAT", default="text")
LOGGING = logs.logging_of(ALLSTOP_LOG_FORMAT, env.str("ALLSTOP_LOG_LEVEL", default=""))
