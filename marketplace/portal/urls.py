"""The addresses of every group of pages."""

from __future__ import annotations

from django.urls import include, path

from marketplace.portal.chat.views import chats
from marketplace.portal.fake_card import fake_card_page

urlpatterns = [
    path("", include("marketplace.portal.landing.urls")),
    path("", include("marketplace.portal.signin.urls")),
    path("chat", chats, name="chats"),
    path("chat/", include("marketplace.portal.chat.urls")),
    path("", include("marketplace.portal.usage.urls")),
    path("", include("marketplace.portal.solvency.urls")),
    path("", include("marketplace.portal.install.urls")),
    path("api/v1/fake-card/<uuid:top_up_id>", fake_card_page, name="fake-card"),
]
