"""/chat/datasets: conversations to learn from, the files that were made of them, and the training."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from jobs.quoting import quotes
from marketplace.portal.amounts import dollars
from marketplace.portal.chat import datasets, keeping
from marketplace.portal.chat.errors import BadSetting, ChatNotFound
from marketplace.portal.chat.models import Dataset
from marketplace.portal.chat.views import frame_of
from marketplace.portal.visitors import Visitor, page, uuid_of

DATASETS_SHOWN_MAX: Final = 50


@page("GET", "POST")
def dataset_list(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Chats to pick, and datasets made before; POST makes one of the picked."""
    if request.method == "POST":
        organisation = keeping.organisation_that_may_call(visitor)
        wanted = [each for text in request.POST.getlist("chat") if (each := uuid_of(text))]
        picked = list(keeping.chats_of(visitor).filter(pk__in=wanted).order_by("created_at", "id"))
        model = request.POST.get("model", datasets.TINY)
        return redirect("dataset", datasets.make(organisation, visitor.user, picked, model=model).pk)
    frame = frame_of(visitor)
    trainable = datasets.trainable_models(visitor.organisation, frame["chats"]) if visitor.organisation else []
    own = {"datasets": _datasets(visitor)[:DATASETS_SHOWN_MAX], "trainable": trainable}
    return render(request, "portal/chat/datasets.html", frame | own)


@page("GET")
def dataset_page(request: HttpRequest, visitor: Visitor, dataset_id: UUID) -> HttpResponseBase:
    """Its files and its job file."""
    return _page(request, visitor, _dataset(visitor, dataset_id))


@page("POST")
def quote(request: HttpRequest, visitor: Visitor, dataset_id: UUID) -> HttpResponseBase:
    """What the training would cost, or why nothing fits; nothing is charged."""
    organisation = keeping.organisation_that_may_call(visitor)
    dataset = _dataset(visitor, dataset_id)
    view = quotes.make_quote(datasets.spec_of_dataset(dataset), organisation)
    cap, expected = view.cap_usd_micros, view.expected_usd_micros
    shown: dict[str, Any] = {
        "quote": view,
        "cap": None if cap is None else dollars(cap),
        "expected": None if expected is None else dollars(expected),
    }
    return _page(request, visitor, dataset, **shown)


@page("POST")
def launch(request: HttpRequest, visitor: Visitor, dataset_id: UUID) -> HttpResponseBase:
    """The training begins, at the price that was shown."""
    keeping.organisation_that_may_call(visitor)
    dataset = _dataset(visitor, dataset_id)
    quote_id = uuid_of(request.POST.get("quote", ""))
    if quote_id is None:
        raise BadSetting(what="The quote", expected="the one that you were shown: ask for a price first")
    datasets.launch(dataset, quote_id)
    return redirect("dataset", dataset.pk)


@page("GET")
def job_file(request: HttpRequest, visitor: Visitor, dataset_id: UUID) -> HttpResponseBase:
    """The job file, to keep."""
    dataset = _dataset(visitor, dataset_id)
    headers = {"Content-Disposition": 'attachment; filename="job.yaml"'}
    return HttpResponse(dataset.job_file, content_type="application/yaml; charset=utf-8", headers=headers)


@page("GET")
def file(request: HttpRequest, visitor: Visitor, dataset_id: UUID, name: str) -> HttpResponseBase:
    """To the bytes of one of its files."""
    return redirect(datasets.link_to(_dataset(visitor, dataset_id), name))


def _datasets(visitor: Visitor) -> Any:
    return Dataset.objects.filter(user=visitor.user, organisation=visitor.organisation)


def _dataset(visitor: Visitor, dataset_id: UUID) -> Dataset:
    found: Dataset | None = (
        _datasets(visitor).filter(pk=dataset_id).select_related("artifact", "job", "organisation", "user").first()
    )
    if found is None:
        raise ChatNotFound()
    return found


def _page(request: HttpRequest, visitor: Visitor, dataset: Dataset, **shown: Any) -> HttpResponse:
    names = [datasets.MESSAGES_FILE, datasets.TEXTS_FILE]
    context = frame_of(visitor) | {"dataset": dataset, "names": names} | shown
    return render(request, "portal/chat/dataset.html", context)
