"""The front page: what this marketplace is and has now.

counts.py    the market in five numbers
urls.py      its address
views.py     the page
"""
