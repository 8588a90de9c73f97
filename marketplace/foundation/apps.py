import sys

from django.apps import AppConfig

RECURSION_LIMIT = 1000  # Python's own


class FoundationConfig(AppConfig):
    name = "marketplace.foundation"
    label = "foundation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Undo what py_ecc (of eth-account) does on import: it lets Python recurse 100,000 deep.

        That is deeper than the C stack: one request of nested brackets would kill the process that reads it.
        """
        import provider_agent.protocol  # noqa: F401  so that py_ecc is imported before the limit is put back

        sys.setrecursionlimit(RECURSION_LIMIT)
