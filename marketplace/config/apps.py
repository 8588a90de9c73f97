from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The roof as an app: every Django process gets the Celery app and the start-up checks, and no room imports it."""

    name = "marketplace.config"
    label = "config"

    def ready(self) -> None:
        from marketplace.config import celery, checks  # noqa: F401  importing them registers them
