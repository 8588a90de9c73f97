"""The HTTP API of jobs: views translate a request, call one verb and show its result.

jobs.py           submit, list, show, cancel, resume, confirm a price, retry
quotes.py         quotes
job_files.py      a job file as the body of a request
plan_checks.py    how far plans of trainings were off
offers.py         what is for rent, and what of it is busy; for everybody
bill.py           bills and earnings
streams.py        logs and events
metrics.py        figures of a running job, and the curve of its training
artifacts.py      uploads and downloads
volumes.py        named folders that jobs are given
assets.py         assets, and delegations of receipt keys
endpoints.py      endpoints and their versions
endpoint_keys.py  keys of endpoints, and their use
agents.py         what agents append to a lease
agent_urls.py     the addresses of that
gateways.py       the calls of gateways
gateway_urls.py   the addresses of those
job_views.py      jobs and artifacts as the API shows them
bodies.py         from a request to typed values, and back
schemas.py        what the OpenAPI description has beyond the wire types
"""
