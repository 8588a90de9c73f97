"""What a training takes, by arithmetic alone: no torch, so that the server and the `souk` command reckon it too.

reading.py      settings and config.json, as strangers wrote them, to what is planned
activations.py  bytes that one block keeps for its backward pass, a token
memory.py       the peak memory of a rank, by part
step_time.py    the seconds of a step, by part, from measured throughput and bandwidths
devices.py      memory of GPUs by their data sheets
advice.py       whether a training fits into a device, and the nearest settings that do
"""
