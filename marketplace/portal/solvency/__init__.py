"""The page on which anybody sees whether everything is there that is owed.

urls.py      its address
views.py     the page
"""
