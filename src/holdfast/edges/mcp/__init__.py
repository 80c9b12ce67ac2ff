"""Holdfast as an MCP server: operations as tools and memories as resources, over stdio and streamable HTTP.

It needs the extra: ``pip install 'holdfast[mcp]'``.
"""
