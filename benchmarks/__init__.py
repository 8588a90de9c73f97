"""One file a figure: `python -m benchmarks.NAME --write` measures it and keeps the result. README.md explains each.

record.py writes and reads results; figures.py and tables/ make the tables of the pages from them; setups/ has
what is measured and what loads it.
"""
