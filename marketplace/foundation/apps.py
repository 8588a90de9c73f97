from django.apps import AppConfig


class FoundationConfig(AppConfig):
    name = "marketplace.foundation"
    label = "foundation"
    default_auto_field = "django.db.models.BigAutoField"
