#!/usr/bin/env python3
"""Django's command line. `up` serves a demo, `test` runs the tests; both work from a bare clone."""

import gc
import os
import sys


def main() -> None:
    gc.disable()  # until all is loaded (dashboard.apps): looking for garbage takes a third of a start
    from dashboard import bootstrap

    bootstrap.hand_over(sys.argv)

    from dashboard import data

    data.choose(sys.argv)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
