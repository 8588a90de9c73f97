"""Only billing's pages, so that its tests need no other package's."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("api/v1/", include("billing.urls")), path("admin/", admin.site.urls)]
