"""Layouts of tensors over devices, and the communication between layouts."""

from forerun.simulator.layouts.flow import Need, Share, TransferPhase, needs_of
from forerun.simulator.layouts.infer import Transfer, fuse, halo, infer
from forerun.simulator.layouts.layout import Layout, operand_layout
from forerun.simulator.layouts.price import transfer_time_s

__all__ = [
    "Layout",
    "Need",
    "Share",
    "Transfer",
    "TransferPhase",
    "fuse",
    "halo",
    "infer",
    "needs_of",
    "operand_layout",
    "transfer_time_s",
]
