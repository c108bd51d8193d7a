"""Scrapes of two real vLLM versions, older names, several engines, and text that is no scrape."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.embedded.engine.metrics import EngineMetrics as EmbeddedMetrics
from liverl.engines import ENGINES
from liverl.engines.adapter.metrics import MetricNames
from liverl.engines.vllm.metrics import METRICS
from liverl.model import EngineFacts
from liverl.observe.engine.metrics import EngineMeter, RateWindow, _wanted_lines, parse_engine_metrics
from liverl.observe.engine.store import EngineStore

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def parse(text: str) -> EngineFacts:
    return parse_engine_metrics(text, METRICS)


def test_vllm_0_24_on_an_h200() -> None:
    facts = parse((RECORDINGS / "h200/vllm_metrics.txt").read_text())
    assert facts == EngineFacts(
        running=0.0,
        waiting=0.0,
        kv_cache_usage=0.0,
        prompt_tokens_total=17.0,
        generation_tokens_total=5.0,
        prefix_cache_queries_total=17.0,
        prefix_cache_hits_total=0.0,
        request_success_total=1.0,
        policy_version=None,
        sleep_state="awake",
        preemptions_total=0.0,
        aborted_total=0.0,
        errors_total=0.0,
        tool_calls_total=0.0,
        no_tool_calls_total=0.0,
        answer_seconds_total=0.044317007064819336,
        answers_total=1.0,
        answer_tokens_total=5.0,
        kv_blocks=450874,
        kv_block_size=16,
        kv_tokens=7213984,
        max_concurrency=3522.453125,
    )


def test_vllm_0_32_on_a_cpu() -> None:
    facts = parse((RECORDINGS / "vllm_metrics.txt").read_text())
    assert facts.prompt_tokens_total == 378.0
    assert (facts.prefix_cache_queries_total, facts.prefix_cache_hits_total) == (378.0, 128.0)
    assert facts.sleep_state == "awake"
    assert (facts.tool_calls_total, facts.no_tool_calls_total) == (1.0, 2.0)
    assert (facts.kv_tokens, facts.max_concurrency, facts.kv_block_size) == (2097152, 1024.0, 128)
    assert (facts.request_success_total, facts.aborted_total) == (6.0, 0.0)
    assert facts.admission_rejections_total == 0.0
    assert facts.updates_in_flight is None and facts.actor_generate_total is None


def test_the_time_of_answers_is_that_of_the_last_minute() -> None:
    """simulated: ten quick answers of 20 tokens, then five slow ones"""
    store = EngineStore(ENGINES["vllm"].metrics)

    def scrape(at: float, answers: int, seconds: float) -> EngineFacts:
        text = (
            f"vllm:e2e_request_latency_seconds_count {answers}\n"
            f"vllm:e2e_request_latency_seconds_sum {seconds}\n"
            f"vllm:request_generation_tokens_sum {20 * answers}\n"
        )
        return store.scraped("r0", at, text)

    def times(facts: EngineFacts) -> tuple[float | None, float | None, float | None]:
        return facts.answers, facts.seconds_per_answer, facts.seconds_per_token

    assert times(scrape(0.0, 100, 50.0)) == (None, None, None), "how long ago these were is not known"
    assert times(scrape(30.0, 110, 51.0)) == pytest.approx((10.0, 0.1, 0.005))
    assert times(scrape(60.0, 115, 61.0)) == pytest.approx((15.0, 11 / 15, 11 / 300))
    assert times(scrape(90.0, 115, 61.0)) == pytest.approx((5.0, 2.0, 0.1))
    assert times(scrape(120.0, 115, 61.0)) == (None, None, None)


def test_the_embedded_engine_has_the_same_times() -> None:
    metrics = EmbeddedMetrics("policy")
    metrics.latency.observe(1.5)
    metrics.generation_sizes.observe(30.0)
    facts = parse(metrics.render())
    assert (facts.answers_total, facts.answer_seconds_total, facts.answer_tokens_total) == (1.0, 1.5, 30.0)


def test_two_engines_behind_one_server() -> None:
    """simulated: the samples of a second engine, and operations under way"""
    facts = parse(
        "\n".join(
            [
                'vllm:cache_config_info{engine="0",num_gpu_blocks="10",block_size="16",'
                'kv_cache_max_concurrency="4.5",kv_cache_size_tokens="None"} 1.0',
                'vllm:cache_config_info{engine="1",num_gpu_blocks="8",block_size="16",'
                'kv_cache_max_concurrency="3.5"} 1.0',
                'vllm:num_preemptions{engine="0"} 2',
                'vllm:num_preemptions{engine="1"} 3',
                'vllm:tool_call_parser_invocations_total{mode="streaming",outcome="tool_call"} 7',
                'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0',
                'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 1.0',
                "vllm:rl_weight_update_operations_in_flight 1",
                "vllm:sleep_mode_operations_in_flight 0",
                'liverl:actor_generate_total{x="a\\"} b"} 4',
            ]
        )
    )
    assert (facts.kv_blocks, facts.kv_block_size, facts.kv_tokens) == (18, 16, None)
    assert facts.max_concurrency == 3.5, "the engine that holds the least"
    assert facts.preemptions_total == 5.0 and facts.tool_calls_total == 7.0
    assert facts.sleep_state == "discard_all"
    assert (facts.updates_in_flight, facts.sleeps_in_flight, facts.actor_generate_total) == (1.0, 0.0, 4.0)


def test_older_names_and_several_engines() -> None:
    facts = parse(
        "\n".join(
            [
                'vllm:num_requests_running{engine="0",model_name="a} b"} 2.0 1795220165000',
                'vllm:num_requests_running{engine="1",model_name="a} b"} 3 # {trace_id="x"} 1',
                'vllm:gpu_cache_usage_perc{engine="0"} 0.25',
                'vllm:gpu_cache_usage_perc{engine="1"} 0.75',
                'vllm:generation_tokens{engine="0"} 10',
                'vllm:generation_tokens{engine="1"} NaN',
                'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0',
                'vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1.0',
                'vllm:engine_sleep_state{engine="1",sleep_state="awake"} 1.0',
                "liverl:policy_version 7",
                'liverl:policy_version{engine="1"} 6.0',
            ]
        )
    )
    assert facts.running == 5.0
    assert facts.kv_cache_usage == 0.5
    assert facts.generation_tokens_total == 10.0
    assert facts.policy_version == 6, "an engine that lags makes the whole replica lag"
    assert facts.sleep_state == "weights_offloaded"
    assert facts.waiting is None


def test_a_counter_under_both_names_counts_once() -> None:
    facts = parse("vllm:generation_tokens_total 5\nvllm:generation_tokens 5\n")
    assert facts.generation_tokens_total == 5.0


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    parse(text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["vllm:num_requests_running", "liverl:policy_version", "vllm:engine_sleep_state"]
            ),
            st.text(alphabet='{}="\\ #,ab1', max_size=20),
            st.sampled_from(["1", "nan", "-inf", "1e999", "", "x", "1_0", "٣"]),
        )
    )
)
def test_broken_samples_are_survived(samples: list[tuple[str, str, str]]) -> None:
    parse("\n".join(f"{name}{labels} {value}" for name, labels, value in samples))


def test_rate_over_the_window_forgets_what_is_older() -> None:
    window = RateWindow(10.0)
    assert window.rate is None
    for second in range(20):
        window.add(second, 100.0 * second)
    for second in range(20, 31):
        window.add(second, 1900.0)
    assert window.rate == 0.0


def test_a_restarted_counter_is_no_negative_rate() -> None:
    window = RateWindow(60.0)
    for at, value in ((0.0, 1000.0), (1.0, 1100.0), (2.0, 50.0), (3.0, 150.0)):
        window.add(at, value)
    assert window.growth == 100 + 50 + 100


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e9)), max_size=50), st.floats(0.1, 100))
def test_rates_are_never_negative(points: list[tuple[float, float]], seconds: float) -> None:
    window = RateWindow(seconds)
    for at, value in points:
        window.add(at, value)
    assert window.rate is None or window.rate >= 0


def test_the_meter_gives_rates_of_the_window() -> None:
    meter = EngineMeter(10.0)

    def facts(tokens: float, queries: float, hits: float) -> EngineFacts:
        return EngineFacts(
            generation_tokens_total=tokens, prefix_cache_queries_total=queries, prefix_cache_hits_total=hits
        )

    assert meter.update(0.0, facts(0, 100, 0)).tokens_per_s is None
    rates = meter.update(2.0, facts(300, 200, 75))
    assert rates.tokens_per_s == pytest.approx(150.0)
    assert rates.prefix_cache_hit_rate == pytest.approx(0.75)
    assert rates.generation_tokens_total == 300.0, "the facts come with their rates"


def test_the_store_keeps_each_replicas_last_answer() -> None:
    store = EngineStore(ENGINES["vllm"].metrics)
    assert store.get("r0") is None and store.known("r0") == EngineFacts()
    store.scraped("r0", 10.0, "vllm:generation_tokens_total 100")
    store.scraped("r1", 10.0, "vllm:generation_tokens_total 900")
    before = store.all()
    facts = store.scraped("r0", 12.0, "vllm:generation_tokens_total 160")
    assert store.get("r0") is facts is store.known("r0") and facts.tokens_per_s == 30.0
    assert before["r0"].generation_tokens_total == 100.0, "what was read before does not change"
    store.forget("r0")
    assert store.get("r0") is None and store.known("r1").generation_tokens_total == 900.0
    # the next process counts from 0 on: no rate is made of two processes
    assert store.scraped("r0", 14.0, "vllm:generation_tokens_total 40").tokens_per_s is None


def test_figures_of_a_replica_that_does_not_answer_any_more_are_not_those_of_now() -> None:
    """A replica whose process was stopped kept 235 tok/s for as long as it stood still."""
    store = EngineStore(ENGINES["vllm"].metrics)
    for at, tokens in ((10.0, 100), (12.0, 160)):
        facts = store.scraped("r0", at, f"vllm:generation_tokens_total {tokens}\nvllm:num_requests_running 3")
    assert facts.tokens_per_s == 30.0 and facts.running == 3.0
    assert store.current("r0", 22.0, 2.0) is facts, "an engine may be busy for a while"
    stale = store.current("r0", 22.5, 2.0)
    assert (stale.tokens_per_s, stale.running, stale.generation_tokens_total) == (None, None, 160.0)
    assert store.current("r0", 22.5, 5.0) is facts, "it is looked at every 5 s"
    assert store.known("r0") is facts, "what it was is still known"
    assert store.scraped("r0", 30.0, "vllm:num_requests_running 4") == store.current("r0", 30.5, 2.0)
    assert store.current("r1", 99.0, 2.0) == EngineFacts()


def _one_by_one(text: str, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """Name and rest of the samples of wanted metrics, line by line."""
    found = []
    for line in text.split("\n"):
        end = re.search(r"[{\s]", line)
        if end is not None and line[: end.start()] in wanted:
            found.append((line[: end.start()], line[end.start() :]))
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lines_of_wanted_metrics_are_found_whatever_stands_around_them(engine: str) -> None:
    wanted, chosen = ENGINES[engine].metrics.wanted, random.Random(1)
    names, seen = sorted(wanted), 0
    before = ("", "", "", "", " ", "#", "\t", "# TYPE ")
    after = ('{a="b"} 1', " 1.0", "\t2", "", "\n", "{", "\r", "\xa03", '{} 1 # {x="y"} 1')
    for _ in range(2000):
        text = chosen.choice(("", "\n"))
        for _ in range(chosen.randrange(6)):
            name = chosen.choice(names)
            if chosen.random() < 0.4:
                name = name[: chosen.randrange(len(name) + 1)] + chosen.choice(("", "_bucket", "x", "_total"))
            text += chosen.choice(before) + name + chosen.choice(after) + chosen.choice(("\n", ""))
        expected = _one_by_one(text, wanted)
        assert _wanted_lines(wanted).findall(f"\n{text}") == expected, repr(text)
        seen += len(expected)
    assert seen > 500


def test_an_engine_without_metrics_has_no_facts() -> None:
    assert parse_engine_metrics("a 1\n\n b{} 2\n", MetricNames(values={})) == EngineFacts()


def test_a_counter_that_is_gone_has_no_rate() -> None:
    """Another server answers on the port, or the engine no longer tells."""
    store, lines = (
        EngineStore(ENGINES["vllm"].metrics),
        "vllm:generation_tokens_total {}\n{}_count {}\n{}_sum {}\n",
    )
    seconds = "vllm:e2e_request_latency_seconds"

    def rates(at: float, text: str) -> tuple[float | None, ...]:
        facts = store.scraped("r0", at, text)
        return facts.tokens_per_s, facts.answers, facts.seconds_per_answer

    for at in (1, 2):
        told = rates(at, lines.format(100 * at, seconds, at, seconds, 3 * at))
    assert told == (100.0, 1.0, 3.0)
    assert rates(11.0, "other 1\n") == told, "it may be missing once"
    assert rates(12.0, "other 1\n") == (None, 1.0, 3.0)
    assert rates(62.0, "other 1\n") == (None, None, None)
    assert rates(63.0, "vllm:generation_tokens_total 900")[0] is None
    assert rates(64.0, "vllm:generation_tokens_total 950")[0] == 50.0
