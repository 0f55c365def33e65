"""What a framework cannot launch is marked; where stages differ, a row is led by what it can."""

from dataclasses import replace

import pytest

from forerun.search import search
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.divisible import STARTABLE, startable_note
from forerun.search.answer.searches import explore_request, search_request
from forerun.search.board.rows import NO_LAUNCH_MARK
from forerun.search.explore.samplers import Exploring
from forerun.search.explore.trees.named_trees import row_of_tree
from forerun.search.formats import import_texts
from forerun.search.formats.launch_of import launch_of
from forerun.search.formats.launchable import launchable, marked
from forerun.search.formats.registry import ENTRIES, FormatEntry, formats_of
from forerun.search.order.first_row import launchable_first
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import legal_strategy, of_transformer
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.strategies import Recompute, parse_strategy
from forerun.spaces.trees import legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.convert import tree_of
from forerun.spaces.trees.values import Timing

REQUEST = Request(
    model="llama3-8b",
    cluster="dgx-a100-40",
    gpus="16",
    global_batch=64,
    seq_len=8192,
    overrides={"vpp": [1], "mbs": [1], "cp": [1], "placement": [0]},
)


def test_stages_that_recompute_differently_have_no_launch_file() -> None:
    setting = resolve(REQUEST)

    assert launchable(setting.context, legal_strategy(setting, "tp2 pp4 dp2 mbs1 zero1 sp layers=7,9,8,8"))
    assert not launchable(setting.context, legal_strategy(setting, "tp2 pp4 dp2 mbs1 zero1 sp recompute=full:2,none*3"))


def test_pipelines_of_deepspeed_are_written_with_what_the_program_has_to_build() -> None:
    fields = {"cluster": "aws-p4de", "gpus": 16, "global_batch": 256, "seq_len": 8192}
    rows = search("mistral-7b", framework="deepspeed", **fields).rows
    assert {row.strategy.pp > 1 for row in rows} == {False, True}
    assert not any(NO_LAUNCH_MARK in mark for row in rows for mark in row.marks)
    context = resolve(replace(REQUEST, framework="deepspeed", gpus="16")).context
    name, files = launch_of(context, parse_strategy("pp2 dp8 mbs1 zero1"), name="x")
    assert name == "deepspeed"
    assert "deepspeed.pipe.PipelineModule with num_stages=2" in files["launch.sh"]
    found = import_texts(files)
    assert str(found.strategy) == "tp1 pp2 dp8 mbs1 zero1" and not found.unknown


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_framework_is_written_in_its_own_format_before_another_that_can(recompute: str) -> None:
    """Megatron-Bridge and accelerate write launches of Megatron-LM, too."""
    strategy = parse_strategy(f"tp2 pp2 dp4 mbs1 zero1 sp recompute={recompute}")

    assert launch_of(resolve(REQUEST).context, strategy, name="x")[0] == "megatron-lm"


def test_profiles_that_are_like_another_have_its_launch_files() -> None:
    """``nemo-blackwell`` is NeMo on another device."""
    context = resolve(replace(REQUEST, cluster="gb200-nvl72", gpus="64", framework="nemo-blackwell")).context
    (name,) = (item.name for item in formats_of(context.framework))

    assert launch_of(context, parse_strategy("tp2 pp1 dp32 mbs1 zero1 sp"), name="x")[0] == name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_registry_says_of_a_format_what_it_is(entry: FormatEntry) -> None:
    item = entry.load()

    assert item.name == entry.name
    assert (item.write is not None) == entry.written
    assert {*entry.frameworks} == ({item.framework, *item.also} - {None} if entry.written else set())


def test_rows_without_a_launch_file_are_marked_and_no_safe_choice() -> None:
    board = explore_request(REQUEST, exploring=Exploring(per_stage=("layers", "recompute"), evaluations=300))
    setting = resolve(REQUEST)

    for row in board.rows:
        lacking = any(mark.startswith(NO_LAUNCH_MARK) for mark in row.marks)
        assert lacking is not launchable(setting.context, row.strategy)
        assert not (lacking and any(launchable(setting.context, one.strategy) for one in row.variants))
        if lacking:
            assert not any(note.startswith(f"safest: {row.name} ") for note in board.advice)


def test_a_row_that_can_be_started_as_it_is_stands_before_one_that_gains_little() -> None:
    device_s = (10.0, 10.1, 10.2, 10.35, 10.5)
    places = launchable_first(device_s, [False, False, True, True, True])

    assert places == [2, 0, 3, 1, 4]  # 3 % behind 10 s is 10.3, behind 10.1 s 10.4


def test_a_tree_is_marked_unless_it_is_a_strategy_that_has_a_launch_file() -> None:
    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096))

    def marks(text: str, change: str = "") -> tuple[str, ...]:
        tree = tree_of(setting.context, parse_strategy(text))
        root = replace(tree, schedule=replace(tree.schedule, recompute=Recompute.FULL)) if change else tree
        if change:
            first, *rest = root.children
            root = replace(root, children=(replace(first, schedule=Timing(recompute=Recompute.NONE)), *rest))
        strategies = legal_tree(setting.context, resolve_tree(root, model_layers(setting.context.model)))
        row = row_of_tree(setting, strategies, "ours", simulate_tree(setting.context, strategies).scores)
        return marked(setting.context, row).marks

    assert not any("no launch file" in mark for mark in marks("tp2 pp2 dp4 mbs1 zero1 sp"))
    assert "no launch file for megatron-lm" in marks("tp2 pp2 dp4 mbs1 zero1 sp", "one stage recomputes nothing")


def test_a_board_that_nothing_launches_says_so_first() -> None:
    fields = {"cluster": "dgx-h100", "gpus": 16, "global_batch": 64, "top": 2, "overrides": {"mbs": [1], "cp": [1]}}
    sound = search("whisper-large-v3", seq_len=448, framework="megatron-lm", **fields)
    adapted = search("llama3-8b", seq_len=8192, lora="16", framework="nanotron", **fields)

    assert any("whisper-large-v3 is not a decoder over tokens" in text for text in sound.warnings)
    assert any("adapters of rank 16" in text for text in adapted.warnings)
    assert not search("llama3-8b", seq_len=8192, framework="megatron-deepspeed", **fields).warnings


def test_where_no_row_can_be_started_the_flags_that_lead_to_one_are_named() -> None:
    request = Request(model="llama3-8b", cluster="ascend-910b-box", gpus="16", global_batch=32, seq_len=4096)
    setting, rows = of_transformer(resolve(request)), search_request(request).rows
    lacking = [replace(row, marks=(f"{NO_LAUNCH_MARK} for it",)) for row in rows]
    (note,) = startable_note(setting, lacking, NoteSearch())
    flags, _, strategy = note.removeprefix(STARTABLE).partition(" leads to ")

    assert launchable(setting.context, parse_strategy(strategy.partition(" on ")[0]))
    assert "--set" in flags
    assert startable_note(setting, [*lacking, rows[0]], NoteSearch()) == ()
