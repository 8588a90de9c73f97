"""/launch: a job file that is checked while it is written, its plan and price, and the launch."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters

from jobs import lifecycle
from jobs.api.bodies import find_input
from jobs.api.jobs import place_soon
from jobs.errors import JobFileTooLarge, QuoteUsed
from jobs.models import Job
from jobs.quoting import quotes
from jobs.spec import Spec, SpecErrors, parse
from jobs.spec.document import FILE_BYTES_MAX
from jobs.wire.job import SECRET_CHARACTERS_MAX
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import BadRequest, SoukError
from marketplace.portal.jobs.actions import CHANGE, to_job_of
from marketplace.portal.jobs.showing import job_file_text
from marketplace.portal.visitors import Visitor, organisation_of, page, uuid_of

SECRET_PREFIX: Final = "secret:"  # noqa: S105 - of the form's fields
BEGIN: Final = """\
kind: train
name: tiny-llama

resources:
  gpus: 1              # devices per node
  kind: any            # a CPU share will do

work:
  steps: 100

budget:
  max_total: 2.00      # dollars; the job never costs more
  deadline: 2h

train:
  model: tiny-llama
  data: python-docs
"""


@page("GET")
def launch_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The editor, with a short job file, or with that of an earlier job (`?like=`)."""
    organisation = organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    context = {"visitor": visitor, "text": _begin(request, organisation)}
    return render(request, "portal/jobs/launch.html", context)


@page("POST")
def check(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """What is wrong with a job file, line by line, in the words of `souk launch`; nothing is stored."""
    organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    _, mistakes = _read(request)
    return render(request, "portal/jobs/mistakes.html", {"mistakes": mistakes, "is_checked": True})


@page("POST")
def price(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Where it would run and what it costs at most; or why nothing fits, and what would help."""
    organisation = organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    spec, mistakes = _read(request)
    if spec is None:
        return _editor(request, visitor, {"mistakes": mistakes}, status=422)
    try:
        quote = quotes.make_quote(spec, organisation)
    except SoukError as error:
        return _editor(request, visitor, {"refused": error}, status=error.status)
    return _editor(request, visitor, {"quote": quote, "spec": spec})


@sensitive_post_parameters()
@page("POST")
def launch(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Submit the job file under the price that was shown, once."""
    organisation = organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    spec, mistakes = _read(request)
    if spec is None:
        return _editor(request, visitor, {"mistakes": mistakes}, status=422)
    quote_id = uuid_of(request.POST.get("quote", ""))
    if quote_id is None:
        raise BadRequest("Ask for the price first: the launch has to say which one you agree to.")
    try:
        job = lifecycle.submit(
            organisation=organisation,
            user=visitor.user,
            spec=spec,
            quote_id=quote_id,
            input_artifact=find_input(organisation, spec, None),
            secrets=_secrets(request, spec),
        )
    except QuoteUsed:
        return to_job_of(visitor, quote_id)
    except SoukError as error:
        return _editor(request, visitor, {"refused": error}, status=error.status)
    place_soon()
    return redirect("job-page", job.pk)


def _begin(request: HttpRequest, organisation: Organisation) -> str:
    like = uuid_of(request.GET.get("like", ""))
    job = Job.objects.of(organisation).filter(pk=like).first() if like else None
    return job_file_text(job.spec) if job else BEGIN


def _read(request: HttpRequest) -> tuple[Spec | None, SpecErrors | None]:
    """The checked spec, or every mistake of the text."""
    text = request.POST.get("text", "").encode("utf-8", "surrogatepass")
    if len(text) > FILE_BYTES_MAX:
        raise JobFileTooLarge(bytes_max=FILE_BYTES_MAX)
    try:
        return parse(text), None
    except SpecErrors as errors:
        return None, errors


def _secrets(request: HttpRequest, spec: Spec) -> dict[str, str]:
    """Raises BadRequest where one is missing or too long."""
    found = {name: _as_pasted(request.POST.get(SECRET_PREFIX + name, "")) for name in spec.secrets}
    if missing := sorted(name for name, value in found.items() if not value):
        raise BadRequest(f"The job file names secrets whose values are missing: {', '.join(missing)}.")
    if any(len(value) > SECRET_CHARACTERS_MAX for value in found.values()):
        raise BadRequest(f"A secret has at most {SECRET_CHARACTERS_MAX} characters.")
    return found


def _as_pasted(text: str) -> str:
    """A browser sends each line's end as CRLF; a token of one line often has one that was copied with it."""
    text = text.replace("\r\n", "\n")
    return text.removesuffix("\n") if text.count("\n") == 1 else text


def _editor(request: HttpRequest, visitor: Visitor, answer: dict[str, Any], *, status: int = 200) -> HttpResponseBase:
    """The page with its answer; only the answer, where our script asks."""
    context = {"visitor": visitor, "text": request.POST.get("text", "")} | answer
    if request.headers.get("HX-Request"):
        return render(request, "portal/jobs/answer.html", context)
    return render(request, "portal/jobs/launch.html", context, status=status)
