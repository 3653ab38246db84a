"""Scripts and packages for the tools of the vendor: Vivado and XRT."""
