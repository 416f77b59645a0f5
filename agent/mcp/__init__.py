"""The MCP server: tile-agent's commands as tools and resources for assistants that speak MCP.

Nothing outside this package and its tests imports the SDK, which is an optional extra.
"""
