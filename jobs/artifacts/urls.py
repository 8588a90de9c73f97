"""Mounted at /artifacts/."""

from __future__ import annotations

from django.urls import path

from jobs.artifacts import views

urlpatterns = [path("<path:key>", views.serve, name="artifact-bytes")]
