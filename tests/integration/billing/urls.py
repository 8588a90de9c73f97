"""Only what billing shows, so that its tests stand without the other rooms' pages."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("api/v1/", include("billing.urls")), path("admin/", admin.site.urls)]
