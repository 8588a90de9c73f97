"""Measures devices: FLOP/s by dtype and memory bandwidth, all devices of a node busy at once.

__main__.py   starts one process a device, all at one moment, and prints their figures
measure.py    one device's measurement
challenge/    answers the marketplace's demand for work
"""
