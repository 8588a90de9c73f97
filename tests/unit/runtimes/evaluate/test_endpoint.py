"""A model behind an address: which question each request is, what is taken as its answer, and what is refused first."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import ENDPOINT_KEY_PREFIX
from runtimes.evaluate import endpoint
from runtimes.evaluate.answers import ANSWERS_FILE, Answers
from runtimes.evaluate.config import CONCURRENCY_MAX, Endpoint, check_config
from runtimes.evaluate.endpoint import TOKEN_CHARACTERS_MAX, EndpointModel
from runtimes.evaluate.request import EMBED, GENERATE, LIKELIHOOD, ROLLING, TEXT_CHARACTERS_MAX, Request
from runtimes.evaluate.tasks import TOKENS_MAX
from runtimes.train.errors import BadConfig, BadData
from tests.fakes import openai_server
from tests.fakes.openai_server import Service, chance, fails, pieces, sends, serving, trickles, write

KEY = "sk-0123456789abcdef"
SCORE = Request(LIKELIHOOD, ("context", " continuation"))
WHOLE = Request(ROLLING, ("a text",))
WRITE = Request(GENERATE, ("prompt", (), 3))
TEXT = "The capital of France is Paris"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv(ENDPOINT_KEY_PREFIX + "MY_KEY", KEY)
    with serving(key=KEY) as found:
        yield found


def model(service: Service, **changes: Any) -> EndpointModel:
    settings = {"endpoint": service.address, "model": "theirs", "key": "MY_KEY"} | changes
    return EndpointModel(Endpoint(**settings), stop=threading.Event())


def check(asked: EndpointModel, *requests: Request, seconds: float = 60.0) -> None:
    asked.check(requests, until=time.monotonic() + seconds)


def scores(text: str, *, begin: int) -> list[tuple[float, float]]:
    """Of each token from the n-th on, as the service draws them."""
    tokens = pieces(text)
    return [chance("".join(tokens[:at]), tokens[at]) for at in range(begin, len(tokens))]


def test_a_continuation_is_scored_by_the_endpoints_own_tokens(service: Service) -> None:
    asked = model(service)
    wanted = scores(TEXT, begin=5)
    expected = [round(math.fsum(own for own, _ in wanted), 3), all(own == best for own, best in wanted)]
    assert asked.answer(Request(LIKELIHOOD, ("The capital of France is", " Paris"))) == expected
    # As the harness splits them, a blank at the context's end belongs to the continuation.
    assert asked.answer(Request(LIKELIHOOD, ("The capital of France is ", "Paris"))) == expected
    assert [each["prompt"] for each in service.asked] == [TEXT] * 2
    assert {each["path"] for each in service.asked} == {"/v1/completions"}
    assert asked.answer(Request(LIKELIHOOD, (TEXT, ""))) == [0.0, True]
    assert len(service.asked) == 2, "nothing to ask"


def test_a_whole_texts_first_token_counts_only_behind_a_beginning(service: Service) -> None:
    request = Request(ROLLING, (TEXT,))
    assert model(service).answer(request) == round(math.fsum(own for own, _ in scores(TEXT, begin=1)), 3)
    service.has_beginning = True
    assert model(service).answer(request) == round(math.fsum(own for own, _ in scores(TEXT, begin=0)), 3)
    assert model(service).answer(Request(ROLLING, ("",))) == 0.0


def test_a_text_of_one_token_without_a_beginning_is_left_out(service: Service) -> None:
    assert model(service).answer(Request(ROLLING, ("Paris",))) == 0.0


def test_a_first_token_that_has_no_score_is_no_answer(service: Service) -> None:
    with pytest.raises(BadData, match="no log-probability of a text's first token"):
        model(service).answer(Request(LIKELIHOOD, ("", "Paris")))


def test_a_text_is_cut_at_every_stop_and_four_of_them_are_sent(service: Service) -> None:
    whole = write("Q", 12, ())
    stops = ("-", "+", "*", "/", whole.split()[3])
    assert model(service).answer(Request(GENERATE, ("Q", stops, 12))) == whole.split(stops[-1])[0]
    assert model(service).answer(Request(GENERATE, ("Q", (), 2))) == write("Q", 2, ())
    first, second = service.asked
    assert (first["stop"], first["temperature"], first["max_tokens"]) == (list(stops[:4]), 0, 12)
    assert "stop" not in second


def test_a_chat_is_asked_with_one_message_of_a_user(service: Service) -> None:
    asked = model(service, chat=True)
    assert asked.answer(Request(GENERATE, ("Q", (), 3))) == write("Q", 3, ())
    assert service.asked[0]["path"] == "/v1/chat/completions"
    assert service.asked[0]["messages"] == [{"role": "user", "content": "Q"}]
    service.faults.append(sends({"choices": [{"message": {"content": None}}]}))
    assert asked.answer(Request(GENERATE, ("Q", (), 3))) == ""
    bad_ones: list[dict[str, Any]] = [{}, {"message": None}, {"message": {}}, {"message": {"content": ["text"]}}]
    for bad in bad_ones:
        service.faults.append(sends({"choices": [bad]}))
        with pytest.raises(BadData, match="without a text"):
            asked.answer(Request(GENERATE, ("Q", (), 3)))


def test_the_key_stands_in_no_answer_and_no_name(service: Service) -> None:
    asked = model(service)
    service.faults.append(sends({"choices": [{"text": f"your key is {KEY}"}]}))
    assert asked.answer(Request(GENERATE, ("Q", (), 3))) == "your key is [key]"
    assert KEY not in asked.name + asked.digest


@pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": []}, {"choices": ["text"]}])
def test_an_answer_without_a_choice_is_refused(service: Service, body: Any) -> None:
    service.faults.append(sends(body))
    with pytest.raises(BadData, match="returns no choice"):
        model(service).answer(Request(GENERATE, ("Q", (), 3)))


def test_a_text_is_cut_where_the_tokens_end_that_it_may_have(service: Service) -> None:
    service.faults.append(sends({"choices": [{"text": "x" * 200_000}]}))
    assert model(service).answer(WRITE) == "x" * 3 * TOKEN_CHARACTERS_MAX
    assert TOKENS_MAX * TOKEN_CHARACTERS_MAX <= TEXT_CHARACTERS_MAX


def test_every_answer_that_is_taken_can_be_read_back(service: Service, tmp_path: Path) -> None:
    """A character beyond the BMP is sent as 4 bytes and kept as 12."""
    asked, request = model(service), Request(GENERATE, ("Q", (), TOKENS_MAX))

    def sends_smiles(count: int) -> None:
        service.faults.append(sends(json.dumps({"choices": [{"text": "😀" * count}]}, ensure_ascii=False).encode()))

    sends_smiles(100_000)
    with pytest.raises(BadData, match="beyond all bounds"):
        asked.answer(request)
    sends_smiles(87_000)
    digest = request.digest(asked.digest)
    answers = Answers(tmp_path / ANSWERS_FILE, {digest: GENERATE})
    answers.add(digest, asked.answer(request))
    checkpoint = answers.save(tmp_path / "checkpoint", keep=1, world_size=1)
    answers.close()
    for again in (
        Answers(tmp_path / ANSWERS_FILE, {digest: GENERATE}),
        Answers(tmp_path / "other.jsonl", {digest: GENERATE}, resume_from=checkpoint),
    ):
        assert again[digest] == "😀" * 87_000
        again.close()


def test_half_a_character_is_replaced_as_no_file_can_hold_it(service: Service) -> None:
    service.faults.append(sends(b'{"choices": [{"text": "a\\ud800b \\ud83d\\ude00"}]}'))
    assert model(service).answer(WRITE) == "a?b 😀"


def test_scores_have_as_many_bytes_as_their_text_needs(service: Service) -> None:
    service.faults.append(sends(b" " * 200_000))
    with pytest.raises(BadData, match=r"more than \d+ bytes"):
        model(service).answer(SCORE)
    assert model(service).answer(Request(LIKELIHOOD, ("One", " 7" * 2000)))[0] < 0


def test_whatever_an_answer_makes_our_code_raise_is_said_of_the_endpoint(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(endpoint, "read_scores", fail)
    named = "'theirs at 127.*answers with what cannot be read: ZeroDivisionError"
    with pytest.raises(BadData, match=named):
        model(service).answer(SCORE)
    with pytest.raises(BadData, match=named):
        check(model(service), SCORE)


def test_an_endpoint_has_no_place_on_the_map(service: Service) -> None:
    with pytest.raises(BadData, match="has no answer to embed"):
        model(service).answer(Request(EMBED, ("text",)))


def test_an_endpoint_that_can_all_shows_it_with_two_tiny_requests(service: Service) -> None:
    check(model(service), SCORE, WHOLE, WRITE)
    assert [each["prompt"] for each in service.asked] == ["One two"] * 2
    check(model(service))
    assert len(service.asked) == 2


def test_log_likelihoods_that_an_endpoint_does_not_give_are_refused_first(service: Service) -> None:
    service.has_echo = False
    with pytest.raises(BadData, match=r"multiple_choice.*need log-likelihoods.*returns no logprobs; ask it tasks of"):
        check(model(service), SCORE)
    check(model(service), WRITE)
    with pytest.raises(BadData, match="which no chat gives"):
        check(model(service, chat=True), WHOLE, WRITE)
    service.faults.append(fails(400, "echo is not supported"))
    with pytest.raises(BadData, match=r"status 400\): echo is not supported"):
        check(model(service), SCORE)


def test_continuations_without_a_context_need_an_endpoint_that_begins_texts(service: Service) -> None:
    bare = Request(LIKELIHOOD, ("", " continuation"))
    check(model(service), SCORE, WHOLE)
    with pytest.raises(BadData, match="returns no log-probability of a text's first token"):
        check(model(service), SCORE, bare)
    service.has_beginning = True
    check(model(service), SCORE, bare)


def test_an_endpoint_that_stalls_is_not_waited_for_beyond_the_check(service: Service) -> None:
    service.faults.extend([trickles] * 10)
    with pytest.raises(BadData, match="gave no answer within"):
        check(model(service), WRITE, seconds=0.5)
    with pytest.raises(BadData, match="gave no answer within"):
        check(model(service), WRITE, seconds=-1.0)


def test_a_wrong_key_or_model_or_way_of_asking_is_found_first(service: Service, monkeypatch: Any) -> None:
    with pytest.raises(BadData, match="The model other does not exist"):
        check(model(service, model="other"), WRITE)
    service.has_completions = False
    with pytest.raises(BadData, match=r"Not found\.; with chat: true, /chat/completions is asked"):
        check(model(service), WRITE)
    check(model(service, chat=True), WRITE)
    monkeypatch.setenv(ENDPOINT_KEY_PREFIX + "MY_KEY", "sk-another-key")
    with pytest.raises(BadData, match="refuses the key"):
        check(model(service), SCORE)
    monkeypatch.delenv(ENDPOINT_KEY_PREFIX + "MY_KEY")
    with pytest.raises(BadData, match="there is no secret MY_KEY"):
        model(service)


def test_answers_are_kept_by_address_name_and_way_of_asking_and_not_by_key(service: Service) -> None:
    same = [model(service), model(service, concurrency=9), model(service, key=None)]
    assert len({each.digest for each in same}) == 1
    others = [model(service, model="other"), model(service, chat=True), model(service, endpoint="https://h/v1")]
    assert len({each.digest for each in [*same, *others]}) == 4


def test_threads_ask_at_once(service: Service) -> None:
    service.seconds = 0.3
    asked = model(service)
    with ThreadPoolExecutor(asked.concurrency) as pool:
        found = list(pool.map(asked.answer, [Request(GENERATE, (f"Q{n}", (), 3)) for n in range(8)]))
    assert found == [write(f"Q{n}", 3, ()) for n in range(8)]
    assert 1 < service.at_once_max <= asked.concurrency == 4


CONFIG: dict[str, Any] = {"models": ["base"], "tasks": "tasks"}
GOOD = {"endpoint": "https://h.example/v1/", "model": "theirs"}


def test_models_of_a_configuration_are_names_and_endpoints() -> None:
    theirs = Endpoint("https://h.example/v1", "theirs")
    assert check_config(CONFIG | {"models": ["base", GOOD]}).models == ("base", theirs)
    assert check_config(CONFIG | {"models": GOOD}).models == (theirs,)
    assert Endpoint("https://h.example/v1", "theirs", chat=True).name == "theirs at h.example/v1 (chat)"


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([{"model": "theirs"}], "endpoint is missing"),
        ([GOOD | {"endpoint": "http://h.example/v1", "key": "K"}], "the key would cross the network"),
        ([GOOD | {"endpoint": "file:///etc/passwd"}], "is no address such as"),
        ([GOOD | {"key": "sk-not-a-name"}], "must be the name of a secret"),
        ([GOOD | {"chat": 1}], "must be true or false"),
        ([GOOD | {"concurrency": CONCURRENCY_MAX + 1}], "must be a whole number"),
        ([GOOD | {"model": "a\nb"}], "plain characters"),
        ([GOOD | {"tries": 3}], "tries"),
        ([GOOD, GOOD | {"endpoint": "http://h.example/v1"}], "must name each only once"),
        (["theirs at h.example/v1", GOOD], "must name each only once"),
        ([7], "texts of 1 to"),
        ([], "1 to 8 models"),
    ],
)
def test_what_is_wrong_with_a_model_of_a_configuration_is_named(models: Any, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        check_config(CONFIG | {"models": models})


def test_the_service_of_these_tests_has_likeliest_tokens_and_others() -> None:
    drawn = [chance("", word) for word in openai_server.WORDS]
    assert {own == best for own, best in drawn} == {True, False}
