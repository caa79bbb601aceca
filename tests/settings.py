"""The settings of a test run: a data folder of its own, and the database that ALLSTOP_TEST_DATABASE says."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from runs import keyring
from tests import servers, tools

# Benchmarks, which take these settings too, are about a real disk.
_where = tools.quick_folder(500) if "PYTEST_VERSION" in os.environ else None
_folder = tempfile.mkdtemp(prefix="allstop-test-", dir=_where)
atexit.register(shutil.rmtree, _folder, ignore_errors=True)

OURS = "HOSTS ORIGINS OUTBOUND_ORIGINS STATIC BEHIND_PROXY DEBUG POOL PERMIT_S METRICS_TOKEN LOG_FORMAT KEYS"
for _name in [*OURS.split(), "LOG_LEVEL", "CALLS_PER_TOKEN", "CALLS_PER_ADDRESS"]:
    os.environ.pop(f"ALLSTOP_{_name}", None)
os.environ.pop("REDIS_URL", None)
os.environ["ALLSTOP_DATA"] = _folder
keyring.prepare(Path(_folder))  # as `up` does
os.environ["ALLSTOP_BUFFER"] = f"{_folder}/buffer"  # of the clients that tests start
os.environ["SECRET_KEY"] = "for tests only, it protects nothing at all, and it is long enough"
os.environ["DATABASE_URL"] = (
    servers.postgresql_url() if servers.kind() == "postgresql" else f"sqlite:///{_folder}/allstop.sqlite3"
)

from dashboard.settings import *  # noqa: E402, F403
from dashboard.settings import DATABASES  # noqa: E402

if servers.kind() == "sqlite":
    # A file: threads and processes of a race must meet at the same database.
    DATABASES["default"]["TEST"] = {"NAME": f"{_folder}/test.sqlite3"}

WHITENOISE_AUTOREFRESH = True  # else each test client would first read all files there are
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
