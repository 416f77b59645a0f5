"""Triton's Tile IR backend: what a machine and a kernel can do with it, and the configs for it.

Everything here reads; `agent.harness.tile_ir` asks and `agent.harness.kernel_calls` runs.
"""
