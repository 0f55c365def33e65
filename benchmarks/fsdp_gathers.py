"""How often FSDP2 gathers parameters and reduces gradients under PyTorch's pipeline schedules, counted in real runs.

``python -m benchmarks.fsdp_gathers``: two stages of two replicas on four processes of this machine (gloo, no device; a
torch from 2.6 on must be installed). Every layer is a unit of its own. Prints, by schedule and rank, the gathers and
reductions of a layer in a step, beside the ``microbatches + 1`` of ``simulator/replicas/sharded.py`` where parameters
are dropped behind forward passes, and the one gather where they are not.
"""

import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

PP, REPLICAS, LAYERS, WIDTH = 2, 2, 2, 8
SCHEDULES = (("1F1B", 1), ("GPipe", 1), ("Interleaved1F1B", 2), ("Interleaved1F1B", 4), ("ZBVZeroBubble", 2))
MICROBATCHES = (4, 8)


def main() -> None:
    """Count and print."""
    import torch
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"torch {torch.__version__}; gathers / reductions of a layer and step, by rank of the pipeline")
    mp.spawn(_process, args=(port,), nprocs=PP * REPLICAS)  # type: ignore[no-untyped-call]  # torch's


def _process(rank: int, port: int) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    dist.init_process_group("gloo", rank=rank, world_size=PP * REPLICAS)
    mesh = init_device_mesh("cpu", (PP, REPLICAS), mesh_dim_names=("pp", "dp"))
    counts = _counted()
    for reshard in (True, False):
        for schedule, virtual in SCHEDULES:
            for microbatches in MICROBATCHES:
                found = _step_of(mesh, schedule, virtual, microbatches, reshard, counts)
                told: list[Any] = [None] * (PP * REPLICAS)
                dist.all_gather_object(told, found)
                if rank == 0:
                    expected = microbatches + 1 if reshard else 1
                    shown = ", ".join(f"{told[stage * REPLICAS]}" for stage in range(PP))
                    print(f"{schedule} x{virtual} m={microbatches} reshard={reshard}: {shown}; predicted {expected}")
    dist.destroy_process_group()


def _counted() -> Counter[str]:
    """Count the collectives of FSDP2 from here on."""
    import torch.distributed.fsdp._fully_shard._fsdp_param_group as groups

    counts = Counter[str]()

    def counting(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            counts[name] += 1
            return whole(*args, **named)

        return called

    groups.foreach_all_gather = counting("gathers", groups.foreach_all_gather)
    groups.foreach_reduce = counting("reductions", groups.foreach_reduce)
    return counts


def _step_of(
    mesh: Any, schedule: str, virtual: int, microbatches: int, reshard: bool, counts: Counter[str]
) -> tuple[float, float]:
    """Return the gathers and reductions of a layer in the second step (the first one infers shapes)."""
    import torch
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    rank = mesh.get_local_rank("pp")
    vee = schedule.startswith("ZBV")
    numbers = [rank, 2 * PP - 1 - rank] if vee else [rank + PP * place for place in range(virtual)]
    group = mesh.get_group("pp")
    stages = [PipelineStage(_stage(mesh, reshard), n, PP * virtual, torch.device("cpu"), group=group) for n in numbers]
    kind: Any = get_schedule_class(schedule)
    several = schedule not in ("1F1B", "GPipe")
    run = kind(
        stages if several else stages[0], microbatches, loss_fn=lambda made, wanted: (made - wanted).square().mean()
    )
    for _ in range(2):
        counts.clear()
        given = (torch.randn(microbatches, WIDTH, requires_grad=True),) if 0 in numbers else ()
        target = {"target": torch.randn(microbatches, WIDTH), "losses": []} if PP * virtual - 1 in numbers else {}
        run.step(*given, **target)
    layers = LAYERS * len(stages)
    return counts["gathers"] / layers, counts["reductions"] / layers


def _stage(mesh: Any, reshard: bool) -> Any:
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    torch_layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    for layer in torch_layers:
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=reshard)
    return fully_shard(nn.Sequential(*torch_layers), mesh=mesh["dp"], reshard_after_forward=reshard)


if __name__ == "__main__":
    main()
