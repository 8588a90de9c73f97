"""Evaluates language models on tasks of lm-evaluation-harness; the same answers whatever the batch or interruption.

__main__.py   the entry point: one process; the exit code is one of contract.ExitCode
run.py        an evaluation from its start to its end; read this first
config.py     the configuration, and what is wrong with one
tasks.py      task files of the harness with their data, read from the job's files alone
harness.py    what the harness asks of a model, and its metrics over the answers
request.py    one request, and its digest
answers.py    the answers so far: a file that only grows, and checkpoints of it
model.py      a model with its digest; computes one request alone
endpoint.py   a model behind an OpenAI-compatible address; asks it one request
echo.py       log-likelihoods of a given text, in what an endpoint returns
http_client.py  POSTs to one endpoint: tries, waits, refusals
watched_socket.py  keeps one try within its time and bytes, and leaves it at SIGTERM
compute.py    computes what is not answered yet, on all devices, and saves
compare.py    scores of samples, and what one model gained and lost against another
embed.py      a sample's place on the map
results.py    results.json and samples.jsonl
report.py     report.html, which needs no network and no script
drawing.py    charts and the map as SVG
"""
