"""Objects on a real S3 server become files, as the data of a training: chosen, pinned, fetched, refused."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.job_files import JobFiles
from runtimes.train.data import s3 as module
from runtimes.train.data import s3_client, s3_watch
from runtimes.train.data.documents import find_paths
from runtimes.train.data.keys import data_digest
from runtimes.train.data.s3 import S3Data
from runtimes.train.data.s3_client import S3Object
from runtimes.train.errors import BadData, TrainError
from runtimes.train.parallel import Progress
from tests.integration.runtimes.s3_server import BUCKET, Asked, S3Server, running_s3

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAALICE", "AWS_SECRET_ACCESS_KEY": "alices-very-own-secret"}
OBJECTS = {
    "corpus/b-late.jsonl": b'{"text": "late"}\n',
    "corpus/b/early.txt": b"early",
    "corpus/README.md": b"about it",
    "corpus/notes.pdf": b"%PDF",
    "corpus/": b"",
    "corpus2/other.txt": b"not asked for",
    "sets/train-00000-of-00001.jsonl": b'{"text": "to learn"}\n',
    "sets/test.jsonl": b'{"text": "to keep"}\n',
    "table.parquet/part-0.jsonl": b'{"text": "of a folder that is called like a file"}\n',
    "one.jsonl": b'{"text": "one"}\n',
    "two.jsonl": b'{"text": "two"}\n',
    "list.json": b"[]",
}

Read = Callable[..., S3Data]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_s3() as s3:
        s3.put(OBJECTS)
        yield s3


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """It answers as it should, and is given up soon."""
    server.asked.clear()
    server.before = server.cut = lambda asked: None
    monkeypatch.setattr(s3_client, "BACKOFF_SECONDS_MAX", 0.01)
    return server


@pytest.fixture
def data(s3: S3Server, tmp_path: Path) -> Read:
    def make(*names: str, is_resumed: bool = False, env: dict[str, str] = KEYS, say: Any = lambda line: None) -> S3Data:
        addresses = tuple(f"s3://{BUCKET}/{name}".rstrip("/") for name in names)
        return S3Data(addresses, tmp_path, is_resumed=is_resumed, say=say, env={**env, "AWS_ENDPOINT_URL_S3": s3.url})

    return make


def contents(found: S3Data) -> list[bytes]:
    return [path.read_bytes() for paths in found.fetch(Progress()).values() for path in paths]


def names(found: S3Data) -> list[str]:
    return [path.name for paths in found.fetch(Progress()).values() for path in paths]


@pytest.mark.parametrize(
    "name", ["corpus", "sets", "one.jsonl", "*.jsonl", "corpus/*/early.txt", "t??.jsonl", "table.parquet", "c*2/*"]
)
def test_the_same_objects_are_chosen_in_the_same_order_as_files(data: Read, tmp_path: Path, name: str) -> None:
    local = tmp_path / "local"
    for key, content in OBJECTS.items():
        if not key.endswith("/"):
            (local / key).parent.mkdir(parents=True, exist_ok=True)
            (local / key).write_bytes(content)
    wanted = [path for path in find_paths((name,), JobFiles(local)) if path is not None]
    found = data(name)
    assert names(found) == [path.name for path in wanted] != []
    assert contents(found) == [path.read_bytes() for path in wanted]


def test_several_addresses_are_fetched_once_and_removed(data: Read, s3: S3Server, tmp_path: Path) -> None:
    lines: list[str] = []
    found = data("one.jsonl", "corpus", "one.jsonl", say=lines.append)
    assert names(found) == ["one.jsonl", "early.txt", "b-late.jsonl"]
    fetched = found.fetch(Progress())
    assert len(s3.reads()) == 3
    paths = find_paths(("python-docs", f"s3://{BUCKET}/one.jsonl"), JobFiles(tmp_path), fetched)
    assert [path and path.name for path in paths] == [None, "one.jsonl"]
    assert len(lines) == 1
    assert f"data: fetched 0.0 MB of s3://{BUCKET}/one.jsonl, s3://{BUCKET}/corpus in " in lines[0]
    found.remove()
    assert list(tmp_path.iterdir()) == []


def test_pins_know_the_objects_without_a_fetch(data: Read, s3: S3Server, tmp_path: Path) -> None:
    def digest(*asked: str) -> str:
        found = data(*asked)
        return data_digest(found._names, JobFiles(tmp_path), found)

    known = digest("one.jsonl", "corpus")
    assert digest("one.jsonl", "corpus") == known
    assert digest("corpus", "one.jsonl") != known
    s3.put({"one.jsonl": b'{"text": "won"}\n'})
    assert digest("one.jsonl", "corpus") != known, "of the same size"
    s3.put({"one.jsonl": OBJECTS["one.jsonl"]})
    assert digest("one.jsonl", "corpus") == known
    assert s3.reads() == []


def test_parts_of_a_large_object_arrive_whole_over_a_line_that_breaks(
    data: Read, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1 << 20)
    large = random.Random(0).randbytes((5 << 20) + 400_000)
    s3.put({"large.txt": large})
    cuts: dict[str, int] = {}

    def cut(asked: Asked) -> int | None:
        """Each part breaks twice, after some bytes more."""
        end = asked.headers.get("Range", "").rpartition("-")[2]
        if not asked.is_read or cuts.get(end, 0) >= 2:
            return None
        cuts[end] = cuts.get(end, 0) + 1
        return 150_000

    s3.cut = cut
    progress = Progress()
    found = data("large.txt")
    fetched = found.fetch(progress)
    assert fetched[f"s3://{BUCKET}/large.txt"][0].read_bytes() == large
    assert (progress.text, progress.done) == ("fetched 5.6 of 5.6 MB from S3", None)
    spans = [each.headers["Range"] for each in s3.asked if each.is_read]
    assert len(spans) == 3 * 6
    assert len(set(spans)) == 3 * 6, "nothing that had come is asked for again"
    assert all(each.headers.get("If-Match") for each in s3.asked if each.is_read)


def test_s3_that_is_away_for_a_moment_is_waited_for(data: Read, s3: S3Server) -> None:
    refused: set[str] = set()

    def before(asked: Asked) -> int | None:
        if asked.path in refused:
            return None
        refused.add(asked.path)
        return 503

    s3.before = before
    assert contents(data("one.jsonl", "corpus")) == [b'{"text": "one"}\n', b"early", b'{"text": "late"}\n']


@pytest.mark.parametrize("is_resumed", [False, True])
def test_only_s3_that_answered_at_first_is_to_blame_for_breaking_off(
    data: Read, s3: S3Server, monkeypatch: pytest.MonkeyPatch, is_resumed: bool
) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 0.2)
    s3.before = lambda asked: 503 if asked.is_read else None
    with pytest.raises(TrainError, match=r"s3://alices/one.jsonl could not be read for 0 s: 503") as caught:
        data("one.jsonl", is_resumed=is_resumed).fetch(Progress())
    assert isinstance(caught.value, BadData) is not is_resumed, "its owner could let it break as late as they like"
    gone = S3Data(
        ("s3://alices/one.jsonl",),
        Path(),
        is_resumed=False,
        say=print,
        env={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
    )
    with pytest.raises(TrainError, match="could not be read for 0 s: EndpointConnectionError") as caught:
        gone.pin("s3://alices/one.jsonl")
    assert not isinstance(caught.value, BadData)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "there is nothing to read at s3://alices/nothing"),
        ("nothing.jsonl", "there is nothing to read at s3://alices/nothing.jsonl"),
        ("n*.jsonl", "there is nothing to read at s3://alices/n*.jsonl"),
        ("*.json", "s3://alices/list.json is of no known kind, expected one of .txt"),
    ],
)
def test_what_cannot_be_read_names_the_address(data: Read, name: str, says: str) -> None:
    with pytest.raises(BadData) as caught:
        data(name).fetch(Progress())
    assert says in str(caught.value)
    with pytest.raises(TrainError, match="an attempt before this one could read it") as late:
        data(name, is_resumed=True).fetch(Progress())
    assert not isinstance(late.value, BadData), "neither the input nor the checkpoint is to blame"


def test_a_refusal_says_what_to_do_and_shows_no_secret(data: Read, s3: S3Server) -> None:
    s3.before = lambda asked: 403
    with pytest.raises(
        BadData, match=r"S3 refuses s3://alices/one.jsonl \(403\): the job's credentials must"
    ) as caught:
        data("one.jsonl").fetch(Progress())
    assert not [value for value in KEYS.values() if value in str(caught.value)]
    with pytest.raises(BadData, match="the job has no credentials: name AWS_ACCESS_KEY_ID"):
        data("one.jsonl", env={}).fetch(Progress())
    with pytest.raises(BadData, match="the job has one alone"):
        data("one.jsonl", env={"AWS_ACCESS_KEY_ID": "AKIAALICE"}).fetch(Progress())
    s3.before = lambda asked: None
    nowhere = S3Data(("s3://bobs/x",), Path(), is_resumed=False, say=print, env={**KEYS, "AWS_ENDPOINT_URL_S3": s3.url})
    with pytest.raises(BadData, match=r"\(NoSuchBucket\): there is no such bucket or object"):
        nowhere.pin("s3://bobs/x")
    odd = S3Data(("s3://bobs/x",), Path(), is_resumed=False, say=print, env={**KEYS, "AWS_REGION": "not a region"})
    with pytest.raises(BadData, match="see AWS_REGION and AWS_ENDPOINT_URL_S3"):
        odd.pin("s3://bobs/x")


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_object_that_changes_after_it_was_pinned_is_not_read(data: Read, s3: S3Server, is_resumed: bool) -> None:
    found = data("two.jsonl", is_resumed=is_resumed)
    found.pin(f"s3://{BUCKET}/two.jsonl")
    s3.put({"two.jsonl": b'{"text": "too"}\n'})
    with pytest.raises(TrainError, match=r"two.jsonl changed while it was read") as caught:
        found.fetch(Progress())
    assert isinstance(caught.value, BadData) is not is_resumed
    s3.put({"two.jsonl": OBJECTS["two.jsonl"]})


def test_lists_and_sizes_have_bounds(data: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OBJECTS_MAX", 3)
    with pytest.raises(BadData, match="more than 3 objects are to be looked at: name a folder of fewer"):
        data("corpus", "sets").fetch(Progress())
    monkeypatch.undo()
    monkeypatch.setattr(module, "DATA_BYTES_MAX", 10)
    with pytest.raises(BadData, match="the data on S3 has more than"):
        data("one.jsonl").fetch(Progress())


def test_a_node_that_cannot_fetch_them_blames_nobody(data: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")._replace(free=3)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(TrainError, match=r"this node has 0.0 GB of free disk: ask for more by resources.disk") as small:
        data("one.jsonl").fetch(Progress())
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(TrainError, match="need botocore, which this node's runtime lacks") as old:
        data("one.jsonl").fetch(Progress())
    assert not isinstance(small.value, BadData)
    assert not isinstance(old.value, BadData)


def test_keys_lead_nowhere(data: Read, s3: S3Server, tmp_path: Path) -> None:
    odd = {"odd/a b\x1b[2J.txt": b"steers", "odd/x.txt/y.txt": b"below a file", "odd/x.txt": b"x", "odd/-rf.md": b"y"}
    s3.put(odd)
    found = data("odd")
    assert sorted(contents(found)) == sorted(odd.values())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.parent for path in written} == {tmp_path / module.FOLDER}
    assert sorted(path.name for path in written) == ["object.md", "object.txt", "x.txt", "y.txt"]
    s3.put_unchecked("odd/x.txt//y.txt", b"twice")
    with pytest.raises(BadData, match="differ by more slashes alone"):
        data("odd").fetch(Progress())
    for key in ("../../up.txt", "odd/x.txt/../../../up.txt", "/etc/up.txt"):
        assert module._file_name(S3Object(BUCKET, key, 0, "")) == "up.txt"
    assert str(S3Object(BUCKET, "a\nb\x1b.txt", 0, "")) == f"s3://{BUCKET}/a\\nb\\x1b.txt"


def test_a_server_that_ignores_ranges_or_etags_is_refused(
    data: Read, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = data("one.jsonl")
    client = found._client._client
    real = client.get_object
    monkeypatch.setattr(client, "get_object", lambda **asked: {**real(**asked), "ContentRange": ""})
    with pytest.raises(BadData, match="it was asked for a part"):
        found.fetch(Progress())
    monkeypatch.setattr(client, "get_object", lambda **asked: {**real(**asked), "ETag": '"another"'})
    with pytest.raises(BadData, match="changed while it was read"):
        found.fetch(Progress())
    s3.before = lambda asked: 200
    with pytest.raises(BadData, match="what answers is no S3"):
        data("one.jsonl").fetch(Progress())


@pytest.mark.parametrize("env", [{}, KEYS], ids=["public", "with-keys"])
def test_nothing_of_the_nodes_own_aws_is_used(
    data: Read, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    """Bob's node has credentials, a profile with an endpoint, and roles that could be asked for."""
    home = tmp_path / "bob"
    (home / ".aws").mkdir(parents=True)
    of_bob = "aws_access_key_id = AKIABOB\naws_secret_access_key = bobs\n"
    (home / ".aws" / "credentials").write_text(f"[default]\n{of_bob}[bob]\n{of_bob}")
    config = f"region = eu-west-9\nendpoint_url = {s3.url}/bobs\n{of_bob}s3 =\n  addressing_style = virtual\n"
    (home / ".aws" / "config").write_text(f"[default]\n{config}[profile bob]\n{config}")
    theirs = {
        "HOME": str(home),
        "AWS_PROFILE": "bob",
        "AWS_CONFIG_FILE": str(home / ".aws" / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / ".aws" / "credentials"),
        "AWS_ACCESS_KEY_ID": "AKIABOB",
        "AWS_SECRET_ACCESS_KEY": "bobs",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{s3.url}/role",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{s3.url}/metadata",
        "AWS_ENDPOINT_URL": f"{s3.url}/bobs",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert contents(data("one.jsonl", "corpus", env=env))
    assert all(each.path.startswith(f"/{BUCKET}") for each in s3.asked)
    signed = [each.headers.get("Authorization", "") for each in s3.asked]
    assert not [each for each in signed if "AKIABOB" in each or "eu-west-9" in each]
    assert all(("Credential=AKIAALICE/" in each) is bool(env) for each in signed)
    assert env or not any(signed)


def test_no_library_is_loaded_where_no_data_are_on_s3() -> None:
    code = "import sys, runtimes.train.data.s3; sys.exit('botocore' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
