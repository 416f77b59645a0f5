"""What a run kept, as a branch to propose: replayed, checked, told; see `finalize`."""
