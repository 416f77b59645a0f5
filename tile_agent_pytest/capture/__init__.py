"""Records, in any Python process of a command, the calls that launch kernels of one file.

`site/sitecustomize.py` switches it on: a process that finds that folder on its PYTHONPATH, and the
variable `TILE_AGENT_CAPTURE`, writes a file of JSON lines into the folder that the variable names.
"""
