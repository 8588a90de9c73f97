"""The addresses of every group of pages.

To add a page:
    1. Write the view into `<group>/views.py`. A page for signed-in users has the decorator `@page("GET")` and takes
       the visitor as its second argument; a public page sets its caching itself.
    2. Write its template into `templates/portal/<group>/`; it extends `portal/shell.html`.
    3. Name its address in `<group>/urls.py`; a new group is included here, and listed in `__init__.py`.
    4. Test it in `tests/integration/portal/`.
"""

from __future__ import annotations

from django.urls import include, path

from marketplace.portal.chat.views import chats
from marketplace.portal.fake_card import fake_card_page

urlpatterns = [
    path("", include("marketplace.portal.landing.urls")),
    path("", include("marketplace.portal.signin.urls")),
    path("chat", chats, name="chats"),
    path("chat/", include("marketplace.portal.chat.urls")),
    path("", include("marketplace.portal.jobs.urls")),
    path("", include("marketplace.portal.offers.urls")),
    path("", include("marketplace.portal.earn.urls")),
    path("", include("marketplace.portal.billing.urls")),
    path("", include("marketplace.portal.usage.urls")),
    path("", include("marketplace.portal.solvency.urls")),
    path("", include("marketplace.portal.install.urls")),
    path("api/v1/fake-card/<uuid:top_up_id>", fake_card_page, name="fake-card"),
]
