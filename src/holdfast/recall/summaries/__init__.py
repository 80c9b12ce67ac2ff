"""Summarizers: what makes a short text of a long one, chosen by one setting."""

from __future__ import annotations

from holdfast.core.errors import InvalidSettingsError, SummarizerError, SummarizerUnavailableError, quote
from holdfast.ports.feed import Summarizer
from holdfast.recall.model_service import open_service
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
    kind, _, text = setting.strip().partition(":")
    if setting.strip() == EXTRACTIVE:
        from holdfast.recall.summaries.extractive import ExtractiveSummarizer  # noqa: PLC0415

        return ExtractiveSummarizer()
    asked = {"failed": SummarizerError, "unavailable": SummarizerUnavailableError}
    if kind == "openai" and (service := open_service(text, **asked, timeout=_TIMEOUT)):
        from holdfast.recall.summaries.llm import LlmSummarizer  # noqa: PLC0415

        return LlmSummarizer(service)
    raise InvalidSettingsError(f"{quote(without_password(setting))} names no summarizer; accepted: {ACCEPTED}")
