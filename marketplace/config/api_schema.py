"""The OpenAPI schema, for everybody: computed once a process, since that takes a second of processor time."""

from __future__ import annotations

import functools
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

RENDERERS: Final[dict[str, type[OpenApiYamlRenderer | OpenApiJsonRenderer]]] = {
    "yaml": OpenApiYamlRenderer,
    "json": OpenApiJsonRenderer,
}


@require_safe
def api_schema(request: HttpRequest) -> HttpResponse:
    """In YAML, or in JSON with `?format=json`."""
    name = "json" if request.GET.get("format") == "json" else "yaml"
    headers = {"Content-Disposition": f'inline; filename="souk.{name}"'}
    return HttpResponse(_rendered(name), content_type=f"{RENDERERS[name].media_type}; charset=utf-8", headers=headers)


@functools.cache
def _rendered(name: str) -> bytes:
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    schema = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    rendered = RENDERERS[name]().render(schema, renderer_context={})
    return rendered if isinstance(rendered, bytes) else rendered.encode()
