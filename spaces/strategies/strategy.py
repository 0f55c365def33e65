"""One division of a model's training over devices, and its unique string.

The string is a list of words in any order, printed in a fixed order: ``tp4 pp8 dp16 mbs1 vpp2 zero1 sp
recompute=selective``. Degrees of one and other defaults are omitted; parsing and printing round-trip. Where stages
differ, words list the value of each stage (``layers=9,11 recompute=full,none activation-offload=0.5,0``) or of each
half of the pipeline (``tp2/4 dp8/4 mbs1/2``).
"""

import dataclasses
import math
from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.axes import (
    ALL_LAYERS,
    ALL_REPLICAS,
    CHOSEN,
    SOFTWARE,
    SPELLING,
    Placement,
    Recompute,
    Schedule,
    Software,
    Split,
    first_layers,
    group_size,
)
from forerun.spaces.strategies.stage_choices import (
    StageChoices,
    StageRecompute,
    recompute_text,
)
from forerun.spaces.strategies.stage_offload import StageOffload, offload_words

_ALIKE = StageChoices()
_DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "mbs", "vpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A flat strategy on ``dp * tp * pp * cp`` devices.

    Raises:
        RequestError: a degree is below one, ``zero`` is not 0 to 3, ``shard`` is negative or given with ``second_tp``,
            or choices per stage or half do not match the stages, devices and sequences.
    """

    dp: int = 1
    """Data-parallel replicas; with ``second_tp`` of the first half of the stages (``half`` has both)."""
    tp: int = 1
    """Tensor-parallel degree; with ``second_tp`` of the first half."""
    pp: int = 1
    """Pipeline stages."""
    cp: int = 1
    """Context-parallel degree: ranks that share each sequence."""
    ep: int = 1
    """Expert-parallel degree. Experts use the same devices: ``dp * cp * tp = edp * ep * etp`` on every stage."""
    etp: int = 1
    """Tensor-parallel degree of the experts."""
    mbs: int = 1
    """Sequences per replica and microbatch; with ``second_tp`` of the first half."""
    vpp: int = 1
    """Virtual stages of a pipeline rank."""
    schedule: Schedule = Schedule.ONE_F_ONE_B
    """Order of passes."""
    split: Split = Split.EVEN
    """Rule that assigns layers to stages."""
    zero: int = 0
    """ZeRO stage: 1 optimizer states, 2 also gradients, 3 also parameters (arXiv 1910.02054)."""
    shard: int = ALL_REPLICAS
    """Neighbouring replicas (of ``dp * cp``) that share one set of the states sharded by ``zero``. The others have
    copies; 0: all of them share one, which ``dp * cp`` is converted to."""
    sp: bool = False
    """Sequence parallelism: norms and dropout are divided by sequence over tensor ranks."""
    recompute: Recompute = Recompute.NONE
    """Modules recomputed in the backward pass."""
    recompute_layers: int = ALL_LAYERS
    """Layers of full recompute: ``ALL_LAYERS``, a number of first ones of every (virtual) stage, or ``in_groups``."""
    placement: Placement = Placement.TP_CP_EP_DP_PP
    """Order of the axes in device numbering."""
    layers_per_stage: tuple[int, ...] | None = None
    """Layers of every pipeline stage, in place of ``split``; None: by rule."""
    second_tp: int | None = None
    """Tensor-parallel degree of the second half of the stages; None: equal."""
    stage_recompute: tuple[StageRecompute, ...] | None = None
    """Recompute of every stage, in place of ``recompute``; None: equal on all stages."""
    stage_offload: tuple[StageOffload, ...] | None = None
    """Offload of every stage to host memory; None: by the software's switches."""
    software: Software = Software.NONE
    """Switches that it turns on in addition to the framework's."""

    def __post_init__(self) -> None:
        if min(self.dp, self.tp, self.pp, self.cp, self.ep, self.etp, self.mbs, self.vpp) < 1:
            name = next(name for name in _DEGREES if getattr(self, name) < 1)
            raise RequestError(f"{name} must be at least 1, but got {name}={getattr(self, name)}")
        if not 0 <= self.zero <= 3:
            raise RequestError(f"zero must be 0, 1, 2 or 3, but got zero={self.zero}")
        if self.layers_per_stage is not None and len(self.layers_per_stage) != self.pp:
            raise RequestError(f"layers= must name {self.pp} stages (pp), but got {len(self.layers_per_stage)}")
        if self.stage_recompute is not None and len(self.stage_recompute) != self.pp:
            raise RequestError(f"recompute= must name {self.pp} stages (pp), but got {len(self.stage_recompute)}")
        if self.stage_offload is not None and len(self.stage_offload) != self.pp:
            raise RequestError(
                f"shares on the host must be of {self.pp} stages (pp), but got {len(self.stage_offload)}"
            )
        self._settle_recompute()
        if self.shard < 0:
            raise RequestError(f"shard must be at least 1, or all, but got shard={self.shard}")
        if self.shard == self.dp * self.cp:
            object.__setattr__(self, "shard", ALL_REPLICAS)  # one name for each strategy
        if self.second_tp is not None:
            self._check_halves(self.second_tp)

    def _settle_recompute(self) -> None:
        """Convert the recompute of stages to its canonical form: equal entries become one choice for all stages."""
        if int(self.recompute) not in SPELLING["recompute"]:
            raise RequestError("recompute=full includes all modules; name either full or modules")
        if self.recompute_group > 1 and self.second_tp is not None:
            raise RequestError("recompute in groups of layers does not go with halves that differ in tp; write full")
        if self.stage_recompute is not None and len(set(self.stage_recompute)) == 1:
            kind, layers = self.stage_recompute[0]
            object.__setattr__(self, "recompute", kind)
            object.__setattr__(self, "recompute_layers", layers or ALL_LAYERS)
            object.__setattr__(self, "stage_recompute", None)
        if self.stage_recompute is not None or self.recompute == Recompute.NONE:
            object.__setattr__(self, "recompute_layers", ALL_LAYERS)

    def _check_halves(self, second_tp: int) -> None:
        if self.shard:
            raise RequestError(
                f"halves that differ in tp have other replicas, which cannot share states by {self.shard}; drop shard= "
                f"or tp={second_tp} of the second half"
            )
        if second_tp < 1 or self.pp < 2:
            raise RequestError(f"tp{self.tp}/{second_tp} needs degrees of at least 1 and pp >= 2, but got pp={self.pp}")
        if self.dp * self.tp % second_tp:
            raise RequestError(
                f"dp*tp = {self.dp * self.tp} devices of a stage are not divisible by tp={second_tp} of the second half"
            )
        if self.mbs * second_tp % self.tp:
            raise RequestError(
                f"the second half works on mbs*{second_tp}/{self.tp} sequences at a time (stages keep their devices "
                f"and their share of a microbatch), which mbs={self.mbs} makes no whole number; use a multiple of "
                f"{self.tp // math.gcd(self.tp, second_tp)}"
            )

    @property
    def stage_choices(self) -> StageChoices | None:
        """Differences between stages (except layers per stage); None for a flat strategy."""
        choices = StageChoices(second_tp=self.second_tp, recompute=self.stage_recompute, offload=self.stage_offload)
        return None if choices == _ALIKE else choices

    def half(self, second: bool) -> "Strategy":
        """Return the flat strategy with the degrees of one half of the stages.

        >>> str(Strategy(tp=2, second_tp=4, pp=2, dp=8).half(True))
        'tp4 pp2 dp4 mbs2'
        """
        if self.second_tp is None:
            return self
        tp, dp, mbs = self.half_degrees(second)
        return dataclasses.replace(self, tp=tp, dp=dp, mbs=mbs, second_tp=None)

    def half_degrees(self, second: bool) -> tuple[int, int, int]:
        """Return tp, dp and mbs of one half of the stages."""
        if self.second_tp is None or not second:
            return self.tp, self.dp, self.mbs
        return self.second_tp, self.dp * self.tp // self.second_tp, self.mbs * self.second_tp // self.tp

    @property
    def recompute_entries(self) -> tuple[StageRecompute, ...] | None:
        """Recompute of every stage; None if it is the same for all layers."""
        if self.recompute_first:
            return (StageRecompute(self.recompute, self.recompute_first),) * self.pp
        return self.stage_recompute

    @property
    def recompute_first(self) -> int:
        """Number of first layers of every (virtual) stage under full recompute; 0: all."""
        return first_layers(self.recompute_layers)

    @property
    def recompute_group(self) -> int:
        """Number of layers recomputed at once, from the input of the first."""
        return group_size(self.recompute_layers)

    @property
    def recompute_name(self) -> str:
        """Spelling of ``recompute`` and ``recompute_layers``.

        >>> from forerun.spaces.strategies.axes import in_groups
        >>> Strategy(recompute=Recompute.FULL, recompute_layers=in_groups(2)).recompute_name
        'full/2'
        """
        name = SPELLING["recompute"][int(self.recompute)]
        if self.recompute_group > 1:
            return f"{name}/{self.recompute_group}"
        return f"{name}:{self.recompute_first}" if self.recompute_first else name

    @property
    def switches(self) -> Software:
        """Switches of ``software`` that are choices of the search."""
        return self.software & CHOSEN

    @property
    def sharing(self) -> int:
        """Number of replicas with distinct slices of the states that ``zero`` shards."""
        return self.shard or self.dp * self.cp

    @property
    def copies(self) -> int:
        """Number of complete sets of slices: 1 if all replicas share one."""
        return self.dp * self.cp // self.sharing

    @property
    def devices(self) -> int:
        """Number of devices of the strategy."""
        return self.dp * self.tp * self.pp * self.cp

    def __str__(self) -> str:
        """Return the string form.

        >>> str(Strategy(tp=4, pp=8, dp=16, vpp=2, zero=1, sp=True, schedule=Schedule.INTERLEAVED))
        'tp4 pp8 dp16 mbs1 vpp2 zero1 sp schedule=interleaved'
        """
        halves = zip(("tp", "dp", "mbs"), self.half_degrees(False), self.half_degrees(True), strict=True)
        tp, dp, mbs = (f"{name}{one}" + ("" if self.second_tp is None else f"/{other}") for name, one, other in halves)
        words = [tp, f"pp{self.pp}", dp]
        words += [f"{name}{getattr(self, name)}" for name in ("cp", "ep", "etp") if getattr(self, name) > 1]
        words += [mbs]
        words += [f"vpp{self.vpp}"] if self.vpp > 1 else []
        words += [f"zero{self.zero}"] if self.zero else []
        words += [f"shard={self.shard}"] if self.shard else []
        words += ["sp"] if self.sp else []
        words += [f"recompute={self.recompute_name}"] if self.recompute else []
        words += [
            f"{axis}={SPELLING[axis][int(getattr(self, axis))]}"
            for axis in ("schedule", "split", "placement")
            if int(getattr(self, axis))
        ]
        if self.layers_per_stage is not None:
            words.append("layers=" + ",".join(map(str, self.layers_per_stage)))
        if self.stage_recompute is not None:
            words.append("recompute=" + recompute_text(self.stage_recompute))
        words += [] if self.stage_offload is None else offload_words(self.stage_offload)
        if self.software:
            words.append("with=" + "+".join(name for name, flag in SOFTWARE.items() if self.software & flag))
        return " ".join(words)
