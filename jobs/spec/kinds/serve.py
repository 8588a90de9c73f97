"""`kind: serve`: a model behind an endpoint.

Its section has the model, the engine, the number of replicas, the price and the limits.
Defaults are frozen into the canonical form: what was quoted is what is served, also after a default has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from jobs.spec.kinds.base import Finding, SpecKind, nodes_of
from jobs.spec.model import JOB_NAME, Spec
from jobs.spec.section import FilePath, Label, Micros, Percent, Seconds, Section, listed
from jobs.spec.units import format_duration, format_money

REPLICAS_MAX = 100
IN_FLIGHT_MAX = 10_000
CONTEXT_MAX = 1 << 22
TOKENS_OUT_MAX = 1 << 20
BODY_MIB_MAX = 256
SCHEDULE_MAX = 64
CLOCK_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

# Fields of the section that are seconds: canonical JSON writes them as durations, as a job file may.
_SECONDS = {"scale": ("queue", "idle", "wake"), "limits": ("request",), "rollout": ("step",)}
_HUB = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}(@[A-Za-z0-9._-]{1,64})?$"
_MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,95}$"


def _folder(value: str) -> str:
    return value.rstrip("/")


class ModelSource(Section):
    """Where the weights come from: exactly one of these."""

    job: Annotated[str, StringConstraints(pattern=JOB_NAME)] | None = Field(
        None, description="the id of a finished training of yours, or a name: the newest of that name"
    )
    folder: Annotated[FilePath, AfterValidator(_folder)] | None = Field(
        None, description="a folder below the job file's, which is among files"
    )
    hub: Annotated[str, StringConstraints(pattern=_HUB)] | None = Field(
        None, description="a hub's id, such as org/name or org/name@revision"
    )
    lent: Label | None = Field(None, description="the label of a folder that providers lend, which is among lent")


class Replicas(Section):
    """How many replicas there are at least and at most; with a `min` of 0 the endpoint sleeps without requests."""

    min: int = Field(1, ge=0, le=REPLICAS_MAX, description=f"a whole number from 0 to {REPLICAS_MAX}")
    max: int = Field(1, ge=1, le=REPLICAS_MAX, description=f"a whole number from 1 to {REPLICAS_MAX}")


class Hours(Section):
    """At these hours there are at least so many replicas, made ready before the hour comes."""

    at: Annotated[str, StringConstraints(pattern=CLOCK_PATTERN)] = Field(
        description="hours in UTC, such as 08:00-18:00"
    )
    days: Annotated[list[Literal[DAYS]], BeforeValidator(listed), Field(min_length=1, max_length=7)] = Field(  # type: ignore[valid-type]
        list(DAYS), description="a list of mon, tue, wed, thu, fri, sat, sun"
    )
    min: int = Field(ge=0, le=REPLICAS_MAX, description=f"a whole number from 0 to {REPLICAS_MAX}")


class Scale(Section):
    """What makes the endpoint grow and shrink between its replicas' bounds."""

    in_flight: int = Field(
        8, ge=1, le=IN_FLIGHT_MAX, description=f"requests at once that one replica should have: 1 to {IN_FLIGHT_MAX}"
    )
    queue_seconds: Seconds = Field(
        2, alias="queue", description="how long a request may wait for a replica before there are more, such as 2s"
    )
    idle_seconds: Seconds = Field(
        600, alias="idle", description="how long without a request before the last replica goes, such as 10m"
    )
    wake_seconds: Seconds = Field(
        300, alias="wake", description="how long a request waits for a sleeping endpoint, such as 5m"
    )
    on_demand_min: int = Field(
        0,
        ge=0,
        le=REPLICAS_MAX,
        description=f"replicas on nodes that promise to stay, 0 to {REPLICAS_MAX}; the others where it is cheapest",
    )
    schedule: Annotated[list[Hours], Field(max_length=SCHEDULE_MAX)] = Field(
        [], description="a list of mappings with at, days and min"
    )
    forecast: bool = Field(True, description="true or false: grow ahead of the load that came at this hour before")


class Prices(Section):
    """What callers of other organisations pay; of your own they count against a key's budget only."""

    input_usd_micros: Micros | None = Field(
        None, alias="input_per_million", description="dollars for a million tokens read, such as 0.10"
    )
    output_usd_micros: Micros | None = Field(
        None, alias="output_per_million", description="dollars for a million tokens written, such as 0.40"
    )


class Limits(Section):
    """Limits of one request."""

    context: int | None = Field(
        None, ge=16, le=CONTEXT_MAX, description=f"tokens that a request reads and writes in all: 16 to {CONTEXT_MAX}"
    )
    max_tokens: int = Field(
        4096, ge=1, le=TOKENS_OUT_MAX, description=f"tokens that a request writes at most: 1 to {TOKENS_OUT_MAX}"
    )
    body_mib: int = Field(4, ge=1, le=BODY_MIB_MAX, description=f"MiB of a request's body, from 1 to {BODY_MIB_MAX}")
    request_seconds: Seconds = Field(600, alias="request", description="how long one request may take, such as 10m")


class Rollout(Section):
    """How a new version takes over: all at once when it is ready, or a share of the requests after the other."""

    strategy: Literal["blue_green", "canary"] = Field("blue_green", description="blue_green or canary")
    shares: Annotated[list[Percent], Field(min_length=1, max_length=10)] = Field(
        [10, 50], description="percentages that the new version gets one after the other, such as [10, 50]"
    )
    step_seconds: Seconds = Field(300, alias="step", description="how long each share lasts, such as 5m")
    errors_max: Percent = Field(
        5, description="percentage of failed requests beyond the old version's at which it is rolled back"
    )


class ServeSection(Section):
    """A model behind the marketplace's one address."""

    model: ModelSource = Field(description="a mapping with one of job, folder, hub and lent")
    engine: Literal["auto", "vllm", "transformers", "souk", "embed"] = Field(
        "auto", description="auto, vllm, transformers, souk or embed"
    )
    served_as: Annotated[str, StringConstraints(pattern=_MODEL_NAME)] | None = Field(
        None, alias="as", description="what callers write as `model`; the job's name where it is left out"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto, float32, bfloat16 or float16"
    )
    quantization: Literal["none", "fp8", "awq", "gptq", "bitsandbytes"] = Field(
        "none", description="none, fp8, awq, gptq or bitsandbytes"
    )
    replicas: Replicas = Field(Replicas(), description="a mapping with min and max")
    scale: Scale = Field(Scale(), description="a mapping with in_flight, queue, idle, wake, on_demand_min, schedule")
    spread: Literal["none", "node", "provider"] = Field(
        "provider", description="none, node or provider: what two replicas should not share while there is a choice"
    )
    prices: Prices = Field(Prices(), description="a mapping with input_per_million and output_per_million")
    is_public: bool = Field(False, alias="public", description="true or false: other organisations may call it")
    limits: Limits = Field(Limits(), description="a mapping with context, max_tokens, body_mib, request")
    rollout: Rollout = Field(Rollout(), description="a mapping with strategy, shares, step, errors_max")
    verify_share: Percent = Field(
        0, alias="verify", description="percentage of the answers that are computed again elsewhere, 0 to 100"
    )


class ServeSpec(SpecKind):
    """A job file with a `serve` section."""

    name = "serve"
    section = ServeSection
    section_expected = "a mapping with model, engine, replicas, scale, prices, limits"
    meaningless = (
        "inputs",
        "evaluation",
        "train",
        "command",
        "setup",
        "requirements",
        "image",
        "outputs",
        "work",
        "checkpoint",
        "retry",
    )
    is_placed_whole = False
    has_endpoint = True

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """There is a model, each replica is on one node, and dollars pay for it; then the rules of the section."""
        if data.get("serve") is None:
            yield (), "nothing to serve: there is no serve section", "serve: {model: {job: ...}}"
        resources = data.get("resources")
        if nodes_of(resources)[1] > 1:
            yield ("resources", "nodes"), "is more than 1, and a replica is on one node", "nodes: 1; replicas are many"
        if data.get("payment") is not None and data["payment"] != {"asset": "USD"}:
            yield ("payment",), "is for jobs that end: an endpoint is paid in dollars, day by day", "no such field"
        yield from check_serve(data)

    def canonical_section(self, section: Section) -> dict[str, Any]:
        """With durations and money as the file may have them."""
        body: dict[str, Any] = section.model_dump(by_alias=True, exclude_none=True)
        for name, keys in _SECONDS.items():
            for key in keys:
                body[name][key] = format_duration(body[name][key])
        for name, usd_micros in body["prices"].items():
            body["prices"][name] = format_money(usd_micros)
        return body

    def config(self, spec: Spec) -> dict[str, Any]:
        """What an engine needs to know of the section."""
        serve = serve_of(spec)
        return {
            "model": serve.model.model_dump(exclude_none=True),
            "served_as": serve.served_as or spec.name,
            "engine": serve.engine,
            "dtype": serve.dtype,
            "quantization": serve.quantization,
            "context": serve.limits.context,
            "max_tokens": serve.limits.max_tokens,
            "in_flight": serve.scale.in_flight,
            "verify": serve.verify_share > 0,
        }

    def dtype(self, spec: Spec) -> str:
        """float16 counts as auto: it is not measured, and bfloat16 is as fast on every device that has both."""
        dtype = serve_of(spec).dtype
        return "auto" if dtype == "float16" else dtype


def serve_of(spec: Spec) -> ServeSection:
    """The `serve` section of a spec that is known to serve; raises TypeError for any other."""
    if not isinstance(spec.section, ServeSection):
        raise TypeError(f"A job of kind {spec.kind} serves nothing.")
    return spec.section


def check_serve(data: Mapping[str, Any]) -> Iterator[Finding]:
    """The rules between a serving job's fields that a file breaks, on raw data."""
    serve = data.get("serve")
    if not isinstance(serve, dict):
        return
    yield from _check_model(serve.get("model"), data)
    replicas, scale = serve.get("replicas", {}), serve.get("scale", {})
    least, most = (replicas.get("min", 1), replicas.get("max", 1)) if isinstance(replicas, dict) else (1, 1)
    if _is_number(least) and _is_number(most) and least > most:
        yield ("serve", "replicas", "min"), f"{least} is more than max, which is {most}", f"at most {most}"
    if isinstance(scale, dict) and _is_number(most):
        floor = scale.get("on_demand_min", 0)
        if _is_number(floor) and floor > most:
            yield ("serve", "scale", "on_demand_min"), f"{floor} is more than replicas.max", f"at most {most}"
        for index, hours in enumerate(scale.get("schedule") or []):
            wanted = hours.get("min") if isinstance(hours, dict) else None
            if _is_number(wanted) and wanted > most:
                path = ("serve", "scale", "schedule", index, "min")
                yield path, f"{wanted} is more than replicas.max", f"at most {most}"
    if serve.get("public") is True and not (isinstance(serve.get("prices"), dict) and any(serve["prices"].values())):
        yield ("serve", "public"), "is true, and no price is given", "prices: {input_per_million, output_per_million}"
    rollout = serve.get("rollout")
    shares = rollout.get("shares") if isinstance(rollout, dict) else None
    if isinstance(shares, list) and all(map(_is_number, shares)) and shares != sorted(set(shares)):
        yield ("serve", "rollout", "shares"), "does not rise", "percentages from small to large, each once"
    if _is_number(serve.get("verify")) and serve["verify"] > 0 and serve.get("engine", "auto") not in {"souk", "auto"}:
        yield ("serve", "verify"), "needs an engine that commits to what it computed", "engine: souk, or verify: 0"


def _check_model(model: Any, data: Mapping[str, Any]) -> Iterator[Finding]:
    if not isinstance(model, dict):
        return
    given = [name for name in ("job", "folder", "hub", "lent") if model.get(name) is not None]
    if len(given) != 1:
        message = f"names {' and '.join(given)}" if given else "names nothing"
        yield ("serve", "model"), message, "exactly one of job, folder, hub and lent"
        return
    files = data.get("files") if isinstance(data.get("files"), list) else [data.get("files")]
    folder = model.get("folder")
    if isinstance(folder, str) and not any(
        isinstance(each, str) and folder.rstrip("/").startswith(each.rstrip("/")) for each in files or []
    ):
        yield ("serve", "model", "folder"), f"{folder!r} is not among files", "files that hold it"
    if model.get("hub") is not None and data.get("network") != "public":
        yield ("serve", "model", "hub"), "is fetched from the hub by the program", "network: public"
    lent = data.get("lent") if isinstance(data.get("lent"), list) else [data.get("lent")]
    if model.get("lent") is not None and model["lent"] not in (lent or []):
        yield ("serve", "model", "lent"), f"{model['lent']!r} is not among lent", f"lent: {model['lent']}"


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
