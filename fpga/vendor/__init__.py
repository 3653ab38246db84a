"""Input files and report readers of AMD's tools, Vivado and XRT."""
