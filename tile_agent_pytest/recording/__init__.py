"""Records, in any Python process of a command of the user's, what launches kernels.

`site/sitecustomize.py` switches a recorder on: a process that finds that folder on its PYTHONPATH,
and the variable `TILE_AGENT_RECORDER`, has the module that the variable names record into the
folder that it names, a file of JSON lines a process.
"""
