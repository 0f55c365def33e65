"""A trainer without a network: it prints the lines of Megatron-LM with step times that follow from its strategy.

It reads ``behaviour.json`` beside itself: by the number of the start (from 0) "oom", "crash", "hang", "late" (it
sleeps between steps) or "slow" (it also reports twice the time). It leaves a line in ``starts.txt`` every time that it
is started.
"""

import json
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def complain(number: int, _: object) -> None:
    """End as torchrun does when it is asked to."""
    print(f"torch.distributed.elastic.multiprocessing.api.SignalException: got signal: {number}", flush=True)
    sys.exit(1)


def main() -> int:
    """Train as told."""
    facts = dict(word.split("=", 1) for word in sys.argv[1:])
    with (HERE / "starts.txt").open("a") as file:
        file.write(json.dumps(facts) + "\n")
    number = len((HERE / "starts.txt").read_text().splitlines()) - 1
    path = HERE / "behaviour.json"
    behaviour = json.loads(path.read_text()) if path.exists() else {}
    act = behaviour.get(str(number), "")
    step_ms = (
        1000 * float(behaviour.get("step_s", 2.0)) * (1 + 0.1 * (int(facts["tp"]) - 1)) * (1 + 0.02 * int(facts["pp"]))
    )
    for step in range(1, int(facts["steps"]) + 1):
        if act == "oom":
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
            return 1
        if step == 6 and act == "crash":
            print("RuntimeError: NCCL communicator was aborted", flush=True)
            return 1
        if step == 6 and act == "hang":
            signal.signal(signal.SIGTERM, complain)
            time.sleep(600)
        ms = step_ms * (3 if step == 1 else 2 if act == "slow" else 1)
        print(f" iteration {step:8d}/{facts['steps']:>8} | elapsed time per iteration (ms): {ms:.1f} |", flush=True)
        time.sleep({"late": 0.5, "slow": 0.2}.get(act, 0.01))
    return 0


if __name__ == "__main__":
    sys.exit(main())
