"""Metrics of any engine are summed by name; what is no metric is passed over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtimes.serve.engines.vllm import VllmEngine
from runtimes.serve.metrics import sum_metrics

VLLM = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="qwen 2 } x"} 120.0
vllm:prompt_tokens_total{engine="1",model_name="qwen"} 3.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 1.5e+06
vllm:num_requests_waiting{engine="0",model_name="qwen"} 2.0
not a metric
"""


def test_samples_of_one_name_are_added_up() -> None:
    sums, names = sum_metrics(VLLM), VllmEngine.counters
    assert (sums[names.input_tokens], sums[names.output_tokens], sums[names.queued]) == (123, 1_500_000, 2)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    sum_metrics(text)
