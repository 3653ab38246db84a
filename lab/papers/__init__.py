"""Studies that reproduce or compare published figures."""
