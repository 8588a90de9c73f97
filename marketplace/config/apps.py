from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """Gives every Django process the Celery app and the start-up checks; no other package imports this one."""

    name = "marketplace.config"
    label = "config"

    def ready(self) -> None:
        from marketplace.config import celery, checks, database_age  # noqa: F401  importing them registers them
