"""How the server is put together and started. No other package imports this one.

commands/             the server's commands of `souk`: up, gateway, ledger, chain
embedded/             `souk up`: PostgreSQL, Redis and all processes as children of one command
web/                  the web process: an event loop around Django

api_errors.py         every error of the API as {"code", "message", "details"}
api_schema.py         /api/schema, computed once a process
apps.py               the Django app
celery.py             the Celery app
checks.py             refuses to start with unsafe settings
content_security.py   what a browser may load, on every answer
database_age.py       refuses a database from between two migrations that are one now
health.py             /healthz
logging.py            one JSON line per event
metrics.py            /metrics
openapi.py            which paths the published API description includes
request_metrics.py    counts and times every request
settings.py           Django's settings, from the environment
urls.py               every address of the web process
wsgi.py               Django, as the web process calls it
zero_bytes.py         a zero byte in an address is a bad request
"""
