"""What cocotb finds in the simulator: the one test, which runs that of the job."""

import os
from pathlib import Path
from typing import Any

import cocotb
from pyuvm import ConfigDB, uvm_root

from .job import Job, class_of, prepare


@cocotb.test()
async def uvm(_dut: Any) -> None:
    """Prepare the factory and the ConfigDB, and run the job's test."""
    job = Job.find(Path(os.environ["HALFULP_JOB"]))
    test = class_of(job.test)
    _, unit = prepare(test, job.request)
    ConfigDB().set(None, "*", "job", job)
    ConfigDB().set(None, "*", "unit", unit)
    await uvm_root().run_test(test, keep_singletons=True)
