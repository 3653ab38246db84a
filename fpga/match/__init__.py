"""Performance model of arrays on boards, and search for the fastest arrays."""
