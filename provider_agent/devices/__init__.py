"""What a node can rent out: NVIDIA GPUs, or shares of the processor where there is none."""
