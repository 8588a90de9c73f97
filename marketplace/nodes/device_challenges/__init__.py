"""The work that a device is challenged with, in a device check.

calibration.py    how much work is demanded of a device, and how long it may take
proofs.py         whether the answer is right, in O(n^2)
"""
