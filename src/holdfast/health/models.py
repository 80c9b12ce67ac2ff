"""The models: what embeds, and what summarizes."""

from __future__ import annotations

import time

from holdfast.health.checks import Check, since, tried
from holdfast.recall.embedders import open_embedder
from holdfast.recall.summaries import open_summarizer


def check_embedder(setting: str) -> Check:
    """That texts are embedded, and how fast."""

    def found() -> str:
        watch = time.perf_counter()
        embedder = open_embedder(setting)
        embedder.embed(["how long does the first text take?"])
        first = since(watch)
        watch = time.perf_counter()
        embedder.embed(["and how long does the next one take?"])
        return f"{embedder.id}, {embedder.dim} dimensions (ready in {first:,.0f} ms, then {since(watch):.2f} ms a text)"

    return tried("embedder", found, "correct what HOLDFAST_EMBEDDER names; static needs nothing")


def check_summarizer(setting: str) -> Check:
    """That the setting can be used."""

    def found() -> str:
        open_summarizer(setting)
        return setting if setting == "extractive" else f"{setting} (not asked: that may cost money)"

    return tried("summarizer", found, "correct HOLDFAST_SUMMARIZER; extractive needs nothing")
