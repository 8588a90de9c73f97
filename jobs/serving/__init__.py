"""Endpoints: what a serving job is beyond a job. ORM; what the gateway needs of it goes over `gateway_api.py`."""
