"""Scripts are read as a shell would run them; what only a run would know is left open, by name, and nothing else is."""

import subprocess
from pathlib import Path

import pytest

from forerun.search.formats import Imported, import_texts
from forerun.search.formats.shell import Given, read_script
from forerun.spaces.errors import RequestError

A = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 64 --bf16 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"
)
B = A.replace(" --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", "")
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"


def read(*lines: str, gpus: int | None = None, arguments: tuple[str, ...] = ()) -> Imported:
    return import_texts({"run.sh": "\n".join(lines) + "\n"}, gpus=gpus, given=Given(arguments=arguments))


def words(*lines: str) -> list[str]:
    """Return the words of the last command."""
    return [*read_script("\n".join(lines) + "\n", "run.sh").commands[-1]]


SUBSTITUTIONS = {
    "in the launcher": (
        ("NGPU=$(nvidia-smi -L | wc -l)", f"torchrun --nproc_per_node $NGPU pretrain_gpt.py {A}"),
        "mbs1",
    ),
    "in an address": (
        (
            "HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
            f'RUN="torchrun --nproc_per_node 8 --rdzv_endpoint $HEAD:6000 pretrain_gpt.py {A}"',
            'srun bash -c "$RUN"',
        ),
        "dp1 mbs1",
    ),
    "in a path": (
        (
            "JOB=run_$(git rev-parse HEAD | cut -c1-7)",
            f'ARGS="--tensorboard-dir tb/$JOB {A} --use-distributed-optimizer {FULL}"',
            "torchrun --nproc_per_node 16 pretrain_gpt.py $ARGS",
        ),
        "dp2 mbs1 zero1 recompute=full",
    ),
    "in backticks with quotes": (
        (
            f'opts="--lr 3e-4 --min-lr `bc <<< "scale=3; $1/10"` {A}"',
            "torchrun --nproc_per_node 8 pretrain_gpt.py $opts",
        ),
        "dp1 mbs1",
    ),
    "before other arguments": (
        (f"torchrun --nproc_per_node 8 pretrain_gpt.py --load $(ls -d ck/* | tail -1) {A}",),
        "dp1",
    ),
}


@pytest.mark.parametrize("name", SUBSTITUTIONS)
def test_a_command_substitution_is_one_word_of_unknown_value(name: str) -> None:
    lines, strategy = SUBSTITUTIONS[name]

    found = read(*lines)

    assert str(found.strategy).startswith("tp4 pp2 ")
    assert strategy in str(found.strategy)
    assert (found.workload["global_batch"], found.workload["seq_len"], found.workload["precision"]) == (
        64,
        4096,
        "bf16",
    )
    assert not found.unknown
    assert ("gpus" in found.workload) == (name != "in the launcher")


@pytest.mark.parametrize("value", ["$(python pick.py | tail -1)", "`python pick.py`", "$(( $(nproc) / 2 ))"])
def test_a_substitution_that_decides_a_degree_is_named(value: str) -> None:
    with pytest.raises(RequestError, match=r"tensor_model_parallel_size=.*(--set-var TP|write the numbers)"):
        read(f"TP={value}", f"torchrun --nproc_per_node 8 pretrain_gpt.py {B} --tensor-model-parallel-size $TP")
    with pytest.raises(RequestError, match="tensor_model_parallel_size="):
        read(f"torchrun --nproc_per_node 8 pretrain_gpt.py {B} --tensor-model-parallel-size {value}")


@pytest.mark.parametrize("joined", ['"${P[*]}"', '"${P[@]}"', "${P[*]}", "${P[@]}"])
def test_an_array_put_into_a_variable_keeps_its_blanks(joined: str) -> None:
    found = read(f"P=({A})", f"S={joined}", "torchrun --nproc_per_node 16 pretrain_gpt.py $S")

    assert str(found.strategy) == "tp4 pp2 dp2 mbs1"


def test_a_word_of_many_options_stops_the_import() -> None:
    with pytest.raises(RequestError, match="several options in one word"):
        read(
            f"torchrun --nproc_per_node 16 pretrain_gpt.py {A.replace(' ', '')} --seq-length 4096 --micro-batch-size 1"
        )


RUN = f"torchrun --nproc_per_node 8 pretrain_gpt.py {A} $X"
CONDITIONS = {
    "CP=2; if (( CP > 1 )); then X=--sequence-parallel; fi": True,
    "CP=2; if (( CP > 9 )); then X=--sequence-parallel; fi": False,
    "CP=2; ((CP>9)) && X=--sequence-parallel": False,
    "CP=2; ((CP>1 && CP%2==0)) && X=--sequence-parallel": True,
    "CP=2; [ $CP -gt 9 ] && X=--sequence-parallel": False,
    "Z=false; $Z && X=--sequence-parallel": False,
    "Z=true; $Z && X=--sequence-parallel": True,
    "Z=false; if $Z; then X=--sequence-parallel; fi": False,
    "M=a; case $M in a) ;; b) X=--sequence-parallel ;; *) exit 1 ;; esac": False,
    "M=b7; case $M in a*) ;; b?|c) X=--sequence-parallel ;; *) exit 1 ;; esac": True,
    "M=x; case $M in a) ;; *) X=--sequence-parallel ;; esac": True,
    "M=Llama-70b; [[ $M == *70b* ]] && X=--sequence-parallel": True,
    "M=Llama-70b; [[ $M =~ ^Mixtral ]] || X=--sequence-parallel": True,
    'M="*70b*"; [[ 70b == "$M" ]] && X=--sequence-parallel': False,
    "A=1 B=2; [[ $A -eq 1 && ( $B == 3 || -n $A ) ]] && X=--sequence-parallel": True,
    "A=1; [ $A = 1 -a ! -z $A ] && X=--sequence-parallel": True,
    "A=1; [ -f x -a $A = 2 ] && X=--sequence-parallel": False,
    "f() { return 0; }; g() { X=$1; }; f; g --sequence-parallel": True,
    "f() { local X=--sequence-parallel; }; f": False,
    "for i in 1 2; do X=--sequence-parallel; done": True,
    "for ((i=0; i<3; i++)); do (( i == 2 )) && X=--sequence-parallel; done": True,
    "declare -A O=([a]=--sequence-parallel [b]=); K=a; X=${O[$K]}": True,
    "O=(x --sequence-parallel); X=${O[1]}": True,
    "Y=X; X=--sequence-parallel; X=${!Y}": True,
    "Y=a=--sequence-parallel; X=${Y#*=}": True,
    "Y=--sequence-parallel.x; X=${Y%.*}": True,
    "Y=--sequence_parallel; X=${Y//_/-}": True,
    "X=; ( X=--sequence-parallel )": False,
    "unset X": False,
}


@pytest.mark.parametrize("line", CONDITIONS)
def test_what_can_be_decided_is_decided_as_in_a_shell(line: str) -> None:
    found = read(line, RUN)

    assert found.strategy.sp == CONDITIONS[line]
    assert not found.notes


OPEN = (
    "case $OUTSIDE in a) X=--sequence-parallel ;; esac",
    "case $(hostname) in a*) X=--sequence-parallel ;; esac",
    "if [ -f here ]; then X=--sequence-parallel; fi",
    "if (( OUTSIDE > 1 )); then X=--sequence-parallel; fi",
    "N=$(nproc); [[ -n $N ]] && X=--sequence-parallel",
    "if nvidia-smi; then X=--sequence-parallel; fi",
    "while read line; do X=--sequence-parallel; done",
    "for f in $(ls); do X=--sequence-parallel; done",
)


@pytest.mark.parametrize("line", OPEN)
def test_what_only_a_run_would_decide_is_left_out_with_a_note(line: str) -> None:
    found = read(line, f"torchrun --nproc_per_node 8 pretrain_gpt.py {A} $X")

    assert not found.strategy.sp
    assert any("line 1: " in note and "left out" in note for note in found.notes)


SUBMITTED = ("#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", f"srun python p.py {A}")
ON_EIGHT = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64"
RUNS = {
    "devices are counted": (
        "k=$(nvidia-smi -L | wc -l)",
        "torchrun --nproc-per-node ${k} train/sft.py --per_device_train_batch_size=1 --gradient_accumulation_steps=2 "
        '--fsdp="full_shard auto_wrap" --bf16=True',
        "tp1 pp1 dp1 mbs1 zero3",
    ),
    "a default is assigned": (
        ': "${TP:=4}"', ": ${REC:=1}", f'[ "${{REC}}" -eq 1 ] && X="{FULL}"',
        f"{ON_EIGHT} --tensor-model-parallel-size $TP $X", "tp4 pp1 dp2 mbs1 recompute=full",
    ),
    "sizes of a case": (
        "SIZE=7b", "case $SIZE in 7b) L=32; TP=1 ;; 70b) L=80; TP=8 ;; esac",
        f"{ON_EIGHT} --num-layers $L --tensor-model-parallel-size $TP", "tp1 pp1 dp8 mbs1",
    ),
    "submitted from a here-document": ("N=2", "sbatch <<EOT", *SUBMITTED, "EOT", "tp4 pp2 dp2 mbs1"),
    "submitted in a substitution": (
        "JOB=$(sbatch --parsable <<'EOF'", *SUBMITTED, "EOF", ")", "echo submitted $JOB", "tp4 pp2 dp2 mbs1",
    ),
    "a loop that ends": (
        "N=0; while [ $N -lt 999 ]; do N=$((N+1)); done", f"{ON_EIGHT} --num-layers 8", "tp1 pp1 dp8 mbs1",
    ),
}  # fmt: skip
"""Lines of a script, and its strategy."""


@pytest.mark.parametrize("name", RUNS)
def test_a_script_is_read_as_it_runs(name: str) -> None:
    *lines, strategy = RUNS[name]
    found = read(*lines)

    assert (str(found.strategy), found.notes) == (strategy, ())
    assert ("gpus" in found.workload) == (name != "devices are counted")


LOOP = (
    'while [[ $# -gt 0 ]]; do case "$1" in --sp) X="--sequence-parallel"; shift ;; --tp=*) TP="${1#*=}"; shift ;; '
    "*) shift ;; esac; done",
    f"torchrun --nproc_per_node 8 pretrain_gpt.py {B} --tensor-model-parallel-size ${{TP:-2}} $X",
)


def test_a_loop_over_arguments_takes_those_that_are_given() -> None:
    assert str(read(*LOOP).strategy) == "tp2 pp1 dp4 mbs1"
    assert str(read(*LOOP, arguments=("--x", "--sp", "--tp=4")).strategy) == "tp4 pp1 dp2 mbs1 sp"


@pytest.mark.parametrize(
    "loop",
    [
        "N=0; while [ $N -lt 5000 ]; do N=$((N+1)); done",
        "for ((N=0; N<5000; N++)); do X=$N; done",
        f"for N in {' '.join(map(str, range(2000)))}; do X=$N; done",
    ],
)
def test_a_loop_that_is_too_long_is_left_with_a_note(loop: str) -> None:
    notes = read(loop, f"torchrun --nproc_per_node 8 pretrain_gpt.py {A}").notes

    assert any("1,000 turns" in note for note in notes)


def test_a_loop_that_starts_several_runs_is_read_as_the_first_with_a_note() -> None:
    lines = ("for TP in 1 2 4; do", f"torchrun --nproc_per_node 8 p.py {B} --tensor-model-parallel-size $TP", "done")

    found = read(*lines)
    asked = import_texts({"run.sh": "\n".join(lines)}, given=Given(variables={"TP": "4"}))

    assert (found.strategy.tp, asked.strategy.tp) == (1, 4)
    assert any("several runs" in note for note in found.notes)
    assert not asked.notes


def test_a_placeholder_of_a_template_is_no_redirection() -> None:
    found = read(f"torchrun --nproc_per_node 8 pretrain_gpt.py --save <YOUR DIRECTORY> {A}")

    assert (found.strategy.tp, found.workload["precision"]) == (4, "bf16")
    assert any("«YOUR_DIRECTORY» is a placeholder" in note for note in found.notes)


WORDS = (
    ('torchrun a.py "a  b" c\\ d e"f g"h', ["a  b", "c d", "ef gh"]),
    ('X="a b"; torchrun a.py $X "$X" pre$X', ["a", "b", "a b", "prea", "b"]),
    ('X=(a "b c"); torchrun a.py "${X[@]}" "p${X[@]}" ${#X[@]}', ["a", "b c", "pa", "b c", "2"]),
    ("torchrun a.py > log 2>&1 --x 1 &", ["--x", "1"]),
    ("torchrun a.py --x $(a | b > c) --y", ["--x", "$(a…)", "--y"]),
    ("torchrun a.py {a:1} [1,2] 'x;y|z' # c", ["{a:1}", "[1,2]", "x;y|z"]),
    ("N=4; torchrun a.py $((N*2)) $((8*$TP)) $((N>2?N:0))", ["8", "$((8*$TP))", "4"]),
    ("torchrun a.py \\\n  --x 1 \\\n  --y 2", ["--x", "1", "--y", "2"]),
    ("X=a; X+=b; Y=(p); Y+=(q); torchrun a.py $X ${Y[*]}", ["ab", "p", "q"]),
    ("torchrun a.py ${X:-a b} ${Y:+c} ${Z-d} ${1:-e}", ["a", "b", "d", "e"]),
    ("set -- p q; shift; torchrun a.py $1 $# $@", ["q", "1", "q"]),
    ("set -- p q r; X=(a b c); torchrun a.py ${@:2} ${X[@]:1:1} ${2:0:1}", ["q", "r", "b", "q"]),
    ("eval 'X=1; torchrun a.py --x $X > log'", ["--x", "1"]),
    ('f() { echo log >&2; echo a $1; }; torchrun a.py $(f 2) "$(f 3)"', ["a", "2", "a 3"]),
    ("N=3; torchrun a.py $(echo $N*2 | bc) $(expr 16 / 4) $(printf '%s-%s' a b)", ["6", "4", "a-b"]),
    ("torchrun a.py $([ a = b ] && echo 1 || echo 2) x", ["2", "x"]),
    ("torchrun a.py $(cat <<E\n--x 1\n--y 2\nE\n)", ["--x", "1", "--y", "2"]),
    ("f() { X=b; echo $X; }; X=a; torchrun a.py $(f) $X", ["b", "a"]),
    ("IFS=, read -r A B <<< '2,4,x'; read C D <<< '5 6'; torchrun a.py $A $B $C $D", ["2", "4,x", "5", "6"]),
    ('torchtrain() { bash -c \'torchrun a.py "$@"\' _ "$@"; }; torchtrain --x 1', ["--x", "1"]),
    (
        "torchrun a.py $(printf '%s ' --x 1) $(seq 2 4) $(seq 0 5 9) $(seq x)",
        ["--x", "1", "2", "3", "4", "0", "5", "$(seq…)"],
    ),
    ("declare -A F=([--x]=1); L=(p q); torchrun a.py ${!F[@]} ${!L[@]}", ["--x", "0", "1"]),
    ("N=4; declare -i W=N*8 D=W/2; let X=D+1; torchrun a.py $W $D $X", ["32", "16", "17"]),
    ("read -ra L <<< 'p q'; torchrun a.py ${L[1]}", ["q"]),
    ("torchrun a.py `# a note` --x 1", ["--x", "1"]),
    ("f() { echo $(nproc); }; torchrun a.py $(f)", ["$(f…)"]),
    (
        "torchrun a.py $([ -d x ] && echo 1 || echo 2) $(echo a | tr a b) $(echo 1/0 | bc)",
        ["$(-d…)", *["$(echo…)"] * 2],
    ),
)
"""Lines of a script, and the words after the program of the command that they start."""


@pytest.mark.parametrize(("line", "expected"), WORDS)
def test_words_are_those_of_a_shell(line: str, expected: list[str]) -> None:
    assert words(line) == ["torchrun", "a.py", *expected]


@pytest.mark.parametrize(("line", "expected"), [case for case in WORDS if "$" not in "".join(case[1])])
def test_words_are_those_of_bash(line: str, expected: list[str], tmp_path: Path) -> None:
    script = f"torchrun() {{ printf '%s\\0' \"$@\" > words; }}\nexport -f torchrun\n{line}\nwait\n"

    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)

    assert (tmp_path / "words").read_text().split("\0")[:-1] == ["a.py", *expected]


@pytest.mark.parametrize(
    "line",
    [
        'if [[ "${BASH_SOURCE[0]}" == "${0}" ]]; then run; fi',
        'if [ "$0" = "$BASH_SOURCE" ]; then run; fi',
        "for host in $(cat hosts); do run $host & done; wait",
        'for rank in $(seq 0 $((2-1))); do ssh node$rank "$(echo $COMMAND)"; done',
    ],
)
def test_the_run_that_a_script_starts_is_found(line: str) -> None:
    command = f"torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py {A}"

    found = read(f'COMMAND="{command}"', f"run() {{ {command}; }}", line)

    assert str(found.strategy) == "tp4 pp2 dp2 mbs1"


def test_a_script_that_is_read_is_not_the_one_that_is_started() -> None:
    library = 'TP=4\nif [[ "${BASH_SOURCE[0]}" == "$0" ]]; then TP=8; fi\n'
    run = f"source ./lib.sh\ntorchrun --nproc_per_node 8 pretrain_gpt.py {B} --tensor-model-parallel-size $TP\n"

    assert import_texts({"run.sh": run, "lib.sh": library}).strategy.tp == 4


@pytest.mark.parametrize("word", ["$MORE", "${MORE[@]}", "$(python options.py)"])
def test_arguments_that_only_a_run_would_know_are_named(word: str) -> None:
    found = read(f"torchrun --nproc_per_node 8 pretrain_gpt.py {word} {A}", "MORE=$(python options.py)")

    assert any("arguments that it may add are left out" in note for note in found.notes)


@pytest.mark.parametrize("text", ["(" * 3000, "$(" * 3000, "f() { f; }\nf\n", "while :; do A=$A; done\n", "if " * 2000])
def test_a_script_without_end_ends(text: str) -> None:
    try:
        read_script(text, "run.sh")
    except RequestError as error:
        assert len(str(error)) < 400
