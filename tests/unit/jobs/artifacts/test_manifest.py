"""Which lists of files are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.artifacts import manifest
from jobs.artifacts.manifest import accept_files
from jobs.errors import BadManifest
from provider_agent.protocol import ArtifactFile, file_name_mistake

SHA256 = "0" * 64


def file(path: str, size: int = 1) -> ArtifactFile:
    return ArtifactFile(path=path, size=size, sha256=SHA256)


@pytest.mark.parametrize("path", ["a", "a/b/c.txt", ".hidden", "..a", "a b", "نص/ملف.txt", "a-b_c.1", "x" * 255])
def test_an_ordinary_name_is_accepted(path):
    assert file_name_mistake(path) is None
    assert accept_files([file(path)]) == [{"path": path, "size": 1, "sha256": SHA256}]


@pytest.mark.parametrize(
    ("path", "mistake"),
    [
        ("/etc/passwd", "must be relative"),
        ("C:/x", "must be relative"),
        ("c:x", "must be relative"),
        ("a\\b", "must use forward slashes"),
        ("..", "holds an empty name, '.' or '..'"),
        ("a/../../b", "holds an empty name, '.' or '..'"),
        ("./a", "holds an empty name, '.' or '..'"),
        ("a//b", "holds an empty name, '.' or '..'"),
        ("a/", "holds an empty name, '.' or '..'"),
        ("a\0b", "holds control characters"),
        ("a\nb", "holds control characters"),
        ("a\u202egpj.exe", "holds control characters"),
        ("a\u200bb", "holds control characters"),
        ("cafe\u0301", "is not in Unicode normal form C"),
        ("/".join("a" * 33), "is more than 32 folders deep"),
        ("é" * 128, "holds a name of more than 255 bytes"),
    ],
)
def test_a_dangerous_name_is_refused_with_its_reason(path, mistake):
    assert file_name_mistake(path) == mistake
    with pytest.raises(BadManifest) as refused:
        accept_files([file(path)])
    assert mistake in refused.value.details["errors"][0]


@given(st.text(min_size=1, max_size=40, alphabet=st.sampled_from("ab./\\:~ é\u0301\0\n")))
def test_no_accepted_name_leaves_its_folder(path):
    if file_name_mistake(path) is None:
        names = path.split("/")
        assert not path.startswith("/")
        assert all(name not in {"", ".", ".."} for name in names)
        assert "\\" not in path
        assert "\0" not in path


@pytest.mark.parametrize(
    ("paths", "mistake"),
    [
        (["a", "a"], "are the same name"),
        (["Readme", "README"], "are the same name"),
        (["straße", "STRASSE"], "are the same name"),
        (["a", "a/b"], "is a file, and 'a/b' needs it to be a folder"),
        (["a/b/c", "A/b"], "is a file"),
    ],
)
def test_names_that_collide_on_some_file_system_are_refused(paths, mistake):
    with pytest.raises(BadManifest) as refused:
        accept_files([file(path) for path in paths])
    assert mistake in refused.value.details["errors"][0]


def test_every_mistake_is_named_up_to_a_limit():
    with pytest.raises(BadManifest) as refused:
        accept_files([file(f"/{index}") for index in range(80)])
    assert (len(refused.value.details["errors"]), refused.value.details["count"]) == (50, 80)


def test_sizes_have_limits(monkeypatch):
    monkeypatch.setattr(manifest, "FILE_BYTES_MAX", 10)
    monkeypatch.setattr(manifest, "ARTIFACT_BYTES_MAX", 15)
    monkeypatch.setattr(manifest, "FILES_PER_ARTIFACT_MAX", 2)
    assert accept_files([file("a", 10), file("b", 5)])
    for sizes in ([11], [10, 6], [1, 1, 1]):
        with pytest.raises(BadManifest):
            accept_files([file(str(index), size) for index, size in enumerate(sizes)])


def test_no_files_are_a_mistake_where_there_must_be_some():
    assert accept_files([], may_be_empty=True) == []
    with pytest.raises(BadManifest):
        accept_files([])
