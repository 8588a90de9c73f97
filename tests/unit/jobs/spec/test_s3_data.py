"""Data on S3: which addresses a job file may name, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.spec import SpecErrors, canonical, from_wire, kind_of, spec_hash
from provider_agent.facts import RUNTIME_FEATURES
from runtimes.contract import S3_VARIABLES, s3_address_mistake, split_s3_address
from runtimes.train.config import parse_config
from runtimes.train.errors import BadConfig

TRAINING: dict[str, Any] = {
    "kind": "train",
    "name": "learn",
    "budget": {"max_total": 1},
    "work": {"steps": 1},
    "network": "public",
    "train": {"model": "tiny-llama", "data": ["s3://bucket/corpus", "own.jsonl"]},
    "files": ["own.jsonl"],
}
FEATURE = "train.s3_data"
GOOD = [
    "s3://bucket",
    "s3://bucket/",
    "s3://my-bucket.of.data/a/b c/*.jsonl",
    "s3://b0b/t[0-9]?/x.parquet/",
    "s3://123/ä",
]
BAD = {
    "s3:/bucket/a": "no address such as s3://bucket/folder",
    "s3://": "no address such as s3://bucket/folder",
    "s3://Bucket/a": "no address such as s3://bucket/folder",
    "s3://ab/a": "no address such as s3://bucket/folder",
    "s3://a..b/a": "no address such as s3://bucket/folder",
    "s3://key:secret@bucket/a": "no address such as s3://bucket/folder",
    "s3://169.254.169.254/a": "has an address in place of a bucket's name",
    "s3://bucket//a": "has an empty part",
    "s3://bucket/a/../b": "has an empty part, or one that is . or ..",
    "s3://bucket/./a": "has an empty part, or one that is . or ..",
    "s3://bucket/a\nb": "has characters that nobody can print",
    "s3://bucket/a\x1b[2J": "has characters that nobody can print",
    "s3://bucket/" + "ä" * 600: "a key of more than 1024 bytes",
    "s3://bucket/**/a.txt": "a folder is read with all folders below it",
}


def training(data: Any, **changes: Any) -> dict[str, Any]:
    return TRAINING | {"train": TRAINING["train"] | {"data": data}} | changes


def mistakes(body: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecErrors) as refused:
        from_wire(body)
    return [str(error) for error in refused.value.errors]


def test_data_on_s3_stand_beside_files_and_need_a_runtime_that_fetches_them() -> None:
    spec = from_wire(TRAINING)
    assert from_wire(canonical(spec)) == spec
    assert parse_config(kind_of(spec).config(spec)).data == ("s3://bucket/corpus", "own.jsonl")
    assert kind_of(spec).runtime_features(spec) == {FEATURE} <= set(RUNTIME_FEATURES)
    local = from_wire(training("own.jsonl"))
    assert FEATURE not in kind_of(local).runtime_features(local)
    assert spec_hash(local) != spec_hash(spec)


def test_only_a_training_with_data_on_s3_is_given_the_variables_of_s3() -> None:
    spec, local = from_wire(TRAINING), from_wire(training("own.jsonl"))
    assert kind_of(spec).runtime_variables(spec) == S3_VARIABLES
    assert kind_of(local).runtime_variables(local) == frozenset()
    assert not [name for name in S3_VARIABLES if "PROFILE" in name or "FILE" in name or "ROLE" in name]


@pytest.mark.parametrize("address", GOOD)
def test_good_addresses_are_taken_by_job_file_and_runtime(address: str) -> None:
    assert from_wire(training(address)).section is not None
    assert parse_config({"steps": 1, "data": address}).data == (address,)


@pytest.mark.parametrize("address", BAD)
def test_bad_addresses_are_refused_by_job_file_and_runtime(address: str) -> None:
    assert BAD[address] in str(s3_address_mistake(address))
    assert mistakes(training(["own.jsonl", address]))
    if len(address) < 300:
        assert BAD[address] in mistakes(training(["own.jsonl", address]))[0]
    with pytest.raises(BadConfig, match="must hold paths and addresses of S3 only"):
        parse_config({"steps": 1, "data": ["own.jsonl", address]})


def test_the_program_reads_s3_itself_and_so_needs_the_internet() -> None:
    (mistake,) = mistakes(training("s3://bucket/a", network="none"))
    assert "is read by the program itself, and network is none" in mistake
    assert "network: public" in mistake
    assert "network is none" in mistakes({key: TRAINING[key] for key in TRAINING if key != "network"})[0]
    assert "nodes: 1" in mistakes(TRAINING | {"resources": {"nodes": 2}})[0]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://s3.example.org", "the key would cross the network for everybody to read"),
        ("https://key:secret@s3.example.org", "has a user, a query or a fragment"),
        ("https://s3.example.org/?x=1", "has a user, a query or a fragment"),
        ("s3.example.org", "is no address such as https://s3.example.org"),
    ],
)
def test_an_endpoint_of_s3_is_held_to_what_other_endpoints_are(address: str, says: str) -> None:
    keys = {"secrets": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]}
    (mistake,) = mistakes(TRAINING | keys | {"env": {"AWS_ENDPOINT_URL_S3": address}})
    assert says in mistake
    assert "secret@" not in mistake
    assert "env.AWS_ENDPOINT_URL_S3" in mistake
    for good in ("https://s3.example.org", "http://127.0.0.1:9000"):
        assert from_wire(TRAINING | keys | {"env": {"AWS_ENDPOINT_URL_S3": good}})
    assert from_wire(TRAINING | {"env": {"AWS_ENDPOINT_URL_S3": "http://s3.example.org"}}), "where nothing is signed"


@pytest.mark.parametrize("key", ["model", "chat_template"])
def test_nothing_but_data_is_read_from_s3(key: str) -> None:
    body = TRAINING | {"train": TRAINING["train"] | {key: "s3://bucket/a"}}
    assert any("is on S3, and data alone is read from there" in each for each in mistakes(body))


def test_an_address_is_a_bucket_and_a_key() -> None:
    assert split_s3_address("s3://bucket") == split_s3_address("s3://bucket/") == ("bucket", "")
    assert split_s3_address("s3://bucket/a/b.txt") == ("bucket", "a/b.txt")
    assert split_s3_address("s3://bucket/a/b/") == ("bucket", "a/b")
