"""Answers the marketplace's demand for work: a chain of exact matrix products, and memory filled and read back."""
