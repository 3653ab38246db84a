"""Amazon EC2 F1: a VU9P behind Amazon's shell."""

from .board import Board, equal_dies
from .memories import ddr
from .targets import TARGETS

AWS_F1 = Board(
    title="Amazon EC2 F1",
    target=TARGETS["aws_f1"],
    slrs=equal_dies(TARGETS["aws_f1"], 3),
    memories=(ddr(),),
    platform="xilinx_aws-vu9p-f1_shell-v04261818_201920_3",
    kernel_mhz=250,
    sources=(
        "Amazon, AWS EC2 FPGA Hardware and Software Development Kits (github.com/aws/aws-fpga, F1)",
        "AWSteria (github.com/bluespec/AWSteria_Infra): four banks of 16 GiB",
        "INSIDER (github.com/zainryan/INSIDER-System, issue 4): kernels have 250 MHz by default, and at most",
    ),
)
