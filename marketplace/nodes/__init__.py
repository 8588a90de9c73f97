"""Supply: providers, their nodes, and what can be rented. It knows neither jobs nor money.

api/                the routes, for agents and for people
device_challenges/  work that a device is challenged with: how much of it, and whether the answer is right
device_checks/      device checks: when, step by step, and what they found
fabrics/            which nodes of one provider reach each other, and how fast
inventory/          the devices of a node
joining/            enrolment and retirement
models/             the tables
offering/           price and terms, opening hours, drain and quarantine
releases/           releases of the agent, and their rollout
watching/           heartbeats, metrics, reputation

admin.py            pages for operators
agent_auth.py       which node signed a request
agent_urls.py       addresses for agents
apps.py             the Django app
errors.py           every error of supply
states.py           states of nodes, checks, link probes and releases
tasks.py            Celery tasks
urls.py             addresses for people
wake.py             wakes agents whose sync request is being held
"""
