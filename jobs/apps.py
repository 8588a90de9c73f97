from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    label = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs.endpoints.keys import revoke_all_of
        from marketplace.accounts.tokens import when_revoked

        when_revoked(revoke_all_of)
