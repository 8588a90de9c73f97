"""Signing in and out of the pages.

urls.py      the addresses
views.py     the form, and the end of the session
"""
