"""/billing: an organisation's money.

views.py    the balance, paying in, and every movement, as the API has them
urls.py     the addresses
"""
