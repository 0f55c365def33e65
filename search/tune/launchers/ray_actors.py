"""Runs on an existing Ray cluster: a placement group with a bundle for each node, and an actor in each bundle.

Group and actors are detached and identified by name, so that a run outlives its driver.
"""

import os
from contextlib import suppress
from typing import Any

from forerun.search.formats.launchers import LAUNCH
from forerun.search.tune.launchers import ray_node
from forerun.search.tune.launchers.contract import RunLauncher, RunPhase, unique_name
from forerun.search.tune.launchers.processes import GRACE_S
from forerun.search.tune.run import SCRIPT, STARTED, RunState
from forerun.search.workers.ray_cluster import head_of, join, listens, load_ray
from forerun.spaces.errors import RequestError

NAMESPACE = "forerun"
"""Namespace of the names of groups and actors."""
ANSWER_S = 30.0
"""Seconds to wait for an actor."""


class RayLauncher(RunLauncher):
    """Launcher of the script of a run on its first node and its launch script on the others.

    Parameters
    ----------
    address
        Cluster to use (HOST:PORT, ray://HOST:PORT or auto); empty: the cluster of ``RAY_ADDRESS``, or of this machine.
    """

    name = "ray"
    late_s = 15.0

    def __init__(self, address: str = "") -> None:
        super().__init__()
        self._address = address or os.environ.get("RAY_ADDRESS") or "auto"
        self._ray: Any = None

    def check(self) -> None:
        """Join the cluster.

        Raises
        ------
        RequestError
            Ray is not installed, or no cluster answers.
        """
        try:
            self._ray = load_ray(self._address)
        except ModuleNotFoundError:
            raise RequestError("--launcher ray needs the package ray, which is not installed") from None
        if not self._ray.is_initialized():
            join(self._ray, self._address, namespace=NAMESPACE)
        self._ray.cloudpickle.register_pickle_by_value(ray_node)
        self._head = head_of(self._ray)

    def place(self) -> str:
        """Describe the cluster."""
        return f"by Ray at {self._address}"

    def slots(self, state: RunState, active: int) -> int:
        """Return the number of running runs plus runs that fit on idle GPUs."""
        idle = self._ray.available_resources().get("GPU", 0)
        return max(1, active + int(idle // state.run.gpus))

    def start(self, state: RunState) -> str:
        """Create the group and its actors, unless they were created before.

        Raises
        ------
        RequestError
            The cluster has too few nodes or GPUs.
        """
        ray, name, each = self._ray, unique_name(state), -(-state.run.gpus // state.run.nodes)
        group = self._group(name)
        if group is None:
            if (state.folder / STARTED).exists():
                return name  # the run ended while no driver ran
            self._check_room(state.run.nodes, each)
            bundles = [{"GPU": each}] * state.run.nodes
            group = ray.util.placement_group(bundles, strategy="STRICT_SPREAD", name=name, lifetime="detached")
        node, first = ray.remote(ray_node.RayNode), None
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        for rank in range(state.run.nodes):
            actor = node.options(
                name=_actor_name(name, rank),
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                num_gpus=each,
                scheduling_strategy=strategy(group, placement_group_bundle_index=rank),
            ).remote(str(state.folder.absolute() / (LAUNCH if rank else SCRIPT)), rank, first)
            first = first or actor
        return name

    def phase(self, state: RunState) -> tuple[RunPhase, str]:
        """Return the phase of a run from the actor of its first node.

        Raises
        ------
        RequestError
            The cluster does not answer any more.
        """
        if not listens(self._head):
            raise RequestError(f"the Ray cluster at {self._address} does not answer; continue with --resume")
        name, exceptions = unique_name(state), self._ray.exceptions
        actor = self._actor(name, 0)
        if actor is None:
            return RunPhase.ENDED, "its actors are gone"
        if not (state.folder / STARTED).exists() and not self._placed(name):
            return RunPhase.WAITING, ""
        try:
            code = self._ray.get(actor.exit_code.remote(), timeout=ANSWER_S)
        except exceptions.GetTimeoutError:
            return RunPhase.RUNNING, ""
        except exceptions.RayError as error:
            return RunPhase.ENDED, f"Ray lost its first node: {error}"
        return (RunPhase.RUNNING, "") if code is None else (RunPhase.ENDED, f"its script ended with exit code {code}")

    def release(self, state: RunState) -> None:
        """End the actors of a finished run, and return its GPUs to the cluster."""
        self.cancel(state)

    def cancel(self, state: RunState) -> None:
        """End the processes of all nodes, and give the group's GPUs back."""
        ray, name = self._ray, unique_name(state)
        actors = [actor for rank in range(state.run.nodes) if (actor := self._actor(name, rank)) is not None]
        if (state.folder / STARTED).exists():
            ray.wait([one.end.remote(GRACE_S) for one in actors], num_returns=len(actors), timeout=GRACE_S + ANSWER_S)
        for actor in actors:
            ray.kill(actor)
        if (group := self._group(name)) is not None:
            ray.util.remove_placement_group(group)

    def close(self) -> None:
        """Leave the cluster; runs continue."""
        if self._ray is not None:
            self._ray.shutdown()

    def _check_room(self, nodes: int, each: int) -> None:
        """Refuse a run that exceeds the resources of every node."""
        fit = [one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("GPU", 0) >= each]
        if len(fit) < nodes:
            raise RequestError(
                f"the Ray cluster at {self._address} has {len(fit)} nodes with {each} GPUs or more, but the run needs "
                f"{nodes}; start nodes with `ray start --num-gpus {each}`"
            )

    def _placed(self, name: str) -> bool:
        group = self._group(name)
        return group is not None and bool(self._ray.util.placement_group_table(group)["state"] == "CREATED")

    def _group(self, name: str) -> Any:
        """Return the placement group of a run; None if it has none."""
        with suppress(ValueError):
            return self._ray.util.get_placement_group(name)
        return None

    def _actor(self, name: str, rank: int) -> Any:
        """Return the actor of a node of a run; None if it has none."""
        with suppress(ValueError):
            return self._ray.get_actor(_actor_name(name, rank), namespace=NAMESPACE)
        return None


def _actor_name(name: str, rank: int) -> str:
    return f"{name}-node-{rank}"
