"""What the benchmarks measure and what loads it; nothing here publishes a figure of its own.

autoscale_day.py     one simulated day of an endpoint, for the benchmark `autoscale`
database.py          the embedded PostgreSQL and Django on it, for the benchmarks of money
fleet_agents.py      simulated agents, for the benchmark `fleet`
gateway_load.py      the load generator, for the benchmark `gateway`
gateway_ours.py      our own gateway, started alone on one core, for the benchmark `gateway`
gateway_peers.py     no gateway, nginx and LiteLLM, each started alone on one core, for the benchmark `gateway`
gateway_real.py      an engine that computes, for the benchmark `gateway`
ledger_bare.py       bare SQL of the ledger's rows, for the benchmark `ledger`
ranks.py             one case in new processes, one a rank, for the benchmarks `train` and `step_times`
torchft_gang.py      replicas under torchft that are killed, for the benchmark `goodput`
training_loading.py  memory of ranks that read a model, for the benchmark `train`
training_memory.py   peak memory of one step of ours, measured and reckoned, for the benchmark `train`
training_plans.py    drawn trainings within the memory that they were granted, for the benchmark `train`
training_saves.py    seconds and bytes of saves, for the benchmark `train`
training_steps.py    one step of ours and of other trainers, for the benchmarks `gpu` and `train`
tunnels_ends.py      the agent's end and the gateway's end, each a process, for the benchmark `tunnels`
wan.py               a slow connection between two network namespaces, for the benchmark `tunnels`
"""
