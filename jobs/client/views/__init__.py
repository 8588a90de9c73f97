"""What people see on a terminal: each function takes a view of the API and returns text for rich; it asks nothing.

plan.py        a quote: where a job would run, what it would cost
training.py    what a training takes of each device
metrics.py     figures of a job
curve.py       what a training reported, drawn
dispute.py     a dispute
job.py         a job with its attempts, and a list of jobs
endpoint.py    an endpoint with its versions and replicas, and a list of endpoints
bill.py        a bill, earnings, and what their verification found
hold.py        a hold in the escrow contract
"""
