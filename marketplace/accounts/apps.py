from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "marketplace.accounts"
    label = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.db.models.signals import pre_delete

        from marketplace.accounts import (
            credentials,
            schema,  # noqa: F401  importing it registers it
        )
        from marketplace.accounts.models import Membership, User

        for model in (Membership, User):
            pre_delete.connect(credentials.revoke_of_deleted, sender=model)
