"""Holdfast as an MCP server: tools and resources for agents, over stdio and streamable HTTP.

It needs the extra: ``pip install 'holdfast[mcp]'``. Every tool and resource is a row of a table that says which right
it needs and how far it reaches; what a row's function works on is what ``holdfast.access.Gate`` hands out for that, and
nothing else.
"""
