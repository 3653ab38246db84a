"""Number formats, descriptions of computations, and building blocks of hardware."""
