"""Signing in and out of the pages, and the password.

urls.py             the addresses
views.py            the form, and the end of the session
password_views.py   changing the password, and setting a forgotten one
reset_mail.py       the mail with the link for it
limiting.py         attempts a minute
"""
