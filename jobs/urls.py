"""Routes of jobs for customers, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from jobs.api import (
    artifacts,
    assets,
    bill,
    endpoint_keys,
    endpoints,
    jobs,
    metrics,
    offers,
    plan_checks,
    quotes,
    streams,
    volumes,
)

urlpatterns = [
    path("offers", offers.OffersView.as_view(), name="offers"),
    path("quotes", quotes.QuotesView.as_view(), name="quotes"),
    path("plan-checks", plan_checks.PlanChecksView.as_view(), name="plan-checks"),
    path("uploads", artifacts.UploadsView.as_view(), name="uploads"),
    path("uploads/<uuid:artifact_id>/complete", artifacts.UploadCompleteView.as_view(), name="upload-complete"),
    path("jobs", jobs.JobsView.as_view(), name="jobs"),
    path("jobs/<uuid:job_id>", jobs.JobDetailView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/cancel", jobs.CancelView.as_view(), name="cancel-job"),
    path("jobs/<uuid:job_id>/resume", jobs.ResumeView.as_view(), name="resume-job"),
    path("jobs/<uuid:job_id>/confirm-price", jobs.ConfirmPriceView.as_view(), name="confirm-price"),
    path("jobs/<uuid:job_id>/retry", jobs.RetryView.as_view(), name="retry-job"),
    path("jobs/<uuid:job_id>/logs", streams.LogsView.as_view(), name="job-logs"),
    path("jobs/<uuid:job_id>/events", streams.EventsView.as_view(), name="job-events"),
    path("jobs/<uuid:job_id>/curve", metrics.JobCurveView.as_view(), name="job-curve"),
    path("jobs/<uuid:job_id>/metrics", metrics.JobMetricsView.as_view(), name="job-metrics"),
    path("jobs/<uuid:job_id>/artifacts", artifacts.JobArtifactsView.as_view(), name="job-artifacts"),
    path("jobs/<uuid:job_id>/bill", bill.JobBillView.as_view(), name="job-bill"),
    path("jobs/<uuid:job_id>/bill/export", bill.JobBillExportView.as_view(), name="job-bill-export"),
    path("endpoints", endpoints.EndpointsView.as_view(), name="endpoints"),
    path("endpoints/<uuid:endpoint_id>", endpoints.EndpointDetailView.as_view(), name="endpoint"),
    path("endpoints/<uuid:endpoint_id>/rollback", endpoints.RollbackView.as_view(), name="endpoint-rollback"),
    path("endpoints/<uuid:endpoint_id>/take-back", endpoints.TakeBackView.as_view(), name="endpoint-take-back"),
    path("endpoints/<uuid:endpoint_id>/versions", endpoints.VersionsView.as_view(), name="endpoint-versions"),
    path("provider/earnings/export", bill.EarningsExportView.as_view(), name="earnings-export"),
    path("provider/delegations", assets.DelegationsView.as_view(), name="delegations"),
    path("provider/delegations/<uuid:delegation_id>", assets.DelegationDetailView.as_view(), name="delegation"),
    path("assets", assets.AssetsView.as_view(), name="assets"),
    path("endpoint-keys", endpoint_keys.EndpointKeysView.as_view(), name="endpoint-keys"),
    path("endpoint-keys/<uuid:key_id>", endpoint_keys.EndpointKeyDetailView.as_view(), name="endpoint-key"),
    path("usage", endpoint_keys.UsageApi.as_view(), name="usage"),
    path("signing-key", bill.SigningKeyApi.as_view(), name="signing-key"),
    path("artifacts/<uuid:artifact_id>", artifacts.ArtifactDetailView.as_view(), name="artifact"),
    path("volumes", volumes.VolumesView.as_view(), name="volumes"),
    path("volumes/<str:name>", volumes.VolumeDetailView.as_view(), name="volume"),
    path("storage", artifacts.StorageUseView.as_view(), name="storage"),
]
