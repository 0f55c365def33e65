"""PyTorch itself: a module that wraps a model in DistributedDataParallel or FSDP 2, and torchrun scripts.

Unsharded replicas use DDP (buckets of 25 MiB), sharded ones ``fully_shard`` (torch.distributed.fsdp, PyTorch 2.6 on).
The user names the blocks to shard.
"""

import ast
from typing import Any, NamedTuple

from forerun.search.formats.contract import Files, Format, Imported, Launch, LaunchFile
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.limits import COMMON, no_experts, only, precisions, when, without
from forerun.search.formats.program_arguments import PROGRAM
from forerun.search.formats.python_text import parse_python
from forerun.search.formats.templates import filled
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import GraphModel
from forerun.spaces.strategies import Recompute, parse_strategy
from forerun.spaces.workload import PRECISIONS

NAME, VERSION = "torch", "2.6"
MAIN = "parallel.py"
DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32", "tf32": "torch.float32"}
FACTS = ("STRATEGY", "GPUS", "GLOBAL_BATCH", "BATCH_PER_GPU", "ACCUMULATION", "PRECISION")


class VendorSoftware(NamedTuple):
    """Names of a vendor's devices in PyTorch.

    Attributes
    ----------
    device
        Type of device, a module of ``torch``.
    collectives
        Backend of ``torch.distributed``.
    imports
        Lines that register the device.
    products
        Line that sets the precision of fp32 products.
    """

    device: str
    collectives: str
    imports: tuple[str, ...] = ()
    products: str = ""


_CUDA = VendorSoftware(
    "cuda",
    "nccl",
    (),
    '    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISION == "tf32"',
)
_SOFTWARE = {
    "Intel": VendorSoftware("hpu", "hccl", ("import habana_frameworks.torch",)),
    "Huawei": VendorSoftware("npu", "hccl", ("import torch_npu",)),
}
"""By vendor; PyTorch for ROCm has CUDA's names."""

LIMITS = (
    *COMMON,
    without("pp", "DDP and FSDP have no pipeline"),
    without("tp", "DDP and FSDP split no layer"),
    without("cp", "DDP and FSDP split no sequence"),
    no_experts("DDP and FSDP have no expert parallelism"),
    only("recompute", (Recompute.NONE,), "checkpoints are part of the model's own code"),
    when(lambda s: s.zero == 1, "zero=1: FSDP shards gradients as well (zero=2)", zero=2),
    precisions(tuple(DTYPES), "it has bf16, fp16, fp32 and tf32 here"),
)


def write(launch: Launch) -> Files:
    """Return the module and the scripts of a launch within the limits."""
    s, workload = launch.strategy, launch.workload
    facts: dict[str, Any] = {
        "STRATEGY": str(s),
        "GPUS": s.devices,
        "GLOBAL_BATCH": workload.global_batch,
        "BATCH_PER_GPU": s.mbs,
        "ACCUMULATION": launch.microbatches,
        "PRECISION": workload.precision,
    }
    if not isinstance(launch.model, GraphModel):
        facts["SEQ_LEN"] = workload.seq_len
    if launch.packed:
        facts["DOCUMENTS"] = True
    software = _SOFTWARE.get(launch.vendor, _CUDA)
    imports = ["import os", "", "import torch", *software.imports]
    if s.zero:
        facts |= {"SHARD": s.dp // s.copies, "RESHARD": s.zero == 3}
        imports += [
            "from torch.distributed.device_mesh import init_device_mesh",
            "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard",
        ]
    else:
        imports += ["from torch.nn.parallel import DistributedDataParallel"]
    lines = [
        f"# {comment(launch.name)}: PyTorch {VERSION}, {s}, written by forerun",
        *imports,
        "",
        *(f"{name} = {value!r}" for name, value in facts.items()),
        f"DTYPE = {DTYPES[workload.precision]}",
        "",
    ]
    wrapping = "torch_fsdp.py.txt" if s.zero else "torch_ddp.py.txt"
    parts = {"device": software.device, "collectives": software.collectives, "products": software.products}
    text = "\n".join(lines) + filled("torch_start.py.txt", **parts) + filled(wrapping, **parts)
    path = ['export PYTHONPATH="$PWD:${PYTHONPATH:-}"']
    path.append("# TRAIN_SCRIPT is your program (train.py, if not set). It wraps its model with parallel.wrap.")
    path += ["# The program keeps attention inside the documents of a sequence."] if launch.packed else []
    return {MAIN: text, **scripts(launch, f"PyTorch {VERSION}", [*TORCHRUN, PROGRAM], before=path)}


def parse(source: LaunchFile) -> Imported:
    """Read the facts of such a module without running it."""
    facts = _facts(source)
    missing = [name for name in FACTS if name not in facts]
    if missing:
        raise RequestError(f"{source.name}: {missing[0]} is missing")
    if "SEQ_LEN" not in facts:
        raise RequestError(f"{source.name} is of an operator graph: name its split with --baseline, like data16")
    if facts["PRECISION"] not in PRECISIONS:
        raise RequestError(f"{source.name}: unknown precision {facts['PRECISION']!r}")
    strategy = parse_strategy(str(facts["STRATEGY"]))
    if strategy.devices != facts["GPUS"]:
        raise RequestError(f"{source.name}: {strategy} occupies {strategy.devices} GPUs, but GPUS is {facts['GPUS']}")
    known = {"GLOBAL_BATCH": "global_batch", "SEQ_LEN": "seq_len"}
    for name in known:
        if type(facts[name]) is not int or not 1 <= facts[name] <= 10**9:
            raise RequestError(f"{source.name}: {name} must be a whole number from 1 on, but got {facts[name]!r}")
    workload = {word: facts[name] for name, word in known.items()}
    return Imported(
        format=NAME,
        version=VERSION,
        strategy=strategy,
        workload={**workload, "precision": facts["PRECISION"], "gpus": strategy.devices},
        model={},
        other={},
        unknown={},
    )


def _facts(source: LaunchFile) -> dict[str, Any]:
    """Return the plain values that a module assigns to names in capitals."""
    return {
        one.targets[0].id: one.value.value
        for one in parse_python(source.text, source.name).body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and isinstance(one.value, ast.Constant)
    }


def recognise(source: LaunchFile) -> bool:
    """Whether a module has the strategy constants written by forerun."""
    return source.suffix == ".py" and "\nSTRATEGY = " in source.text and "\nBATCH_PER_GPU = " in source.text


FORMAT = Format(
    name=NAME,
    version=VERSION,
    title="PyTorch DDP and FSDP 2",
    main=MAIN,
    limits=LIMITS,
    write=write,
    parse=parse,
    recognise=recognise,
    graphs=True,
    packs="^DOCUMENTS = True$",
    vendors=("NVIDIA", "AMD", "Intel", "Huawei"),
    predicted_as="fsdp",
)
