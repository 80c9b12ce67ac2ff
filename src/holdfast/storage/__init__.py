"""The engines: where records, conversations, facts and short-term messages are kept."""
