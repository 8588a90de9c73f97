import gc

from django.apps import AppConfig

# What loading the apps makes stays until the process ends: it is not searched for garbage, again and again, while it
# grows. This module is loaded before any model, and `ready` below comes after every other app's.
_was_enabled = gc.isenabled()
gc.disable()


class ConfigConfig(AppConfig):
    """Gives every Django process the Celery app and the start-up checks; no other package imports this one."""

    name = "marketplace.config"
    label = "config"

    def ready(self) -> None:
        """This app is the last of the settings' list."""
        from marketplace.config import celery, checks, database_age  # noqa: F401  importing them registers them

        gc.collect()
        gc.freeze()  # never searched again; shared with the processes that the web server forks
        if _was_enabled:
            gc.enable()
