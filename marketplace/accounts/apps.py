from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "marketplace.accounts"
    label = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.db.models.signals import post_delete, pre_delete

        from marketplace.accounts import (
            credentials,
            schema,  # noqa: F401  importing it registers it
        )
        from marketplace.accounts.models import Membership, User

        # After a membership's row has gone, which waits for a key that is being made; before a user's, as their keys
        # forget then who made them.
        post_delete.connect(credentials.revoke_with_membership, sender=Membership)
        pre_delete.connect(credentials.revoke_with_user, sender=User)
