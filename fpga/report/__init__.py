"""Tables and plots of costs and accuracy."""
