"""A job file as the body of a request: the text that `souk launch` reads, with the same rules and line numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, Final
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel, ConfigDict
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from jobs.api.bodies import read_query
from jobs.errors import BadSpec, JobFileTooLarge
from jobs.spec import Spec, SpecErrors, parse
from jobs.spec.document import FILE_BYTES_MAX
from marketplace.foundation.parsers import BoundedJSONParser

MEDIA_TYPES: Final = ("application/yaml", "text/yaml")
_TEXT: Final = "job_file"


class JobFileBody(dict[str, str]):
    """What a parser of job files has read. JSON is never of this type, whatever it says."""


class _JobFileParser(BaseParser):
    """The text as it came, of at most as many bytes as a job file may have."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> JobFileBody:
        raw = stream.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise JobFileTooLarge(bytes_max=FILE_BYTES_MAX)
        # Byte for byte: what is no UTF-8 is refused with its position by the reader of job files.
        return JobFileBody({_TEXT: raw.decode("utf-8", "surrogateescape")})


class _ApplicationYaml(_JobFileParser):
    media_type = "application/yaml"


class _TextYaml(_JobFileParser):
    media_type = "text/yaml"


PARSERS: Final = [BoundedJSONParser, _ApplicationYaml, _TextYaml]
FILE_SCHEMA: Final = dict.fromkeys(MEDIA_TYPES, OpenApiTypes.STR)


class SubmitQuery(BaseModel):
    """POST /api/v1/jobs with a job file: what stands beside the spec in a JSON body."""

    model_config = ConfigDict(extra="forbid")
    quote_id: UUID
    input_artifact_id: UUID | None = None


SUBMIT_QUERY: Final = [
    OpenApiParameter(
        "quote_id", OpenApiTypes.UUID, description="Of a job file as the body: the quote that it was given."
    ),
    OpenApiParameter("input_artifact_id", OpenApiTypes.UUID, description="Of a job file as the body: its files."),
]


def job_file_of(request: Request) -> bytes | None:
    """The job file that the body is; None for a body in JSON."""
    data = request.data
    return data[_TEXT].encode("utf-8", "surrogateescape") if isinstance(data, JobFileBody) else None


def read_job_file(text: bytes) -> Spec:
    """A checked spec; raises BadSpec with every mistake, each with its line."""
    try:
        return parse(text)
    except SpecErrors as errors:
        raise BadSpec(str(errors), **errors.details) from errors


def read_submit_query(request: Request) -> SubmitQuery:
    """What the query says beside a job file; raises ValidationError, which becomes a 400 that names the parameter."""
    return read_query(request, SubmitQuery)
