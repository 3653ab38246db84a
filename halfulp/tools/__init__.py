"""General helpers, independent of arithmetic."""
