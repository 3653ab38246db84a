"""A pyuvm environment for any unit: items, sequences, agents, reference model, scoreboard and tests.

What it drives, what it expects and how it compares is the plain bench's; this is its other face.
"""
