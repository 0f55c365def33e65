"""What launch scripts hand to a training program of the Hugging Face kind: batch sizes are its arguments, not settings
of the distributed configuration."""

from collections.abc import Mapping, Sequence

from forerun.search.formats.command_line import options, split_again, split_command
from forerun.search.formats.contract import Launch
from forerun.search.formats.launchers import LAUNCH, SLURM, distributed, header, slurm
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.shell_script import read_script
from forerun.search.formats.shell_words import NOTHING, Given
from forerun.spaces.opgraph import GraphModel

PROGRAM = '"${TRAIN_SCRIPT:-train.py}"'


def trainer_arguments(launch: Launch) -> list[str]:
    """Return the batch sizes as arguments of transformers' ``TrainingArguments`` (training_args.py)."""
    s = launch.strategy
    sequences = [] if isinstance(launch.model, GraphModel) else [f"--max_seq_length {launch.workload.seq_len}"]
    return [
        f"--per_device_train_batch_size {s.mbs}",
        f"--gradient_accumulation_steps {launch.microbatches}",
        *sequences,
    ]


def launch_files(
    launch: Launch,
    title: str,
    starter: Sequence[str],
    arguments: Sequence[str],
    *,
    before_slurm: Sequence[str] = (),
    program: str = PROGRAM,
) -> dict[str, str]:
    """Return ``launch.sh`` and ``slurm.sbatch`` for a launcher other than torchrun."""
    command = " \\\n    ".join([*starter, program, *arguments])
    lines = [*header(launch, title), "", *distributed(launch)[:5], "", command, ""]
    return {LAUNCH: "\n".join(lines), SLURM: slurm(launch, before=before_slurm)}


def program_settings(scripts: Mapping[str, str], given: Given = NOTHING) -> LaunchSettings:
    """Return the arguments that scripts hand to the programs they start, by names with underscores.

    Raises:
        RequestError: a script cannot be read.
    """
    found: dict[str, str | bool] = {}
    for name, text in scripts.items():
        for command in read_script(text, name, given).commands:
            found |= options(split_command(split_again(command))[1], kebab=False)[0]
    return LaunchSettings(found, " and ".join(scripts) or "the launch script")
