"""The user-wide store: facts of what was judged, over all repositories, where that is asked for."""
