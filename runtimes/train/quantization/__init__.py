"""Frozen weights in four bits (QLoRA, https://arxiv.org/abs/2305.14314), which adapters are trained beside.

nf4.py     a weight's numbers in four bits each, and back, by bitsandbytes
linear.py  linear modules that keep their weight so, and which ones of a model become them
"""
