"""The answer of `/v1/models`: the models that a key may call, with their bounds and prices, and no others."""

from __future__ import annotations

import json
from typing import Any

from jobs.gateway.frontend.refusals import no_model
from jobs.gateway.messages import EndpointRow, KeyGrant
from jobs.gateway.routing.directory import Directory


def list_models(directory: Directory, grant: KeyGrant, model: str) -> bytes:
    """One model, or all of them where none is named; in OpenAI's form. Raises ApiError 404."""
    if model:
        endpoint = directory.find(model, grant)
        if endpoint is None:
            raise no_model(model)
        return json.dumps(_model(model, endpoint)).encode()
    models = [_model(name, endpoint) for name, endpoint in directory.models_for(grant)]
    return json.dumps({"object": "list", "data": models}).encode()


def _model(name: str, endpoint: EndpointRow) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": endpoint.created_at,
        "owned_by": endpoint.organisation,
        "souk": {
            "task": endpoint.task,
            "context": endpoint.limits.context,
            "max_tokens": endpoint.limits.max_tokens,
            "input_usd_micros_per_million": endpoint.input_usd_micros_per_million,
            "output_usd_micros_per_million": endpoint.output_usd_micros_per_million,
        },
    }
