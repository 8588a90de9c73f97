"""`python -m provider_agent.preflight --server URL`: may this computer become a node? Exit status 8: not yet."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.examine import examine_computer

EXIT_NEEDS_FIXING = 8


def main() -> int:
    """Print the findings; 8 if there is something to fix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--manifest", type=Path, help="the marketplace's signed manifest, with its floors")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--executor", choices=("docker", "process"), default="docker")
    parser.add_argument("--device-kind", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--user", default="", help="whom the agent is to run as")
    for option in ("--egress", "--fabric-address", "--fabric-privacy", "--train-image", "--serve-image"):
        parser.add_argument(option, default="", help="as of souk-agent enrol")
    parser.add_argument("--runtime-python", default="", help="as of souk-agent enrol")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    manifest: dict[str, Any] = json.loads(asked.manifest.read_bytes()) if asked.manifest else {}
    findings = examine_computer(
        server=asked.server,
        sync_server=str(manifest.get("sync_server", "")),
        folder=asked.data,
        desired=DesiredSettings(
            executor=asked.executor,
            user=asked.user,
            egress=asked.egress,
            fabric_address=asked.fabric_address,
            fabric_privacy=asked.fabric_privacy,
            train_image=asked.train_image,
            serve_image=asked.serve_image,
            runtime_python=asked.runtime_python,
        ),
        device_kind=asked.device_kind,
        floors=manifest.get("floors", {}),
    )
    if asked.json:
        sys.stdout.write(json.dumps([finding.as_dict() for finding in findings]) + "\n")
    else:
        sys.stdout.writelines(f"   {line}\n" for finding in findings for line in finding.as_text().splitlines())
    return EXIT_NEEDS_FIXING if any(finding.verdict == "FIX" for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
