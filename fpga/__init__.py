"""What units cost on a device, beside what they compute."""
