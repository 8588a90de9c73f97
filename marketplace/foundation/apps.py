from django.apps import AppConfig


class FoundationConfig(AppConfig):
    name = "marketplace.foundation"
    label = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Load what signs and checks receipts before any request is read, not during one."""
        from provider_agent.protocol import ethereum

        ethereum.preload()
