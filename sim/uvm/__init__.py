"""A pyuvm environment for any unit, with vectors, golden model, rules and comparison of the plain bench."""
