"""Parts of libraries that are no public API, which of them we use where, and that they are still what we use.

A library that changes one of them does so without notice, so its version has an upper bound in pyproject.toml. To raise
a bound: install the new version, run this test, compare what it names with the new source, then run the tests of the
files under `where`. Public API is not listed: Django's `_meta` and `_default_manager` are documented.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
CODE = ("runtimes", "jobs", "provider_agent", "marketplace", "billing")

# Modules of libraries that are no public API although no part of their name begins with an underscore.
INTERNAL = ("uvicorn.protocols", "transformers.cli", "transformers.cache_utils", "transformers.generation.")


@dataclass(frozen=True)
class Part:
    """One private part: where it stands in the library, the parameters that we rely on, the file that uses it.

    `parameters` None: it is no function. `attributes`: what its source gives its instances and we read or set.
    """

    distribution: str
    path: str  # module:dotted name
    where: str
    parameters: str | None = None
    attributes: str = ""

    @property
    def found(self) -> Any:
        """The part in the installed version; fails with the library's own error where it is gone."""
        module, _, names = self.path.partition(":")
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
        return found


def methods(distribution: str, path: str, where: str, signatures: dict[str, str]) -> list[Part]:
    """One part for each method of a class."""
    return [Part(distribution, f"{path}.{name}", where, parameters) for name, parameters in signatures.items()]


HTTPTOOLS = "uvicorn.protocols.http.httptools_impl"
SERVING = "transformers.cli.serving"
BATCHING = "transformers.generation.continuous_batching"
CONNECTIONS = "jobs/gateway/frontend/connections.py"
GENERATION = "runtimes/serve/engines/generation.py"
TRANSFORMERS_SERVER = "runtimes/serve/engines/transformers_server.py"
CHECKPOINT_READER = "runtimes/train/checkpoint_reader.py"

PARTS = [
    # Checkpoints of strangers are read as data: torch's reader and planner, with other ways to read their pickles.
    Part(
        "torch",
        "torch.distributed.checkpoint.filesystem:_StorageInfo",
        CHECKPOINT_READER,
        attributes="relative_path offset length transform_descriptors",
    ),
    # What the flight recorder holds, as a pickle: torch's own command reads it in the same way.
    Part("torch", "torch._C._distributed_c10d:_dump_fr_trace", "runtimes/train/collective_trace.py"),
    Part("torch", "torch.distributed.checkpoint.metadata:_MEM_FORMAT_ENCODING", CHECKPOINT_READER),
    Part(
        "torch", "torch.distributed.checkpoint._traverse:set_element", CHECKPOINT_READER, "root_dict path value"
    ),
    # The gateway's connections are uvicorn's, with bounds.
    Part("uvicorn", f"{HTTPTOOLS}:STATUS_LINE", CONNECTIONS),
    Part(
        "uvicorn",
        f"{HTTPTOOLS}:HttpToolsProtocol",
        CONNECTIONS,
        attributes="connections cycle flow loop pipeline scope server_state transport",
    ),
    *methods(
        "uvicorn",
        f"{HTTPTOOLS}:HttpToolsProtocol",
        CONNECTIONS,
        {
            "__init__": "self config server_state app_state _loop",
            "connection_made": "self transport",
            "connection_lost": "self exc",
            "data_received": "self data",
            "on_message_begin": "self",
            "on_headers_complete": "self",
            "on_body": "self body",
            "on_message_complete": "self",
            "on_response_complete": "self",
            "pause_writing": "self",
            "resume_writing": "self",
            "send_400_response": "self msg",
            "_start_asgi_task": "self cycle app",
        },
    ),
    Part(
        "uvicorn",
        f"{HTTPTOOLS}:RequestResponseCycle",
        CONNECTIONS,
        attributes="disconnected keep_alive message_event on_response response_complete response_started scope "
        "waiting_for_100_continue",
    ),
    Part("uvicorn", f"{HTTPTOOLS}:RequestResponseCycle", "jobs/gateway/frontend/clients.py"),
    *methods("uvicorn", "uvicorn.protocols.http.flow_control:FlowControl", CONNECTIONS,
             {"drain": "self", "resume_reading": "self"}),
    Part("uvicorn", "uvicorn.protocols.http.flow_control:FlowControl", CONNECTIONS, attributes="write_paused"),
    Part("uvicorn", "uvicorn.server:Server", CONNECTIONS, attributes="servers server_state started"),
    Part("uvicorn", "uvicorn.server:Server", "runtimes/serve/engines/souk/__main__.py", attributes="should_exit"),
    Part("uvicorn", "uvicorn.server:ServerState", CONNECTIONS, attributes="connections total_requests"),
    *methods(
        "uvicorn",
        "uvicorn.server:Server",
        CONNECTIONS,
        {
            "startup": "self sockets",
            "on_tick": "self counter",
            "shutdown": "self sockets",
            "capture_signals": "self",
            "handle_exit": "self sig frame",
        },
    ),
    # The engine `transformers` is put together from the parts of `transformers serve`.
    Part("transformers", f"{SERVING}.utils:CBGenerateManager", GENERATION, attributes="_cb"),
    *methods(
        "transformers",
        f"{SERVING}.utils:CBGenerateManager",
        GENERATION,
        {
            "__init__": "self cb_config",
            "_check_alive": "self request_id",
            "generate_streaming": "self model processor inputs gen_config request_id response_parser",
            "generate_non_streaming": "self model processor inputs gen_config request_id",
        },
    ),
    Part("transformers", f"{SERVING}.utils:CBGenerateManager.is_alive", TRANSFORMERS_SERVER, "self"),
    Part(
        "transformers",
        f"{SERVING}.utils:CBStreamer",
        GENERATION,
        attributes="_cb _decode_stream _loop _parser _prev_len _queue _request_id _tokenizer total_tokens",
    ),
    *methods(
        "transformers",
        f"{SERVING}.utils:CBStreamer",
        GENERATION,
        {
            "__init__": "self cb_manager request_id tokenizer loop queue response_parser",
            "put": "self output",
            "end": "self",
            "cancel": "self",
        },
    ),
    Part("transformers", f"{SERVING}.utils:_StreamError", GENERATION, "msg"),
    Part("transformers", f"{SERVING}.utils:response_events_to_chunks", GENERATION, "events"),
    Part("transformers", "transformers:PreTrainedTokenizerFast", GENERATION, attributes="_tokenizer"),
    Part("transformers", f"{BATCHING}.continuous_api:ContinuousMixin.init_continuous_batching", GENERATION,
         "self generation_config continuous_batching_config workload_hints"),
    *methods(
        "transformers",
        f"{BATCHING}.continuous_api:ContinuousBatchingManager",
        GENERATION,
        {
            "start": "self",
            "add_request": "self input_ids request_id max_new_tokens streaming record_timestamps eos_token_id "
            "logit_processor_kwargs",
            "register_result_handler": "self request_id callback",
            "cancel_request": "self request_id",
        },
    ),
    Part("transformers", f"{BATCHING}.continuous_api:ContinuousBatchingManager", GENERATION,
         attributes="batch_processor input_queue output_router"),
    Part("transformers", f"{BATCHING}.continuous_api:ContinuousBatchProcessor", GENERATION, attributes="scheduler"),
    Part("transformers", f"{BATCHING}.continuous_api:OutputRouter", GENERATION, attributes="result_handlers"),
    Part("transformers", f"{BATCHING}.scheduler:Scheduler", GENERATION, attributes="waiting_requests"),
    *(
        part
        for handler, chunk in (
            ("chat_completion:ChatCompletionHandler",
             "self request_id content model role finish_reason tool_calls usage reasoning_content"),
            ("completion:CompletionHandler", "self request_id model_id text finish_reason usage"),
        )
        for part in methods(
            "transformers",
            f"{SERVING}.{handler}",
            TRANSFORMERS_SERVER,
            {
                "__init__": "self model_manager generation_state chat_template_kwargs",
                "_validate_request": "self body",
                "_resolve_model": "self body",
                "_build_generation_config": "self body model_generation_config use_cb",
                "_build_chunk_sse": chunk,
                "handle_request": "self body request_id",
            },
        )
    ),
    Part("transformers", f"{SERVING}.utils:GenerationState", TRANSFORMERS_SERVER, attributes="_compile"),
    Part("transformers", f"{SERVING}.utils:Modality.LLM", TRANSFORMERS_SERVER),
    # The engine `souk` brings a cache of its own.
    Part("transformers", "transformers.cache_utils:Cache.__init__", "runtimes/serve/engines/souk/model.py",
         "self layers layer_class_to_replicate offloading offload_only_non_sliding"),
    Part("transformers", "transformers.cache_utils:DynamicLayer", "runtimes/serve/engines/souk/model.py",
         attributes="is_sliding is_compileable is_initialized update get_seq_length"),
    # Views read Django's request below that of REST framework.
    Part("djangorestframework", "rest_framework.request:Request", "billing/api/webhook.py", attributes="_request"),
    Part("djangorestframework", "rest_framework.request:Request", "marketplace/accounts/api.py", attributes="_request"),
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.path}-{part.where}")
def test_private_part_is_still_what_we_use(part: Part) -> None:
    found = part.found
    if part.parameters is not None:
        assert " ".join(inspect.signature(found).parameters) == part.parameters
    if part.attributes:
        known = {name for base in found.__mro__ if base is not object for name in names_in(base)}
        assert set(part.attributes.split()) - known == set()


def names_in(kind: type[Any]) -> set[str]:
    """Every name that a class's body or its methods, on `self`, bind."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind)))
    bound = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}
    return bound | set(vars(kind)) | set(getattr(kind, "__annotations__", {}))


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@pytest.mark.parametrize("where", sorted({part.where for part in PARTS}))
def test_file_still_uses_the_private_parts_listed_for_it(where: str) -> None:
    words = set(re.findall(r"\w+", (ROOT / where).read_text()))
    for part in PARTS:
        name = part.path.partition(":")[2].split(".")[-1]
        used = set(part.attributes.split()) or ({name} - {"__init__", "start"})
        assert part.where != where or used <= words, f"{part.path} is not used there any more"


@pytest.mark.parametrize("distribution", sorted({part.distribution for part in PARTS}))
def test_library_with_private_parts_in_use_has_an_upper_bound(distribution: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for group in project["optional-dependencies"].values() for line in group)]
    required = [found for line in lines if (found := Requirement(line)).name == distribution]
    assert required
    for requirement in required:
        assert any(bound.operator in ("<", "==") for bound in requirement.specifier), str(requirement)
        assert version(distribution) in requirement.specifier


def test_every_import_of_an_internal_module_is_listed() -> None:
    listed = {(part.where, part.path.partition(":")[2].split(".")[0]) for part in PARTS}
    missing = []
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None or node.module.split(".")[0] in CODE:
                continue
            for alias in node.names:
                is_private = any(re.match(r"_[^_]", name) for name in (*node.module.split("."), alias.name))
                if (is_private or node.module.startswith(INTERNAL)) and (where, alias.name) not in listed:
                    missing.append(f"{where}: {node.module}.{alias.name}")
    assert missing == []
