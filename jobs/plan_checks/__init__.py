"""What the planner said of a training, held against what was measured; nothing that is paid follows from it.

keeping.py    one row a completed, paid training; the oldest go
comparing.py  a training's own words, within what the server knows, beside the planner's figures: pure
summaries.py  medians over trainings like one that is planned: an organisation's own, and all
"""
