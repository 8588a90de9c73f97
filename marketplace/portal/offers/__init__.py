"""/offers: what can be rented now, for anybody.

views.py    the page, with the rows and filters of GET /api/v1/offers
urls.py     its address
"""
