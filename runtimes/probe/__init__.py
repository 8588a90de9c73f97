"""Measures devices: FLOP/s by dtype and memory bandwidth, all devices of a node busy at once."""
