"""The loop led by an assistant that comes and goes: begin, next, try, finish.

The assistant writes; the program verifies, measures, decides and records, exactly as it does for
any other proposer. Between two calls no process lives: all that is known stands in the journal
and in the draft, so that a call can be repeated, killed, or made by somebody who knows nothing of
the calls before.
"""
