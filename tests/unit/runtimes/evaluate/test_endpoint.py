"""A model behind an address: which question each request is, what is taken as its answer, and what is refused first."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runtimes.contract import ENDPOINT_KEY_PREFIX
from runtimes.evaluate.config import CONCURRENCY_MAX, Endpoint, check_config
from runtimes.evaluate.endpoint import EndpointModel, know_endpoint
from runtimes.evaluate.request import EMBED, GENERATE, LIKELIHOOD, ROLLING, Request
from runtimes.train.errors import BadConfig, BadData
from tests.fakes import openai_server
from tests.fakes.openai_server import Service, chance, fails, pieces, sends, serving, write

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
    return know_endpoint(Endpoint(**settings)).load(stop=threading.Event())


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
    for bad in ({}, {"message": None}, {"message": {}}, {"message": {"content": ["text"]}}):
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


def test_a_text_beyond_all_bounds_is_no_answer(service: Service) -> None:
    service.faults.append(sends({"choices": [{"text": "x" * 200_000}]}))
    with pytest.raises(BadData, match="beyond all bounds"):
        model(service).answer(Request(GENERATE, ("Q", (), 3)))


def test_an_endpoint_has_no_place_on_the_map(service: Service) -> None:
    with pytest.raises(BadData, match="has no answer to embed"):
        model(service).answer(Request(EMBED, ("text",)))


def test_an_endpoint_that_can_all_shows_it_with_two_tiny_requests(service: Service) -> None:
    model(service).check([SCORE, WHOLE, WRITE])
    assert [each["prompt"] for each in service.asked] == ["One two"] * 2
    model(service).check([])
    assert len(service.asked) == 2


def test_log_likelihoods_that_an_endpoint_does_not_give_are_refused_first(service: Service) -> None:
    service.has_echo = False
    with pytest.raises(BadData, match=r"multiple_choice.*need log-likelihoods.*returns no logprobs; ask it tasks of"):
        model(service).check([SCORE])
    model(service).check([WRITE])
    with pytest.raises(BadData, match="which no chat gives"):
        model(service, chat=True).check([WHOLE, WRITE])
    service.faults.append(fails(400, "echo is not supported"))
    with pytest.raises(BadData, match=r"status 400\): echo is not supported"):
        model(service).check([SCORE])


def test_continuations_without_a_context_need_an_endpoint_that_begins_texts(service: Service) -> None:
    bare = Request(LIKELIHOOD, ("", " continuation"))
    model(service).check([SCORE, WHOLE])
    with pytest.raises(BadData, match="returns no log-probability of a text's first token"):
        model(service).check([SCORE, bare])
    service.has_beginning = True
    model(service).check([SCORE, bare])


def test_a_wrong_key_or_model_or_way_of_asking_is_found_first(service: Service, monkeypatch: Any) -> None:
    with pytest.raises(BadData, match="The model other does not exist"):
        model(service, model="other").check([WRITE])
    service.has_completions = False
    with pytest.raises(BadData, match=r"Not found\.; with chat: true, /chat/completions is asked"):
        model(service).check([WRITE])
    model(service, chat=True).check([WRITE])
    monkeypatch.setenv(ENDPOINT_KEY_PREFIX + "MY_KEY", "sk-another-key")
    with pytest.raises(BadData, match="refuses the key"):
        model(service).check([SCORE])
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
