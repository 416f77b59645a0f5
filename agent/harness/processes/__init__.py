"""The processes of the harness: fork server, workers, programs, each with a deadline."""
