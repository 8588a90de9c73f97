"""One try of the updater: repair what an earlier one left, then do what is wanted. May be killed at any step.

Level-triggered: it looks at the two links, at the record and at the update requests, never at its memory of what
it did.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from provider_agent.config import DataFolder
from provider_agent.errors import AgentError, UpdateRefused
from provider_agent.packaging.prefix import RELEASE_CHARACTERS, Prefix, Record, Trial, read_claim, version_of
from provider_agent.packaging.service import is_kept, is_running
from provider_agent.protocol import ROLLBACK_CHARACTERS_MAX, ReleaseManifest
from provider_agent.updating.fetching import answers, fetch_manifest, fetch_wheel
from provider_agent.updating.installing import install_release, refuse_full_disk
from provider_agent.updating.manifest import refuse_unfit, verify_manifest
from provider_agent.updating.trial import judge, restart_agents
from provider_agent.updating.update_request import UpdateRequest, has_failed, is_held, read_update_request

CHECK_IN_SECONDS: Final = 180.0
BAD_KEPT_MAX: Final = 20

log = logging.getLogger(__name__)


@dataclass
class Updater:
    """Of one prefix. Raises AgentError or OSError where nothing was changed that the next try cannot go on from."""

    prefix: Prefix
    seconds_max: float = CHECK_IN_SECONDS

    def once(self) -> str:
        """Repair, judge, update; returns the outcome in one word, for people and for exit codes."""
        with self.prefix.only_updater() as is_mine:
            if not is_mine:
                return "busy"
            try:
                return self._try()
            except (AgentError, OSError) as error:
                self._note_problem(str(error))
                raise

    def _try(self) -> str:
        self._repair()
        record = self.prefix.record()
        if record.trial is not None:
            return self._judge(record, record.trial)
        request = self._find_request(record)
        return self._update(record, request) if request is not None else "nothing"

    def _note_problem(self, reason: str) -> None:
        """For people: who asked for an update should not have to look for its log."""
        record = self.prefix.record()
        record.problem = {"reason": reason[:ROLLBACK_CHARACTERS_MAX], "at": datetime.now(UTC).isoformat()}
        with contextlib.suppress(OSError):
            self.prefix.save(record)

    # --- what an earlier try left

    def _repair(self) -> None:
        """`good` and `current` name whole releases, and nothing half-done lies about."""
        current, good = self.prefix.release("current"), self.prefix.release("good")
        if good is None and current is None:
            raise UpdateRefused(f"{self.prefix.root} holds no whole release; run the line of install.sh again.")
        if good is None and current is not None:  # installed before there were updates
            self.prefix.point("good", current)
        elif current is None and good is not None:
            self.prefix.point("current", good)
        record = self.prefix.record()
        current, good = self.prefix.release("current"), self.prefix.release("good")
        if current is None or good is None:
            raise UpdateRefused(f"{self.prefix.root} cannot be repaired; run the line of install.sh again.")
        if current == good:
            if record.trial is not None:  # killed before the switch, or after the verdict
                self._conclude(record, record.trial, good)
        elif record.trial is None or record.trial.release != current.name:
            # No record says why another release runs: an operator's change, or a lost record. It gets a trial.
            record.trial = self._trial(good, current)
            self.prefix.save(record)

    def _conclude(self, record: Record, trial: Trial, good: Path) -> None:
        """The links agree already; the agents and the record follow."""
        if why := self._start_those_down(trial.nodes, good.name):
            log.error("An agent did not start: %s", why)
        if trial.release == good.name:
            self._settle(record, trial, "updated", "")
        elif trial.version in record.bad:
            self._settle(record, trial, "rolled back", record.bad[trial.version].get("reason", ""))
        else:
            record.trial = None
            self.prefix.save(record)

    def _trial(self, good: Path, new: Path, key: str = "") -> Trial:
        nodes = [str(data) for data in self._kept_nodes() if is_running(DataFolder(data))]
        now = datetime.now(UTC).isoformat()
        return Trial(version_of(new), new.name, version_of(good), good.name, now, nodes=nodes, key=key)

    # --- one update

    def _find_request(self, record: Record) -> UpdateRequest | None:
        """The first node's request for a version that is neither installed nor known as bad."""
        installed = version_of(self._good())
        for data in self.prefix.data_folders():
            request = read_update_request(DataFolder(data))
            if request is None or request.version == installed:
                continue
            if self._is_wanted(record, request):
                return request
            log.info("Version %s was rolled back here or is held, and is not tried.", request.version)
        return None

    def _is_wanted(self, record: Record, request: UpdateRequest) -> bool:
        """Whether a node still requests it; one that was rolled back or is held counts only with `now`."""
        folder = DataFolder(request.data)
        is_free = request.now or not is_held(folder)
        return read_update_request(folder) == request and is_free and not has_failed(record, request)

    def _update(self, record: Record, request: UpdateRequest) -> str:
        market = self.prefix.market()
        good = self._good()
        if not any(is_running(DataFolder(data)) for data in self._kept_nodes()):
            raise UpdateRefused("No agent of this installation runs as a service: a release could not be proven.")
        data, signature = fetch_manifest(market.server, request.version)
        manifest = verify_manifest(data, signature, public_key=market.public_key)
        refuse_unfit(manifest, wanted=request.version, installed=version_of(good), server=market.server)
        release = self._install(market.server, manifest, good)
        if not self._is_wanted(record, request):  # held since, a device check began, or the rollout was halted
            log.info("Version %s is installed, and not wanted just now.", request.version)
            return "withdrawn"
        log.info("Switching from %s to %s.", version_of(good), manifest.version)
        record.trial = self._trial(good, release, request.key)
        record.bad.pop(manifest.version, None)
        self.prefix.save(record)
        self.prefix.point("current", release)
        why = restart_agents(self.prefix, record.trial.nodes)
        if why:
            return self._roll_back(record, record.trial, f"its agent did not start: {why}")
        return self._judge(record, record.trial, just_started=True)

    def _install(self, server: str, manifest: ReleaseManifest, good: Path) -> Path:
        release = self.prefix.releases / manifest.sha256[:RELEASE_CHARACTERS]
        refuse_full_disk(self.prefix.root)
        self._tidy(good, release)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.prefix.root) as name:
            wheel = Path(name) / manifest.wheel
            fetch_wheel(server, manifest, wheel)
            install_release(wheel, release, version=manifest.version, proven=good)
        return release

    # --- the proof

    def _judge(self, record: Record, trial: Trial, *, just_started: bool = False) -> str:
        if trial.version in record.bad:  # killed between the verdict and its doing
            return self._roll_back(record, trial, record.bad[trial.version].get("reason", ""))
        if not just_started and (why := self._start_those_down(trial.nodes, trial.release)):
            return self._roll_back(record, trial, f"its agent did not start: {why}")
        market = self.prefix.market()  # its address and that of its sync process: what an agent needs to check in

        def is_reachable() -> bool:
            return answers(market.server, market.sync_server)

        found = judge(self.prefix, record, trial, seconds_max=self.seconds_max, is_reachable=is_reachable)
        if found.verdict == "open":
            log.warning("Version %s is not proven yet: %s.", trial.version, found.reason)
            return "open"
        return self._keep(record, trial) if found.verdict == "good" else self._roll_back(record, trial, found.reason)

    def _start_those_down(self, nodes: list[str], release: str) -> str:
        """After a kill or a restart of the computer an agent may be down, or run another release than it should."""
        stale = [
            name
            for name in nodes
            if not is_running(DataFolder(Path(name)))
            or read_claim(Path(name) / "status.json").get("release") != release
        ]
        return restart_agents(self.prefix, stale)

    def _keep(self, record: Record, trial: Trial) -> str:
        release = self.prefix.releases / trial.release
        self.prefix.point("good", release)
        self._settle(record, trial, "updated", "")
        self._tidy(release)
        log.info("Version %s has checked in and stays.", trial.version)
        return "updated"

    def _roll_back(self, record: Record, trial: Trial, reason: str) -> str:
        """The order matters: once `current` is back, a kill finds it settled; so the verdict is written before.

        On a full disk it cannot be written, and the release is rolled back all the same.
        """
        log.error("Version %s is rolled back: %s", trial.version, reason)
        at = datetime.now(UTC).isoformat()
        record.bad.pop(trial.version, None)  # it becomes the last one
        record.bad[trial.version] = {"reason": reason[:ROLLBACK_CHARACTERS_MAX], "at": at, "key": trial.key}
        record.bad = dict(list(record.bad.items())[-BAD_KEPT_MAX:])
        try:
            self.prefix.save(record)
        except OSError as error:
            log.error("The verdict cannot be written: %s", error)
        self.prefix.point("current", self._good())
        why = restart_agents(self.prefix, trial.nodes)
        self._settle(record, trial, "rolled back", reason)
        if why:
            log.error("The release before did not start either: %s", why)
        return "rolled back"

    def _settle(self, record: Record, trial: Trial, outcome: str, reason: str) -> None:
        record.trial, record.problem = None, {}
        record.last = {
            "outcome": outcome,
            "version": trial.version,
            "from_version": trial.from_version,
            "reason": reason[:ROLLBACK_CHARACTERS_MAX],
            "at": datetime.now(UTC).isoformat(),
        }
        self.prefix.save(record)

    # --- below

    def _tidy(self, *kept: Path) -> None:
        """Remove releases that neither a link nor an agent that runs, kept or not, has need of."""
        running = (read_claim(data / "status.json").get("release") for data in self.prefix.data_folders())
        used = [self.prefix.releases / name for name in running if isinstance(name, str) and name]
        self.prefix.remove_others(*kept, *used)

    def _good(self) -> Path:
        good = self.prefix.release("good")
        if good is None:
            raise UpdateRefused(f"{self.prefix.root} holds no proven release.")
        return good

    def _kept_nodes(self) -> list[Path]:
        return [data for data in self.prefix.data_folders() if is_kept(DataFolder(data))]
