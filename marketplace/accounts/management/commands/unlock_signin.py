"""`manage.py unlock_signin EMAIL`: let somebody sign in again, an operator too, whom nobody else could let in."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from marketplace.accounts import signin_limits
from marketplace.accounts.models import User


class Command(BaseCommand):
    """Prints each counter that it cleared; a repeat clears nothing."""

    help = "Forget an account's wrong passwords, and its mails that were asked for, and end its locks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="the account's address")

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"].strip().lower()
        cleared = signin_limits.unlock(email, codes=True)
        for words in cleared:
            self.stdout.write(f"Cleared: {words}")
        if not cleared:
            known = User.objects.filter(email=email).exists()
            what = "nothing was counted against it" if known else "there is no account of this address"
            self.stdout.write(f"{email}: {what}; an address that guessed waits out its own 15 minutes.")
