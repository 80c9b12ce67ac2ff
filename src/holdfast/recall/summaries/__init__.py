"""Summarizers: what makes a short text of a long one, chosen by one setting."""

from __future__ import annotations

from holdfast.core.errors import InvalidSettingsError, SummarizerError, SummarizerUnavailableError, quote
from holdfast.ports.feed import Summarizer
from holdfast.settings import without_password

ACCEPTED = "extractive, openai:<model>@<base_url>"
"""The forms of the setting, for messages and references."""

EXTRACTIVE = "extractive"
"""The one that needs no service."""

_TIMEOUT = 120.0  # seconds: a model writes for longer than it embeds


def open_summarizer(setting: str) -> Summarizer:
    """The summarizer that ``setting`` names; nothing is asked before it is used.

    - ``extractive``: the texts' own sentences, on this machine, the default;
    - ``openai:gpt-4o-mini@https://api.openai.com/v1``: an OpenAI-compatible service, with the key in
      ``HOLDFAST_OPENAI_API_KEY`` or ``OPENAI_API_KEY``, if it needs one.

    Raises ``InvalidSettingsError`` for anything else.
    """
    kind, _, rest = setting.strip().partition(":")
    summarizer: Summarizer | None = None
    if setting.strip() == EXTRACTIVE:
        summarizer = _extractive()
    elif kind == "openai":
        summarizer = _openai(rest)
    if summarizer is None:
        raise InvalidSettingsError(f"{quote(without_password(setting))} names no summarizer; accepted: {ACCEPTED}")
    return summarizer


def _extractive() -> Summarizer:
    from holdfast.recall.summaries.extractive import ExtractiveSummarizer  # noqa: PLC0415  (only what is chosen is loaded)

    return ExtractiveSummarizer()


def _openai(text: str) -> Summarizer | None:
    from holdfast.recall.model_service import open_service  # noqa: PLC0415
    from holdfast.recall.summaries.llm import LlmSummarizer  # noqa: PLC0415

    service = open_service(text, failed=SummarizerError, unavailable=SummarizerUnavailableError, timeout=_TIMEOUT)
    return None if service is None else LlmSummarizer(service)
