"""A price promise for a job file: made, signed, and verified when the job is submitted.

quotes.py       makes, stores, signs and verifies quotes
quote_terms.py  what a plan promises: ceiling, cap, what is expected
"""
