"""The files of a job are what its file names, and nothing else on this computer."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from jobs.client import gather
from jobs.client.launch import prepare
from jobs.spec import SpecErrors, parse

HEAD = "kind: train\nname: a\nbudget: {max_total: 1}\ncommand: x\nfiles: "


def paths(folder: Path, files: str) -> list[str]:
    return [file.entry.path for file in gather.gather_files(parse(HEAD + files), folder).files]


def left_out(folder: Path, files: str) -> list[str]:
    return gather.gather_files(parse(HEAD + files), folder).left_out


def test_folder_is_gathered_without_what_never_belongs_to_a_job(job_file: Path) -> None:
    assert paths(job_file.parent, "[data/, train.py]") == ["data/a.txt", "data/empty", "train.py"]


def test_entry_has_size_and_hash(job_file: Path) -> None:
    (file,) = gather.gather_files(parse(HEAD + "train.py"), job_file.parent).files
    assert (file.entry.size, file.entry.sha256) == (14, hashlib.sha256(b"print('hello')").hexdigest())


def test_file_named_twice_in_different_ways_is_sent_once(job_file: Path) -> None:
    assert paths(job_file.parent, "[data, data/a.txt]") == ["data/a.txt", "data/empty"]


def test_link_that_leads_out_of_the_folder_is_refused(job_file: Path) -> None:
    (job_file.parent / "data" / "key").symlink_to("/etc/passwd")
    with pytest.raises(SpecErrors, match="leads out of the job file's folder"):
        paths(job_file.parent, "[data]")


def test_loop_of_links_ends(job_file: Path) -> None:
    (job_file.parent / "data" / "loop").symlink_to(job_file.parent / "data")
    with pytest.raises(SpecErrors, match="leads in a circle"):
        paths(job_file.parent, "[data]")


def test_too_many_bytes_are_refused(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "FILES_BYTES_MAX", 5)
    with pytest.raises(SpecErrors, match="14 bytes are too many"):
        paths(job_file.parent, "[train.py]")


def test_all_missing_files_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors) as caught:
        paths(tmp_path, "[a, b]")
    assert [error.path for error in caught.value.errors] == ["files[0]", "files[1]"]


def test_a_dot_is_the_whole_folder_of_the_job_file(job_file: Path) -> None:
    assert paths(job_file.parent, ".") == ["data/a.txt", "data/empty", "job.yaml", "train.py"]
    assert paths(job_file.parent, "[./, train.py]") == ["data/a.txt", "data/empty", "job.yaml", "train.py"]


def test_ignored_files_are_left_out_of_folders(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("*.txt\n")
    assert paths(job_file.parent, "data") == ["data/empty"]
    (job_file.parent / ".soukignore").write_text("# not sent\ndata/\n!data/a.txt\n.*ignore\n*.yaml\n")
    assert paths(job_file.parent, ".") == ["train.py"], "its own file counts in place of git's, by the same rules"


def test_a_file_that_is_named_is_sent_although_it_is_ignored(job_file: Path) -> None:
    (job_file.parent / ".soukignore").write_text("data\n")
    assert paths(job_file.parent, "[., data/a.txt]") == [".soukignore", "data/a.txt", "job.yaml", "train.py"]


def test_a_folder_that_is_named_is_sent_although_it_is_ignored(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("data/\n")
    assert paths(job_file.parent, "[data, train.py]") == ["data/a.txt", "data/empty", "train.py"]


def test_an_entry_that_leaves_nothing_to_send_is_a_mistake(job_file: Path) -> None:
    (job_file.parent / ".gitignore").write_text("*.txt\nempty\n")
    with pytest.raises(SpecErrors, match=r"files\[0\].*'data' has no file.*\.gitignore"):
        paths(job_file.parent, "[data, train.py]")


def test_an_ignore_file_that_cannot_be_read_is_named(job_file: Path) -> None:
    (job_file.parent / ".soukignore").write_text("!\n")
    with pytest.raises(SpecErrors, match=r"\.soukignore cannot be used"):
        paths(job_file.parent, ".")


def test_an_ignore_file_of_a_folder_counts_below_it(job_file: Path) -> None:
    folder = job_file.parent
    write(
        folder, {"data/.gitignore": "*.txt\n", "data/deep/b.txt": "", "data/deep/.gitignore": "!b.txt\n", "c.txt": ""}
    )
    sent = ["c.txt", "data/.gitignore", "data/deep/.gitignore", "data/deep/b.txt", "data/empty", "job.yaml", "train.py"]
    assert paths(folder, ".") == sent, "the nearest that says something decides"
    assert paths(folder, "data/deep") == ["data/deep/.gitignore", "data/deep/b.txt"]
    write(folder, {"data/deep/.gitignore": ""})
    assert paths(folder, "data/deep") == ["data/deep/.gitignore"], "those above the named folder count too"


def test_a_soukignore_counts_in_place_of_all_of_gits(job_file: Path) -> None:
    folder = job_file.parent
    write(folder, {".soukignore": "", "data/.gitignore": "*\n", "src/.soukignore": "*.log\n", "src/a.log": ""})
    assert paths(folder, "[data, src]") == ["data/.gitignore", "data/a.txt", "data/empty", "src/.soukignore"]


SECRETS = {
    ".env": "", ".env.local": "", "deep/.ENV": "", ".ssh/config": "", "keys/id_rsa": "", "tls.pem": "",
    ".aws/credentials": "", ".netrc": "", ".npmrc": "//registry/:_authToken=x", ".git-credentials": "",
    ".config/gcloud/key": "", ".kube/config": "", "service-account.json": "", "deep/.config/souk/config.toml": "",
}  # fmt: skip


def test_well_known_secrets_are_not_sent_and_the_terminal_says_so(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    write(job_file.parent, SECRETS | {".env.example": "", "config/.npmrc": "color=true", "environment.py": ""})
    job_file.write_text(HEAD + ".\n")
    sent = [file.entry.path for file in prepare(job_file).files]
    ours = ["data/a.txt", "data/empty", "environment.py", "job.yaml", "train.py"]
    assert sent == sorted([".env.example", "config/.npmrc", *ours])
    said = capsys.readouterr().err
    assert said.startswith(
        "14 files or folders that usually hold secrets are not sent: '.aws', '.config/gcloud', '.env'"
    )
    assert "name it itself under `files:`" in said


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_a_secret_that_is_named_is_sent(job_file: Path, secret: str) -> None:
    write(job_file.parent, SECRETS)
    assert secret in paths(job_file.parent, f"[., {secret}]")


def test_the_notice_names_only_secrets_that_are_not_sent(job_file: Path) -> None:
    folder = job_file.parent
    write(folder, {".ssh/id_rsa": "", ".ssh/config": "", ".ssh/__pycache__/a": "", ".aws/credentials": ""})
    assert left_out(folder, "[.]") == [".aws", ".ssh"]
    assert left_out(folder, "[., .ssh]") == [".aws"], "the folder was named, and is sent"
    assert left_out(folder, "[., .ssh/config]") == [".aws", ".ssh/id_rsa"], "one of its files was named"


def test_a_secret_folder_that_is_named_is_sent_whole(job_file: Path) -> None:
    write(job_file.parent, {".ssh/id_rsa": "", ".ssh/config": ""})
    assert paths(job_file.parent, ".ssh") == [".ssh/config", ".ssh/id_rsa"]


def test_an_ignored_folder_that_is_named_keeps_its_secrets(job_file: Path) -> None:
    write(job_file.parent, {".gitignore": "data\n", "data/.env": ""})
    assert paths(job_file.parent, "data") == ["data/a.txt", "data/empty"]


def test_a_mistake_inside_a_folder_names_the_file(job_file: Path) -> None:
    folder = job_file.parent
    (folder / "data" / "key").symlink_to("/etc/passwd")
    with pytest.raises(SpecErrors, match=r"files\[0\]: 'data' holds 'key', which leads out"):
        paths(folder, "[data]")
    (folder / "data" / "key").unlink()
    write(folder, {"data/" + "d/" * 40 + "deep": ""})
    with pytest.raises(SpecErrors, match=r"'data' holds 'd/d/.*', which is more than 32 folders deep"):
        paths(folder, "[data]")
    shutil.rmtree(folder / "data" / "d")
    write(folder, {"data/bell\a": ""})
    with pytest.raises(SpecErrors, match=r"files: 'data/bell\\x07' holds control characters"):
        paths(folder, "[data]")


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
