"""Signing in and out of the pages, and the password.

urls.py             the addresses
views.py            the form, and the end of the session
password_views.py   changing the password, and setting a forgotten one
reset_mail.py       the mail with the link for it
second_step.py      what a session opens before it has shown the second factor
second_factor_views.py  the page that sets it up, asks for it and removes it
signup_mail.py      the mail to who signed up
signup_views.py     the page that its link opens
limiting.py         attempts a minute
"""
