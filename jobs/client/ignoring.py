"""Which files of a folder are not sent: what ignore files say, and what usually holds a secret.

Both have the syntax of `.gitignore`. A job file that names a file or folder itself wants it, whatever these say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pathspec

from jobs.spec import SpecError, SpecErrors

OWN_IGNORE_FILE = ".soukignore"
IGNORE_FILES = (OWN_IGNORE_FILE, ".gitignore")  # of one folder, the first that is there counts
IGNORE_BYTES_MAX = 1 << 20
NPMRC_BYTES_READ = 1 << 16
SKIPPED = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", ".DS_Store"})
NAMES_SHOWN_MAX = 10

# Names of well-known secrets. A file that is none and has such a name is named under `files:` and sent.
SECRETS_OF = (
    # environments and tokens of tools
    ".env .env.* .envrc !.env.example !.env.sample !.env.template !.env.dist",
    ".netrc _netrc .git-credentials .pypirc .boto .s3cfg .vault-token .pgpass .my.cnf .htpasswd",
    "kaggle.json .kaggle/ .huggingface/ **/.cache/huggingface/token **/.config/souk/",
    # private keys
    ".ssh/ id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk *.ppk",
    "*.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx .gnupg/ *.gpg",
    # clouds
    ".aws/ .azure/ .gcloud/ **/.config/gcloud/ .oci/ .kube/ .docker/ .terraform.d/ *.tfstate *.tfstate.backup",
    "application_default_credentials.json client_secret*.json service-account*.json service_account*.json",
)
SECRETS = pathspec.GitIgnoreSpec.from_lines(pattern for line in SECRETS_OF for pattern in line.split())
NPMRC = ".npmrc"
NPMRC_SECRETS = (b"_auth", b"_password")  # `_authToken` too


class Ignoring:
    """What is left out of the folders below a job file's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, pathspec.GitIgnoreSpec] = {}
        self._names: Sequence[str] = IGNORE_FILES
        if (folder / OWN_IGNORE_FILE).exists():  # it counts in place of git's, everywhere
            self._names = (OWN_IGNORE_FILE,)

    def is_ignored(self, path: Path) -> bool:
        """Whether an ignore file of one of its folders says so; the nearest that says something decides.

        Raises SpecErrors for an ignore file that cannot be read.
        """
        relative = PurePosixPath(path.relative_to(self._folder).as_posix())
        suffix = "/" if path.is_dir() and not path.is_symlink() else ""
        for parent in relative.parents:
            found = self._patterns(parent).check_file(f"{relative.relative_to(parent)}{suffix}")
            if found.include is not None:
                return found.include
        return False

    def is_secret(self, path: Path) -> bool:
        """Whether a file or folder of that name usually holds a secret."""
        name = path.relative_to(self._folder).as_posix()
        if path.name.lower() == NPMRC and path.is_file():
            with path.open("rb") as opened:
                return any(mark in opened.read(NPMRC_BYTES_READ) for mark in NPMRC_SECRETS)
        return SECRETS.match_file(f"{name.lower()}/" if path.is_dir() else name.lower())

    def _patterns(self, parent: PurePosixPath) -> pathspec.GitIgnoreSpec:
        key = parent.as_posix()
        if key not in self._read:
            self._read[key] = _read_patterns(self._folder / parent, self._names, self._folder)
        return self._read[key]


def explain_left_out(names: Sequence[str]) -> str:
    """What was left out as a secret, and how it is sent."""
    count, shown = len(names), ", ".join(map(repr, names[:NAMES_SHOWN_MAX]))
    what = "1 file or folder that usually holds a secret is" if count == 1 else f"{count} files or folders that usually"
    what += "" if count == 1 else " hold secrets are"
    more = ", ..." if count > NAMES_SHOWN_MAX else ""
    return (
        f"{what} not sent: {shown}{more}. To send one all the same, name it itself under `files:`, beside its folder."
    )


def _read_patterns(folder: Path, names: Sequence[str], top: Path) -> pathspec.GitIgnoreSpec:
    for name in names:
        try:
            with (folder / name).open("rb") as opened:
                lines = opened.read(IGNORE_BYTES_MAX).decode(errors="replace").splitlines()
            return pathspec.GitIgnoreSpec.from_lines(lines)
        except (FileNotFoundError, IsADirectoryError):
            continue
        except (OSError, ValueError) as error:
            path = (folder / name).relative_to(top).as_posix()
            raise SpecErrors([SpecError(None, None, "files", f"{path} cannot be used: {error}")]) from error
    return pathspec.GitIgnoreSpec([])
