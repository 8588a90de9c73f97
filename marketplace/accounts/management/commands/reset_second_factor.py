"""`manage.py reset_second_factor EMAIL`: for who lost the authenticator app and all recovery codes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from marketplace.accounts import second_factor, signin_limits
from marketplace.accounts.models import User


class Command(BaseCommand):
    """The user is told by mail; an operator sets up another one at the next sign-in."""

    help = "Remove an account's second factor. Make sure that it is its owner who asks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="the account's address")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=options["email"].strip().lower()).first()
        if user is None:
            raise CommandError(f"There is no account of {options['email']}.")
        had_one = second_factor.disable(user)
        signin_limits.forgive_code(user.email)
        self.stdout.write(f"{user.email}: {'its second factor was removed' if had_one else 'it had no second factor'}.")
