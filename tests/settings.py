"""The settings of a test run: a data folder of its own, a file database."""

import os
import tempfile

os.environ.setdefault("ALLSTOP_DATA", tempfile.mkdtemp(prefix="allstop-test-"))
os.environ.setdefault("SECRET_KEY", "for tests only, it protects nothing at all, and it is long enough")

from dashboard.settings import *  # noqa: F403
from dashboard.settings import ALLSTOP_DATA, DATABASES

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(ALLSTOP_DATA / "test.sqlite3")}

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
