"""Traces and metrics for OpenTelemetry, where the settings ask for them (``HOLDFAST_OTEL``).

Names are those of the conventions for generative AI where they have one (a recall is a ``retrieval``), and begin with
``holdfast.`` where they have none. Nothing that was said, asked or remembered is in them, and no id of a user or a
session, unless ``HOLDFAST_OTEL_CONTENT`` asks for it. A program that has set up OpenTelemetry itself gets the spans
there; ``export`` sets it up for a service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.installation import VERSION, missing_extra

#: What the conventions have a name for; a test holds these against the package that is installed.
OPERATION, AGENT, QUERY = "gen_ai.operation.name", "gen_ai.agent.id", "gen_ai.retrieval.query.text"
PROVIDER, TOP_K, CONVERSATION = "gen_ai.provider.name", "gen_ai.request.top_k", "gen_ai.conversation.id"
DURATION, RETRIEVAL = "gen_ai.client.operation.duration", "retrieval"
ERROR: Final = "error.type"
#: What finds memories; all other operations go by their own names.
_RETRIEVALS: Final = frozenset({"retrieve", "context", "recall", "read_context", "search_episodes"})
#: The bounds that the conventions advise, in seconds; ours are faster.
_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Telemetry:
    """Tells OpenTelemetry what an engine does. Safe for many threads."""

    def __init__(self, *, content: bool) -> None:
        try:
            from opentelemetry import metrics, propagate, trace  # noqa: PLC0415 - only where it is asked for
        except ImportError:
            raise missing_extra("OpenTelemetry", "otel") from None
        self._content, self._trace, self._propagate = content, trace, propagate
        self._tracer, self._meter = trace.get_tracer("holdfast", VERSION), metrics.get_meter("holdfast", VERSION)
        self._seconds = self._meter.create_histogram(
            DURATION, "s", "How long operations took.", explicit_bucket_boundaries_advisory=_BOUNDS
        )

    def record(self, verb: str, kind: str, ms: float) -> None:
        """A verb of a memory has ended that took so long: a span, and a value of the histogram."""
        end, known = time.time_ns(), _name(verb)
        attributes = {OPERATION: known, PROVIDER: "holdfast", "holdfast.verb": verb, "holdfast.memory_type": kind}
        span = self._tracer.start_span(f"{known} {kind}", start_time=end - int(ms * 1e6), attributes=attributes)
        span.end(end)
        self._seconds.record(ms / 1_000, attributes)

    @contextmanager
    def operation(self, name: str, edge: str, asked: Mapping[str, Any]) -> Iterator[None]:
        """A span around an operation that is carried out at an edge. An error is named by its code."""
        attributes: dict[str, str | int] = {OPERATION: _name(name), PROVIDER: "holdfast", "holdfast.operation": name}
        attributes["holdfast.edge"] = edge
        said = {AGENT: "agent_id", TOP_K: "top_k", "holdfast.memory_type": "memory_type", "holdfast.verb": "verb"}
        if self._content:
            said |= {QUERY: "query", CONVERSATION: "session_id", "holdfast.user_id": "user_id"}
            said["holdfast.content"] = "content"
        attributes |= {key: value for key, one in said.items() if isinstance(value := asked.get(one), str | int)}
        with self._begin(f"{_name(name)} {name}", attributes=attributes) as span:
            try:
                yield
            except Exception as problem:
                code = problem.code if isinstance(problem, HoldfastError) else type(problem).__name__
                span.set_attribute(ERROR, code)
                span.set_status(self._trace.StatusCode.ERROR, code)
                raise

    @contextmanager
    def request(self, headers: Iterable[tuple[bytes, bytes]], method: str) -> Iterator[Callable[[str, int], None]]:
        """A span around a request, in the trace that its headers name; what is yielded takes its route and status."""
        given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
        kind, context = self._trace.SpanKind.SERVER, self._propagate.extract(given)
        attributes: dict[str, str | int] = {"http.request.method": method}
        with self._begin(method, attributes=attributes, kind=kind, context=context) as span:

            def end(route: str, status: int) -> None:
                span.update_name(f"{method} {route}")
                span.set_attributes({"http.route": route, "http.response.status_code": status})
                if status >= 500:
                    span.set_attribute(ERROR, str(status))

            yield end

    def _begin(self, name: str, **more: Any) -> AbstractContextManager[Any]:
        """A span. An error that ends it is not written down as it is: its message may quote what was said."""
        return self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False, **more)

    def observe(self, collector: Any) -> None:
        """Tell the metrics of Prometheus' collector, too, whenever they are asked for."""
        for family in collector.collect():
            if family.type == "histogram":
                continue  # it is counted by the store; what asks for it is Prometheus
            make: Any = self._meter.create_observable_gauge
            if family.type == "counter":
                make = self._meter.create_observable_counter
            make(family.name, callbacks=[_reader(collector, family.name)], description=family.documentation)


def _name(verb: str) -> str:
    return RETRIEVAL if verb in _RETRIEVALS else verb


def _reader(collector: Any, name: str) -> Callable[[Any], Iterator[Any]]:
    """What gives the values of one metric as OpenTelemetry asks for it."""

    def read(_options: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - see above

        for family in collector.collect_once():
            if family.name == name:
                yield from (Observation(sample.value, sample.labels) for sample in family.samples)

    return read


def export() -> None:
    """Send spans and metrics to where OpenTelemetry's own variables say (``OTEL_EXPORTER_OTLP_ENDPOINT``, …).

    Nothing, where the program has set up OpenTelemetry itself.
    """
    try:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - only where it is asked for
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise missing_extra("OpenTelemetry", "otel") from None
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    resource = Resource.create({"service.name": "holdfast", "service.version": VERSION})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(tracers)
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader], resource=resource))
