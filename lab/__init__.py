"""Laboratory: studies that use the library. No module of the library imports it; the command line names its commands.

Each package has its commands in its ``cli.py``, and `halfulp.cli` lists them. Records are in ``fpga/results``.

papers
    Published figures beside those of this library. A study of another paper is a module here, with the published
    figures, the measurement and the tables; `paper_tables` shows its record in the documentation.
bench
    Measurements of this project and its peers: cost records, speed, and the delay model against place and route.
train
    Training of networks in emulated arithmetic: data, networks, training loop and table of results.
"""
