"""Performance model of arrays on boards, and the search for the fastest ones."""
