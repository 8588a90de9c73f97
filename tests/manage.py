"""Django's commands against the tests' servers: `python -m tests.manage makemigrations --check`."""

from __future__ import annotations

import os
import sys

from tests import services


def main() -> None:
    """Start the servers, then do what `manage.py` does."""
    services.prepare_environment()
    os.environ["DJANGO_SETTINGS_MODULE"] = "marketplace.config.settings"
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
