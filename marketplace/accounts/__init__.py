"""Users, organisations, roles and API keys.

admin.py            pages for operators
api.py              /api/v1/: signing up and in, organisations, members, invitations
api_key_api.py      /api/v1/api-keys
api_keys.py         issue, rotate and revoke API keys
apps.py             the Django app
requester.py        the user, organisation and scopes of an authenticated request
auth.py             authentication by API key or by session
credentials.py      what lets a user in: revoked all at once, and never made by a request from before a reset
erasure.py          erase a person
errors.py           every error of accounts
mailing.py          mail to users, written down
models.py           the tables
organisations.py    members, roles, invitations
passwords.py        change a password, set a forgotten one by a mailed link
permissions.py      `HasScope`: which scope a view needs
schema.py           both ways of signing in, in the OpenAPI description
scopes.py           the scopes, and which role includes which
second_factor.py    codes of an authenticator app, and recovery codes
serializers.py      the fields of requests and answers
signin.py           a password for an API key
signin_addresses.py which addresses an account signed in from
signin_limits.py    how often a password may be wrong
signup.py           a new user
tasks.py            what Celery calls
urls.py             addresses
"""
