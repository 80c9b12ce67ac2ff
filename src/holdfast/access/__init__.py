"""API keys, and the replies to requests that must be done once."""
