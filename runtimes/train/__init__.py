"""Trains a causal language model with FSDP2 under torchrun: `python -m runtimes.launch`, or torchrun -m runtimes.train."""
