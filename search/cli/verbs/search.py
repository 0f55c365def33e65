"""``forerun search``: the leaderboard, and runs to measure next."""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from forerun.search.board.folder import claimed, write_folder
from forerun.search.cli.arguments import check_kind, check_transformer, request_of, workers_of
from forerun.search.cli.progress import Walk, show_progress
from forerun.search.cli.sampling import exploring_of, samples_stages, search_on_groups, suited
from forerun.search.cli.trees import check_varying, varied, write_trees
from forerun.search.files.documents import dump_json
from forerun.search.request.choices import choices_of
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import TRANSFORMERS, kind_named, kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.request import DEFAULT_TOP, Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, has_transformer, of_operator_graph, of_transformer
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.units import parse_seconds, parse_share, with_unit

if TYPE_CHECKING:
    from forerun.search.answer.baseline import Present
    from forerun.search.board.leaderboard import Leaderboard


def check_measuring(args: argparse.Namespace) -> None:
    """Refuse contradictory flags before the search."""
    if args.measure_next is None:
        if args.format is not None:
            raise RequestError("--format is for the runs of --measure-next; name both")
        return
    if "," in (args.objective or ""):
        raise RequestError(f"--measure-next needs a single objective, but got {args.objective}")
    if args.format is not None:
        from forerun.search.formats.table import format_named

        format_named(args.format)


def with_proposals(
    args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard", shown: int
) -> "Leaderboard":
    """Return the board with the runs to measure next, and the requested number of rows."""
    from forerun.search.request.setting import of_transformer
    from forerun.search.tune.proposals import next_runs

    proposal = next_runs(of_transformer(setting).context, board.rows, args.measure_next, rule=args.measure_for)
    return replace(board, rows=board.rows[:shown], measure_next=proposal)


def write_proposals(args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard") -> None:
    """Write the launch files of the runs to measure, and the table for their results, below ``--out``."""
    from forerun.search.request.setting import of_transformer
    from forerun.search.tune.proposals import launches, results_table
    from forerun.spaces.files import write_text

    proposal = board.measure_next
    if proposal is None:
        return
    folder = args.out / "measure"
    for place, files in launches(of_transformer(setting), proposal, args.format, folder=folder):
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            write_text(place / file, text)
    write_text(folder / "runs.csv", results_table(of_transformer(setting), proposal))


def run(args: argparse.Namespace) -> int:
    """Search and print; return 3 if nothing is feasible."""
    kind = kind_named(args.model)
    graph = kind is not TRANSFORMERS
    if graph:  # before a current run is read, which needs the model
        check_kind(args, graphs=True)
    if args.global_batch is None and not (args.baseline or args.measured):
        if not graph:
            check_transformer(args)
        raise RequestError("--global-batch is required, unless --baseline names files that state it")
    present, taken = (None, ()) if graph else _present_run(args)
    check_measuring(args)
    check_varying(args)
    request = request_of(
        args,
        graphs=True,
        usd_per_hour=args.usd_per_hour,
        train_within_s=None if args.train_within is None else with_unit(parse_seconds, args.train_within),
        train_usd=args.train_usd,
        oom_risk=None if args.oom_risk is None else parse_share(args.oom_risk),
        goodput=args.goodput,
        objective=args.objective,
        top=_searched(args),
        all_variants=args.all_variants or args.measure_next is not None,
        overrides=choices_of(args.space, args.set, kind.check),
    )
    with claimed(args.out, force=args.force):
        return _answer(args, request, present, taken)


def _answer(args: argparse.Namespace, request: "Request", present: "Present | None", taken: tuple[str, ...]) -> int:
    """Search, write the requested files, and print the leaderboard, or an error's JSON answer before raising it."""
    from forerun.search.answer.diagnosis.no_answer import NoAnswer

    adopted: tuple[str, ...] = ()
    if present is not None:
        from forerun.search.answer.baseline import adopt

        request, adopted = adopt(request, present)
    settings = _by_precision(args, request)
    setting = next(iter(settings.values())) if settings else resolve(request, groups=True)
    if kind_named(args.model) is not TRANSFORMERS and (args.baseline or args.measured is not None):
        from forerun.search.answer.baseline import read_split

        present = read_split(of_operator_graph(setting), args.baseline, args.measured)
    stop: EndedEarly | None = None
    try:
        if len(settings) > 1:
            from forerun.search.answer.precisions import search_precisions

            board = search_precisions(settings, lambda one: _board(args, one))
        else:
            board = _board(args, setting) if present is None else _beside(args, setting, present, (*taken, *adopted))
    except NoAnswer as error:
        if args.json:
            print(dump_json(error.document))
        raise
    except EndedEarly as interrupted:
        stop, board = interrupted, interrupted.found
        if not hasattr(board, "rows"):
            raise
        if args.refine is not None or args.measure_next is not None:  # more rows were searched than are shown
            board = replace(board, rows=board.rows[: _shown(args)])
    _write(args, setting, board)
    if stop is not None:
        raise stop
    return 0


def _write(args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard") -> None:
    """Write the requested files, and print the leaderboard even if a file cannot be written."""
    try:
        if args.out is not None:
            write_folder(args.out, board)
            write_proposals(args, setting, board)
            write_trees(args.out, board)
        if args.report is not None:
            from forerun.search.report import write_report

            write_report(args.report, board)
    finally:
        if args.json:
            print(dump_json(board.to_json()))
        else:
            from forerun.search.cli.board import print_board

            print_board(board, detail="quiet" if args.quiet else "verbose" if args.verbose else "brief", out=args.out)
    for written in (args.out, args.report):
        if written is not None and not args.json:
            print(f"forerun: wrote {written}", file=sys.stderr)


def _by_precision(args: argparse.Namespace, request: "Request") -> "dict[str, Setting[AnyContext]]":
    """Return one request per named precision."""
    precisions = (args.precision or "").split(",")
    if len(precisions) == 1:
        return {}
    from forerun.search.answer.precisions import settings_by_precision

    asked = {"--baseline": args.baseline, "--measured": args.measured, "--measure-next": args.measure_next,
             "--per-stage": samples_stages(args) or None, "--trees": args.trees}  # fmt: skip
    for flag, value in asked.items():
        if value:
            raise RequestError(f"{flag} is answered in one precision, but got --precision {args.precision}")
    return settings_by_precision(request, precisions)


def _board(args: argparse.Namespace, setting: "Setting[AnyContext]") -> "Leaderboard":
    """Search, and add requested supplements to the rows."""
    if setting.context.cluster.groups:
        return search_on_groups(args, of_transformer(setting))
    board = _flat_or_staged(args, setting)
    try:
        if args.measure_next is not None:
            board = with_proposals(args, setting, board, max(_shown(args), args.refine or 0))
        if args.refine is None:
            return board
        from forerun.search.answer.refine import refine

        return varied(args, setting, refine(board, setting, _shown(args), show_progress), workers_of(args))
    except EndedEarly:
        raise
    except KeyboardInterrupt as stop:
        remark = "interrupted after the search: answers of --trees, --refine and --measure-next are missing"
        raise EndedEarly(
            replace(board, rows=board.rows[: _shown(args)], remarks=(*board.remarks, remark)), stop
        ) from None


def _flat_or_staged(args: argparse.Namespace, setting: "Setting[AnyContext]") -> "Leaderboard":
    from forerun.search.answer.searches import search_request

    workers, exploring, note = workers_of(args), exploring_of(args), ""
    if exploring is None and args.sampler == "auto":
        exploring, note = suited(setting)
    if exploring is not None:
        from forerun.search.answer.searches import explore_request

        return explore_request(setting, exploring=exploring, workers=workers, on_progress=show_progress)
    walk = Walk()
    board = search_request(
        setting, progress=walk.advance, started=walk.started, sampling=walk.sampling, workers=workers
    )
    return replace(board, remarks=(*board.remarks, note)) if note else board


def _present_run(args: argparse.Namespace) -> "tuple[Present | None, tuple[str, ...]]":
    """Read the user's run, None without one; missing flags get the facts of its files."""
    if not args.baseline and args.measured is None:
        return None, ()
    from forerun.search.answer.baseline import read_present

    counted = args.gpus is not None and args.gpus.isdecimal()
    present = read_present(args.baseline, args.measured, gpus=int(args.gpus) if counted else None)
    taken = []
    for name, title in (("global_batch", "global batch"), ("seq_len", "sequence length")):
        if getattr(args, name) is None:
            stated = present.measured_workload.get(name) or present.workload.get(name)
            if not stated:
                raise RequestError(f"--{name.replace('_', '-')} is required: {present.source} does not state it")
            setattr(args, name, stated)
            taken.append(f"{title} {stated} (from the baseline)")
    return present, tuple(taken)


def _beside(
    args: argparse.Namespace, setting: "Setting[AnyContext]", present: "Present", taken: tuple[str, ...]
) -> "Leaderboard":
    """Search, and compare the user's run with the best row at the same level of fidelity."""
    from forerun.search.answer.baseline import context_of, stand_beside, stand_split_beside

    kind = kind_of(setting.context)
    score = simulator_score if args.refine is None else kind.event_scores
    if not has_transformer(setting):
        return stand_split_beside(_board(args, setting), of_operator_graph(setting), present, score=score)
    context_of(setting, present)  # refuses an impossible run before the search
    if samples_stages(args) and not broken_laws(present.strategy, setting.context):
        if present.strategy.devices in (setting.gpus or ()):
            args.start = [*args.start, str(present.strategy)]
    return stand_beside(_board(args, setting), setting, present, taken=taken, score=score)


def _searched(args: argparse.Namespace) -> int | None:
    """Return the number of rows to search; simulated or measured rows exceed the shown ones."""
    more = args.refine or 0
    if args.measure_next is not None:
        from forerun.search.tune.candidates import CANDIDATES

        more = max(more, CANDIDATES)
    return max(_shown(args), more) if more else args.top


def _shown(args: argparse.Namespace) -> int:
    """Return the number of rows to show."""
    return DEFAULT_TOP if args.top is None else int(args.top)
