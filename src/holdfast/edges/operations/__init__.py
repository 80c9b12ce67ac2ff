"""What can be asked of Holdfast from outside: one table, from which REST routes and MCP tools are made."""
