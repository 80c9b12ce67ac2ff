"""OpenTelemetry hears what operations take, in the trace of whoever asks, and nothing that was said."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api.client import Client
from clocks import FakeClock
from holdfast import Holdfast, InvalidFilterError
from holdfast import telemetry as telemetry_module
from holdfast.client import connect
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import build_api, build_service
from holdfast.settings import read_settings

SAID = "Ann keeps the spare key under the blue pot."
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WHO = {"user_id": "ann-the-user", "agent_id": "helper"}


class Heard:
    """What OpenTelemetry was told."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, start: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name.startswith(start)]
        return found

    def all_text(self) -> str:
        return " ".join(span.to_json() for span in self.spans)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    made = Heard()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.tracers)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", made.meters)
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def open_engine(home: Path, **more: str) -> Holdfast:
    settings = read_settings({"HOLDFAST_OTEL": "yes", **more}, home=home)
    return Holdfast(settings, clock=FakeClock())


def serve(holdfast: Holdfast) -> Client:
    api = build_api(holdfast, keys_required=False)
    return Client(build_service(api, holdfast, limits=Limits(), keys_required=False))


def test_verbs_are_spans_and_a_histogram_without_anything_that_was_said(heard: Heard, tmp_path: Path) -> None:
    with open_engine(tmp_path / "home") as holdfast:
        memory = holdfast.manager("ann-the-user", "helper")
        memory.add(SAID)
        memory.retrieve("Where is the spare key?")
    recall = heard.named("retrieval long_term")
    assert recall.attributes is not None
    assert recall.attributes["gen_ai.operation.name"] == "retrieval"
    assert recall.attributes["holdfast.memory_type"] == "long_term"
    assert heard.named("add long_term").end_time is not None
    text = heard.all_text()
    assert "spare key" not in text
    assert "ann-the-user" not in text
    data: Any = heard.reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "gen_ai.client.operation.duration"
    assert sum(point.count for point in metric.data.data_points) == 2


def test_a_request_goes_on_with_the_trace_of_whoever_asks(heard: Heard, tmp_path: Path) -> None:
    with open_engine(tmp_path / "home") as holdfast, serve(holdfast) as client:
        headers = {"traceparent": PARENT, "host": "localhost"}
        assert client.post("/v1/memories", {**WHO, "content": SAID}, headers=headers).status_code == 201
        assert client.post("/v1/recall", {**WHO, "query": "spare key", "top_k": 3}, headers=headers).status_code == 200
    request, operation, verb = (
        heard.named("POST /v1/recall"),
        heard.named("retrieval recall"),
        heard.named("retrieval long"),
    )
    assert request.attributes is not None
    assert operation.attributes is not None
    assert request.attributes["http.response.status_code"] == 200
    assert operation.attributes["gen_ai.request.top_k"] == 3
    assert operation.attributes["gen_ai.agent.id"] == "helper"
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert operation.parent == request.context
    assert verb.parent == operation.context
    assert {f"{span.context.trace_id:032x}" for span in heard.spans if span.context} == {PARENT.split("-")[1]}
    assert "spare key" not in heard.all_text()
    assert "ann-the-user" not in heard.all_text()


def test_content_is_told_where_it_is_asked_for(heard: Heard, tmp_path: Path) -> None:
    with open_engine(tmp_path / "home", HOLDFAST_OTEL_CONTENT="yes") as holdfast, serve(holdfast) as client:
        client.post("/v1/recall", {**WHO, "query": "spare key"}, headers={"host": "localhost"})
    operation = heard.named("retrieval recall")
    assert operation.attributes is not None
    assert operation.attributes["gen_ai.retrieval.query.text"] == "spare key"
    assert operation.attributes["holdfast.user_id"] == "ann-the-user"


def test_an_error_is_told_by_its_code_and_nothing_of_its_message(heard: Heard, tmp_path: Path) -> None:
    with open_engine(tmp_path / "home") as holdfast, serve(holdfast) as client:
        body = {**WHO, "query": "x", "filters": {"spare key": {"nonsense": 1}}}
        answer = client.post("/v1/recall", body, headers={"host": "localhost"})
        assert answer.json()["code"] == InvalidFilterError.code
    operation = heard.named("retrieval recall")
    assert operation.attributes is not None
    assert operation.attributes["error.type"] == InvalidFilterError.code
    assert "spare key" not in heard.all_text()


def test_the_client_passes_its_trace_on(heard: Heard) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"result": 1})

    with connect("http://service", transport=httpx.MockTransport(answer)) as service:
        memory = service.manager("ann", "helper")
        memory.count_memories()
        with trace.get_tracer("program").start_as_current_span("task") as span:
            memory.count_memories()
    assert "traceparent" not in seen[0].headers
    assert f"{span.get_span_context().trace_id:032x}" in seen[1].headers["traceparent"]


def test_metrics_are_those_that_prometheus_reads(heard: Heard, tmp_path: Path) -> None:
    with open_engine(tmp_path / "home") as holdfast:
        holdfast.manager("ann", "helper").add(SAID)
        assert holdfast.telemetry is not None
        holdfast.telemetry.observe(holdfast.collector)
        data: Any = heard.reader.get_metrics_data()
    found = {one.name: one for scope in data.resource_metrics[0].scope_metrics for one in scope.metrics}
    (count,) = [
        point for point in found["memory_count"].data.data_points if point.attributes["memory_type"] == "long_term"
    ]
    assert count.value == 1
    assert found["holdfast_erasure_objective_seconds"].data.data_points[0].value == 24 * 3_600


def test_names_are_those_of_the_conventions_that_are_installed() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    ours = telemetry_module
    assert ours.OPERATION == names.GEN_AI_OPERATION_NAME
    assert (ours.AGENT, ours.CONVERSATION) == (names.GEN_AI_AGENT_ID, names.GEN_AI_CONVERSATION_ID)
    assert (ours.QUERY, ours.TOP_K) == (names.GEN_AI_RETRIEVAL_QUERY_TEXT, names.GEN_AI_REQUEST_TOP_K)
    assert ours.PROVIDER == names.GEN_AI_PROVIDER_NAME
    assert gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION == ours.DURATION
    assert not [name for name in vars(names) if "MEMORY" in name], "the conventions have names for memory now: use them"


def test_nothing_is_loaded_or_asked_where_it_is_not_configured(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom holdfast import Holdfast\n"
        f"with Holdfast.open(home={str(tmp_path / 'home')!r}) as holdfast:\n"
        "    holdfast.manager('ann', 'helper').add('tea')\n"
        "    assert holdfast.telemetry is None and holdfast.latencies.observe is None\n"
        "import json; print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_spans_and_metrics_are_sent_to_where_opentelemetrys_variables_say() -> None:
    received: dict[str, bytes] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received[self.path] = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_said: object) -> None:
            """Nothing is printed."""

    program = (
        "from holdfast.telemetry import Telemetry, export\nfrom opentelemetry import trace\n"
        "export()\nfirst = trace.get_tracer_provider()\nexport()\nassert trace.get_tracer_provider() is first\n"
        "Telemetry(content=False).record('add', 'long_term', 1.5)\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1"}
        subprocess.run([sys.executable, "-c", program], env=environ, check=True)
        server.shutdown()
    assert b"add long_term" in received["/v1/traces"]
    assert b"service.name" in received["/v1/traces"]
    assert telemetry_module.DURATION.encode() in received["/v1/metrics"]
