"""PostgreSQL and Redis for all runs of one `make mutants`. Runs with the tests' environment.

Prints the variables that lead the tests to them as one line of JSON. From then on it empties Redis for each line that
it reads, and answers with one: tests that a mutant held for too long were killed, and left something there. Each
run copies one migrated database anew. Ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys

import redis

from tests import databases, services


def main() -> None:
    """See the module."""
    services.prepare_environment()
    databases.name_template()
    names = ("DATABASE_URL", "REDIS_URL", "SOUK_TEST_SERVERS", databases.NAME_VARIABLE)
    print(json.dumps({name: os.environ[name] for name in names if name in os.environ}), flush=True)
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    for _ in sys.stdin:
        client.flushdb()
        print(json.dumps({"empty": True}), flush=True)


if __name__ == "__main__":
    main()
