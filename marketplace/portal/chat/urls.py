"""/chat/"""

from __future__ import annotations

from django.urls import path

from marketplace.portal.chat import dataset_views, views

urlpatterns = [
    path("new", views.new_chat, name="chat-new"),
    path("organisation", views.choose_organisation, name="chat-organisation"),
    path("datasets", dataset_views.dataset_list, name="datasets"),
    path("datasets/<uuid:dataset_id>", dataset_views.dataset_page, name="dataset"),
    path("datasets/<uuid:dataset_id>/quote", dataset_views.quote, name="dataset-quote"),
    path("datasets/<uuid:dataset_id>/launch", dataset_views.launch, name="dataset-launch"),
    path("datasets/<uuid:dataset_id>/job.yaml", dataset_views.job_file, name="dataset-job-file"),
    path("datasets/<uuid:dataset_id>/files/<str:name>", dataset_views.file, name="dataset-file"),
    path("<uuid:chat_id>", views.chat_page, name="chat"),
    path("<uuid:chat_id>/settings", views.change, name="chat-settings"),
    path("<uuid:chat_id>/delete", views.delete, name="chat-delete"),
    path("<uuid:chat_id>/export.jsonl", views.export, name="chat-export"),
    path("<uuid:chat_id>/messages", views.say, name="chat-say"),
    path("<uuid:chat_id>/messages/<uuid:message_id>", views.message, name="chat-message"),
    path("<uuid:chat_id>/messages/<uuid:message_id>/stop", views.stop, name="chat-stop"),
    path("<uuid:chat_id>/messages/<uuid:message_id>/left-out", views.leave_out, name="chat-left-out"),
]
