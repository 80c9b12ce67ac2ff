"""What a caller may reach: the only way from REST and MCP to an engine."""
