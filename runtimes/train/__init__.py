"""Trains a causal language model with FSDP2 under torchrun. Start it by `python -m runtimes.launch`."""
