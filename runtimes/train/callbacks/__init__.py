"""What goes on beside the steps, where the configuration asks for it; a training without any of it calls none.

early_stop.py    whether the evaluation loss still falls
copies.py        further sets of the weights: their average over the steps, those of the best evaluation
profile.py       a trace of some steps
deterministic.py the same bits each time
"""
