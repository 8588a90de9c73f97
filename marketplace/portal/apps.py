from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "marketplace.portal"
    label = "portal"
