"""Django's database backend for PostgreSQL, with one difference.

base.py    a moment that Python does not know is read as the last one that it does, or the first
"""
