"""vLLM's names on `/metrics` for what both servers count.

Dashboards, alerts, autoscalers and routers made for vLLM go on working. Names, labels and meanings are those
of vLLM 0.32 (`vllm/v1/metrics/loggers.py`); what Stretto does not count is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from stretto.roles.gateway.exposition import cumulative, summed
from stretto.roles.metrics import offsets
from stretto.shm.board import Board


class Alias(NamedTuple):
    """One of vLLM's metrics, `vllm:` + `name`, and the metric of a role that it is."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    role: str
    metric: str


ALIASES = (
    Alias("gauge", "num_requests_running", "scheduler", "requests_running"),
    Alias("gauge", "num_requests_waiting", "scheduler", "requests_waiting"),
    Alias("counter", "num_preemptions", "scheduler", "retractions_total"),
    Alias("counter", "prompt_tokens", "scheduler", "prompt_tokens_total"),
    Alias("counter", "prompt_tokens_cached", "scheduler", "cached_tokens_total"),
    Alias("counter", "prefix_cache_queries", "scheduler", "prompt_tokens_total"),
    Alias("counter", "prefix_cache_hits", "scheduler", "cached_tokens_total"),
    Alias("counter", "generation_tokens", "scheduler", "generated_tokens_total"),
    Alias("histogram", "time_to_first_token_seconds", "gateway", "time_to_first_token_seconds"),
    Alias("histogram", "inter_token_latency_seconds", "gateway", "inter_token_latency_seconds"),
    Alias("histogram", "e2e_request_latency_seconds", "gateway", "request_latency_seconds"),
    Alias("histogram", "request_prompt_tokens", "gateway", "request_prompt_tokens"),
    Alias("histogram", "request_generation_tokens", "gateway", "request_generated_tokens"),
)
_LABELS = ("model_name", "engine")


class VllmCollector(Collector):
    """Reads the board anew for every scrape; sums over the processes of a role, as there is one engine."""

    def __init__(self, board: Board, model: str, page_size: int) -> None:
        self._board, self._page_size = board, page_size
        self._labels = (model, "0")

    def collect(self) -> Iterator[Family]:
        """All metric families."""
        for alias in ALIASES:
            yield self._family(alias)
        yield from (self._usage(), self._successes(), self._cache())

    def _family(self, alias: Alias) -> Family:
        metric = offsets(alias.role)[alias.metric][1]
        cells = summed(self._board, alias.role, alias.metric)
        name, family = f"vllm:{alias.name}", {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        if alias.kind == "histogram":
            histogram = HistogramMetricFamily(name, metric.help, labels=_LABELS)
            histogram.add_metric(self._labels, cumulative(metric, cells), sum_value=cells[-1])
            return histogram
        single = family[alias.kind](name, metric.help, labels=_LABELS)
        single.add_metric(self._labels, cells[0])
        return single

    def _usage(self) -> Family:
        """What sequences use; pages that the prefix cache alone holds count as free, as in vLLM."""
        (owned,), (pages,) = (
            summed(self._board, "scheduler", name) for name in ("kv_pages_owned", "kv_pages")
        )
        family = GaugeMetricFamily("vllm:kv_cache_usage_perc", "KV pages in use; 1 is all.", labels=_LABELS)
        family.add_metric(self._labels, owned / pages if pages else 0.0)
        return family

    def _successes(self) -> Family:
        finished, cut, failed, left = (
            summed(self._board, "gateway", f"requests_{name}_total")[0]
            for name in ("finished", "cut", "failed", "cancelled")
        )
        ends = {"stop": finished - cut, "length": cut, "abort": left, "error": failed}
        family = CounterMetricFamily(
            "vllm:request_success", "Requests that ended.", labels=(*_LABELS, "finished_reason")
        )
        for reason, count in ends.items():
            family.add_metric((*self._labels, reason), count)
        return family

    def _cache(self) -> Family:
        (pages,) = summed(self._board, "scheduler", "kv_pages")
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "The KV pool.", labels=("block_size", "num_gpu_blocks", "engine")
        )
        family.add_metric((str(self._page_size), f"{pages:.0f}", self._labels[1]), 1)
        return family
