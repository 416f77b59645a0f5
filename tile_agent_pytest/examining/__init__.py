"""What a callable under judgement computes: on which inputs, with what result, by which launches.

A worker runs the callable and hands its results out; whether they are right is decided elsewhere,
by a process (`comparer`) that imports nothing of the user's.
"""
