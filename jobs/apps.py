from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    label = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from billing.charging.limits import when_counted
        from jobs.endpoints.keys import revoke_all_of
        from jobs.endpoints.spend_limits import used_by_calls
        from marketplace.accounts.credentials import when_revoked

        when_revoked(revoke_all_of)
        when_counted(used_by_calls)
