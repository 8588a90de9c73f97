from django.apps import AppConfig


class FoundationConfig(AppConfig):
    name = "marketplace.foundation"
    label = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the protocol before any request is read: it puts Python's recursion limit back."""
        import provider_agent.protocol  # noqa: F401
