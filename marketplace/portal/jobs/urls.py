"""The addresses of jobs and of the editor."""

from __future__ import annotations

from django.urls import path

from marketplace.portal.jobs import actions, launching, views

urlpatterns = [
    path("jobs", views.jobs_page, name="jobs-page"),
    path("jobs/cancel", actions.cancel_several, name="jobs-cancel"),
    path("jobs/<uuid:job_id>", views.job_page, name="job-page"),
    path("jobs/<uuid:job_id>/now", views.job_now, name="job-now"),
    path("jobs/<uuid:job_id>/log", views.job_log, name="job-log"),
    path("jobs/<uuid:job_id>/log.txt", views.job_log_text, name="job-log-text"),
    path("jobs/<uuid:job_id>/cancel", actions.cancel, name="job-cancel"),
    path("jobs/<uuid:job_id>/budget", actions.give_more, name="job-budget"),
    path("jobs/<uuid:job_id>/repeat", actions.repeat, name="job-repeat"),
    path("launch", launching.launch_page, name="launch-page"),
    path("launch/check", launching.check, name="launch-check"),
    path("launch/price", launching.price, name="launch-price"),
    path("launch/now", launching.launch, name="launch-now"),
]
