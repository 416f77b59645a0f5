"""What a compiled kernel tells without a GPU: resources, occupancy, instructions, remarks.

All of it is pure: texts and bytes in, values out. The compilers are run by
`agent.harness.compiling.artifacts`.
"""
