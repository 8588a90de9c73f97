"""What the agent remembers of its enrolment, and where everything lies in its data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, StringConstraints, ValidationError, model_validator

from provider_agent.errors import BadConfig, NotEnrolled
from provider_agent.images import SERVE_IMAGE, TRAIN_IMAGE
from provider_agent.protocol import (
    DEVICES_PER_NODE_MAX,
    LABEL_PATTERN,
    LENT_MAX,
    PUBLIC_REGISTRIES,
    REGISTRIES_MAX,
    REGISTRY_PATTERN,
    OfferTerms,
)
from provider_agent.system.atomic import write_atomically

DATA_OF_ROOT = Path("/var/lib/souk-agent")
DATA_BELOW_HOME = ".souk-agent"
CACHE_GIB_MAX = 64 * 1024
RETIRED_SETTINGS = frozenset({"fabric_network"})
YOUNG_SETTINGS = frozenset(
    {"serve_image", "allow_strangers", "image_registries", "cache_gib"}
)  # which the release before does not know: written only where they were chosen

Registry = Annotated[str, StringConstraints(pattern=REGISTRY_PATTERN)]  # HOST or HOST:PORT, or LOCAL_IMAGES
Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]


class AgentSettings(BaseModel):
    """What the provider chose at enrolment; nothing here comes from the server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    offer: OfferTerms
    executor: Literal["process", "docker"]
    allow_strangers: bool = False  # with process, which isolates nothing: programs of other organisations too
    device_kind: Literal["auto", "gpu", "cpu"] = "auto"
    devices: int = Field(default=1, ge=1, le=DEVICES_PER_NODE_MAX)  # CPU shares, where there is no GPU
    cpu_cores: list[int] = Field(default_factory=list)  # empty: every core that this process may use
    fabric: str = ""
    fabric_address: str = ""
    runtime_python: str = ""  # empty: the agent builds an environment in its data folder
    train_image: str = TRAIN_IMAGE
    serve_image: str = SERVE_IMAGE
    image_registries: list[Registry] = Field(default_factory=lambda: list(PUBLIC_REGISTRIES), max_length=REGISTRIES_MAX)
    image_python: str = "python3"
    engine_url: str = ""  # empty: DOCKER_HOST or the default socket
    fabric_privacy: Literal["wireguard", "plain"] = "wireguard"  # of the traffic between a gang's containers
    container_user: str = Field(default="10001:10001", pattern=r"^[1-9][0-9]*:[1-9][0-9]*$")
    isolation: Literal["auto", "runc", "gvisor"] = "auto"  # auto: gVisor where the engine has it and there is no GPU
    egress: Literal["none", "public"] = "none"  # public: programs that ask for it may reach public addresses
    dns: list[IPvAnyAddress] = Field(default_factory=lambda: [ip_address("1.1.1.1"), ip_address("9.9.9.9")])
    lend: dict[Label, Path] = Field(default_factory=dict, max_length=LENT_MAX)  # label -> folder, read-only
    cache_gib: int = Field(default=16, ge=0, le=CACHE_GIB_MAX)  # for what jobs leave for later ones; 0: none
    benchmark_lock: str = ""  # a path shared by all agents of one machine
    updates: Literal["auto", "manual"] = "auto"  # manual: only by `souk-agent update --now`

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, data: Any) -> Any:
        """Settings that older agents wrote and none uses any more."""
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if name not in RETIRED_SETTINGS}
        return data


class AgentConfig(AgentSettings):
    """An enrolled node."""

    version: Literal[1] = 1
    node_id: UUID
    server_public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    server: str
    sync_url: str
    api_url: str


@dataclass(frozen=True)
class DataFolder:
    """Where the agent keeps things; every path is below `root`."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite3"

    @property
    def status(self) -> Path:
        return self.root / "status.json"

    @property
    def log(self) -> Path:
        return self.root / "souk-agent.log"

    @property
    def self_test(self) -> Path:
        return self.root / "examination.json"  # named so since before it was called a self-test

    @property
    def leaving(self) -> Path:
        return self.root / "leaving"

    @property
    def update_request(self) -> Path:
        return self.root / "update-wanted.json"

    @property
    def lock(self) -> Path:
        return self.root / "agent.lock"

    @property
    def ended(self) -> Path:
        return self.root / "agent.ended"

    @property
    def leases(self) -> Path:
        return self.root / "leases"

    @property
    def gangs(self) -> Path:
        return self.root / "gangs"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def runtimes(self) -> Path:
        return self.root / "runtimes"

    def lease(self, lease_id: UUID) -> Path:
        """The folder of one lease; its work folder and log lie in it."""
        return self.leases / str(lease_id)

    def prepare(self) -> None:
        """Make the folder, readable by its owner alone."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root.chmod(0o700)  # a container reaches its work folder by its mount, whatever lies above it
        self.leases.mkdir(exist_ok=True, mode=0o700)


def default_data_folder() -> DataFolder:
    """/var/lib/souk-agent for root, else ~/.souk-agent."""
    return DataFolder(DATA_OF_ROOT if os.geteuid() == 0 else Path.home() / DATA_BELOW_HOME)


def save_config(folder: DataFolder, config: AgentConfig) -> None:
    """Write the configuration atomically, for the owner only; the release before can read it too."""
    folder.prepare()
    fields = AgentConfig.model_fields
    defaults = {name: fields[name].get_default(call_default_factory=True) for name in YOUNG_SETTINGS}
    unchosen = {name for name, default in defaults.items() if getattr(config, name) == default}
    write_atomically(folder.config, config.model_dump_json(indent=2, exclude=unchosen).encode() + b"\n", mode=0o600)


def load_config(folder: DataFolder) -> AgentConfig:
    """The configuration of an enrolled node; raises NotEnrolled or BadConfig."""
    try:
        return AgentConfig.model_validate_json(folder.config.read_bytes())
    except FileNotFoundError as error:
        raise NotEnrolled from error
    except ValidationError as error:
        raise BadConfig(f"{folder.config} cannot be used: {error}") from error
