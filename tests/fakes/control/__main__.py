"""python -m tests.fakes.control --port N --token T: a fake marketplace until SIGTERM."""

from __future__ import annotations

import argparse

from aiohttp import web

from tests.fakes.control.book import Book
from tests.fakes.control.server import application


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    options = parser.parse_args()
    web.run_app(application(Book(), options.token), host="127.0.0.1", port=options.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
