from django.urls import path

from marketplace.portal.views import landing

urlpatterns = [path("", landing, name="landing")]
