"""Which models an organisation used, or others used of it.

urls.py      the addresses
views.py     the page, and its lines as CSV
"""
