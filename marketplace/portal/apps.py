from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "marketplace.portal"
    label = "portal"

    def ready(self) -> None:
        from marketplace.accounts.erasure import when_erased
        from marketplace.portal.chat.forgetting import forget_user
        from marketplace.portal.signin import reset_mail, signup_mail  # noqa: F401  register what sends mail

        when_erased(forget_user)
