"""Decisions about an endpoint's replicas: pure functions, without a database and without a clock.

autoscaling.py  how many replicas an endpoint should have
forecast.py     how many requests at once it will have soon
cold_start.py   how long a replica takes to start
rollout.py      which version has which share of the requests, and when a new one is rolled back
step_plan.py    which replicas are started and drained now
spreading.py    on which node a replica goes, which one goes first, which one is an outlier
"""
