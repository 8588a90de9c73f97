"""Whose address something counts under, behind which proxies.

client_address.py    of a request
forwarded.py         which address proxies vouch for; without Django, for the gateway too
untrusted_proxies.py warns where a proxy stands in front and none is trusted
"""
